package nft

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// errMalformed says that a message from the kernel has lengths that do not fit.
var errMalformed = errors.New("malformed netlink message")

// The sizes of netlink's own parts of a message, and their alignment.
const (
	sizeofNlmsghdr  = unix.SizeofNlMsghdr
	sizeofNfgenmsg  = 4
	sizeofNlattr    = unix.SizeofNlAttr
	netlinkAlign    = 4
	attrTypeMask    = 0x3fff // without the flags NLA_F_NESTED and NLA_F_NET_BYTEORDER
	sizeofErrorCode = 4
)

// message is a netlink message of nfnetlink, in the making.
type message []byte

// newMessage begins a message. nfnetlink's resource id is the subsystem for the
// messages that frame a batch, and zero for all others.
func newMessage(msgType, flags uint16, family uint8, resource uint16) message {
	m := make(message, sizeofNlmsghdr+sizeofNfgenmsg, 128)
	binary.NativeEndian.PutUint16(m[4:], msgType)
	binary.NativeEndian.PutUint16(m[6:], flags|unix.NLM_F_REQUEST)
	m[sizeofNlmsghdr] = family
	m[sizeofNlmsghdr+1] = unix.NFNETLINK_V0
	binary.BigEndian.PutUint16(m[sizeofNlmsghdr+2:], resource)
	return m
}

// nftMessage begins a message to nf_tables.
func nftMessage(msg int, flags uint16, family uint8) message {
	return newMessage(unix.NFNL_SUBSYS_NFTABLES<<8|uint16(msg), flags, family, 0)
}

func (m message) attr(typ uint16, data []byte) message {
	m = binary.NativeEndian.AppendUint16(m, uint16(sizeofNlattr+len(data)))
	m = binary.NativeEndian.AppendUint16(m, typ)
	m = append(m, data...)
	for len(m)%netlinkAlign != 0 {
		m = append(m, 0)
	}
	return m
}

func (m message) text(typ uint16, s string) message {
	return m.attr(typ, append([]byte(s), 0))
}

func (m message) uint32(typ uint16, v uint32) message {
	return m.attr(typ, binary.BigEndian.AppendUint32(nil, v))
}

func (m message) uint64(typ uint16, v uint64) message {
	return m.attr(typ, binary.BigEndian.AppendUint64(nil, v))
}

// number completes the message's header.
func (m message) number(seq uint32) message {
	binary.NativeEndian.PutUint32(m[0:], uint32(len(m)))
	binary.NativeEndian.PutUint32(m[8:], seq)
	return m
}

// header is a netlink message from the kernel.
type header struct {
	typ, flags uint16
	seq        uint32
	body       []byte
}

// nextMessage splits the first message off a datagram.
func nextMessage(b []byte) (header, []byte, error) {
	if len(b) < sizeofNlmsghdr {
		return header{}, nil, errMalformed
	}
	length := int(binary.NativeEndian.Uint32(b))
	if length < sizeofNlmsghdr || length > len(b) {
		return header{}, nil, errMalformed
	}
	h := header{
		typ:   binary.NativeEndian.Uint16(b[4:]),
		flags: binary.NativeEndian.Uint16(b[6:]),
		seq:   binary.NativeEndian.Uint32(b[8:]),
		body:  b[sizeofNlmsghdr:length],
	}
	return h, b[min(align(length), len(b)):], nil
}

func align(n int) int { return (n + netlinkAlign - 1) &^ (netlinkAlign - 1) }

// attributes walks the attributes of a message or of a nested attribute. The
// data are parts of the message, not copies.
//
//	for a := attributesOf(b); a.next(); { … a.typ, a.data … }
//
// A wrong length ends the walk, and bad says so.
type attributes struct {
	rest []byte
	typ  uint16
	data []byte
	bad  bool
}

func (a *attributes) next() bool {
	if len(a.rest) == 0 {
		return false
	}
	if len(a.rest) < sizeofNlattr {
		a.bad = true
		return false
	}
	length := int(binary.NativeEndian.Uint16(a.rest))
	if length < sizeofNlattr || length > len(a.rest) {
		a.bad = true
		return false
	}
	a.typ = binary.NativeEndian.Uint16(a.rest[2:]) & attrTypeMask
	a.data = a.rest[sizeofNlattr:length]
	a.rest = a.rest[min(align(length), len(a.rest)):]
	return true
}

func (a *attributes) err() error {
	if a.bad {
		return errMalformed
	}
	return nil
}

// The readers of an attribute's data answer a wrong length with zero: nothing
// that decides on a removal can be zero (handles, use counts, verdicts to a chain).

// cstring is the text before the first NUL.
func cstring(b []byte) []byte {
	for i, c := range b {
		if c == 0 {
			return b[:i]
		}
	}
	return b
}

func be32(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func be64(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}
