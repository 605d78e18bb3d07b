package nft

import (
	"bytes"
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel"
)

// groupNFTables is the multicast group of nf_tables (NFNLGRP_NFTABLES in the kernel's
// include/uapi/linux/netfilter/nfnetlink.h).
const groupNFTables = 7

// watchBuffer is the room for changes that wait to be read. The group carries every
// rule that anybody writes.
const watchBuffer = 4 << 20

// Watch implements [unflannel.Watcher]: the kernel sends the generation of each
// commit together with the process that made it.
func (b *Backend) Watch(ctx context.Context) (<-chan unflannel.Change, error) {
	t, err := openSocket()
	if err != nil {
		return nil, &unflannel.Error{Op: "watch the ruleset", Backend: name, Err: err, Advice: advice(err)}
	}
	if err := t.subscribe(); err != nil {
		t.close()
		return nil, &unflannel.Error{Op: "watch the ruleset", Backend: name, Err: err, Advice: advice(err)}
	}
	changes := make(chan unflannel.Change)
	go func() {
		defer close(changes)
		defer t.close()
		b.watch(ctx, t, changes)
	}()
	return changes, nil
}

func (s *socket) subscribe() error {
	s.timeout = 0 // nobody may ever write
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, watchBuffer) != nil {
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, watchBuffer) // as much as is allowed
	}
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, groupNFTables))
}

func (b *Backend) watch(ctx context.Context, t transport, changes chan<- unflannel.Change) {
	buf := make([]byte, watchDatagram)
	var transaction teller
	for {
		n, err := t.receive(ctx, buf)
		var told []unflannel.Change
		switch {
		case errors.Is(err, unix.ENOBUFS), errors.Is(err, errMalformed):
			told = []unflannel.Change{{}} // something was missed
		case err != nil:
			b.log().Debug("watching ended", "error", err)
			return
		default:
			told = transaction.read(buf[:n])
		}
		for _, c := range told {
			select {
			case changes <- c:
			case <-ctx.Done():
				return
			}
		}
	}
}

// watchDatagram is more than the kernel puts into one datagram of the group.
const watchDatagram = 64 << 10

// teller reads what the kernel tells of each transaction: first the objects that it
// made or deleted, then the new generation and the process.
type teller struct {
	flannel bool // an object of the transaction so far has Flannel's name in it
}

// read returns the changes that end in a datagram.
func (t *teller) read(b []byte) []unflannel.Change {
	var all []unflannel.Change
	for len(b) > 0 {
		var h header
		var err error
		if h, b, err = nextMessage(b); err != nil || len(h.body) < sizeofNfgenmsg {
			return append(all, unflannel.Change{})
		}
		switch h.typ {
		case unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE,
			unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWCHAIN,
			unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWRULE:
			t.flannel = t.flannel || bytes.Contains(h.body, []byte("FLANNEL")) || bytes.Contains(h.body, []byte("flannel"))
		case unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN:
			all = append(all, t.change(h.body[sizeofNfgenmsg:]))
			t.flannel = false
		}
	}
	return all
}

func (t *teller) change(attrs []byte) unflannel.Change {
	c := unflannel.Change{Flannel: t.flannel}
	for a := (attributes{rest: attrs}); a.next(); {
		switch a.typ {
		case unix.NFTA_GEN_ID:
			c.Generation = be32(a.data)
		case unix.NFTA_GEN_PROC_PID:
			c.Process.ID = be32(a.data)
		case unix.NFTA_GEN_PROC_NAME:
			c.Process.Name = string(cstring(a.data))
		}
	}
	return c
}
