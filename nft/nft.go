// Package nft is unflannel's backend for nf_tables, which iptables-nft writes to.
// It speaks netlink with the kernel and starts no program.
package nft

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel"
)

const name = "nft"

// Backend implements [unflannel.Backend] for nf_tables, in the network namespace
// of the thread that calls its methods. It needs CAP_NET_ADMIN in the user
// namespace that owns that network namespace.
type Backend struct {
	Logger *slog.Logger // what is asked and answered, at level Debug; nil for nowhere

	open func() (transport, error)
}

// New returns a backend.
func New() *Backend { return &Backend{open: openSocket} }

func (b *Backend) log() *slog.Logger {
	if b.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return b.Logger.With("backend", name)
}

// Name returns "nft".
func (*Backend) Name() string { return name }

// families are nf_tables' numbers of the families.
var families = map[unflannel.Family]uint8{
	unflannel.IP:  unix.NFPROTO_IPV4,
	unflannel.IP6: unix.NFPROTO_IPV6,
}

const (
	// readAttempts bounds how often a read is begun anew because other programs
	// wrote meanwhile, with pauses that grow to maxPause: five seconds in all.
	readAttempts = 24
	maxPause     = 250 * time.Millisecond
)

// Read reads the tables of the queries at one generation of the ruleset. A kernel
// without nf_tables gives an empty snapshot without error.
func (b *Backend) Read(ctx context.Context, queries []unflannel.Query) (*unflannel.Snapshot, error) {
	t, err := b.open()
	if err != nil {
		return b.readError(err)
	}
	defer t.close()
	c := newConn(t)
	for attempt := 1; ; attempt++ {
		snapshot, err := b.readOnce(ctx, c, queries)
		if err == nil || !errors.Is(err, errInterrupted) && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) {
			if err != nil {
				return b.readError(err)
			}
			return snapshot, nil
		}
		b.log().Debug("read interrupted", "attempt", attempt, "error", err)
		if attempt == readAttempts {
			return nil, &unflannel.Error{
				Op: "read ruleset", Backend: name, Err: err,
				Advice: "gave up after many attempts; run again when fewer programs write rules",
			}
		}
		select {
		case <-time.After(min(time.Millisecond<<attempt, maxPause)):
		case <-ctx.Done():
			return b.readError(ctx.Err())
		}
	}
}

func (b *Backend) readOnce(ctx context.Context, c *conn, queries []unflannel.Query) (*unflannel.Snapshot, error) {
	generation, err := c.generation(ctx)
	if err != nil {
		return nil, err
	}
	snapshot := &unflannel.Snapshot{Generation: generation}
	for _, q := range queries {
		if n := len(snapshot.Present); n == 0 || snapshot.Present[n-1] != q.Family {
			snapshot.Present = append(snapshot.Present, q.Family)
		}
		t, err := c.readTable(ctx, q)
		if err != nil {
			return nil, err
		}
		if t != nil {
			snapshot.Tables = append(snapshot.Tables, t)
		}
	}
	if now, err := c.generation(ctx); err != nil {
		return nil, err
	} else if now != generation {
		return nil, errInterrupted
	}
	b.log().Debug("read", "generation", generation, "bytes", c.received, "requests", c.seq)
	return snapshot, nil
}

// readError turns what ended a read into the method's answer.
func (b *Backend) readError(err error) (*unflannel.Snapshot, error) {
	if absent(err) {
		b.log().Debug("the kernel has no nf_tables", "error", err)
		return &unflannel.Snapshot{}, nil
	}
	var e *unflannel.Error
	if !errors.As(err, &e) {
		e = &unflannel.Error{Op: "read ruleset", Backend: name, Err: err}
	}
	if e.Advice == "" {
		e.Advice = advice(err)
	}
	return nil, e
}

// errAbsent marks an error that says that the kernel lacks nf_tables.
var errAbsent = errors.New("the kernel has no nf_tables")

func absent(err error) bool {
	// Without NETLINK_NETFILTER there is no such socket.
	return errors.Is(err, errAbsent) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT)
}

// advice says what the user can do about an errno.
func advice(err error) string {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return "this needs the capability CAP_NET_ADMIN in this network namespace"
	case errors.Is(err, unix.EMSGSIZE):
		return "run as root of the first user namespace, or raise net.core.wmem_max"
	case errors.Is(err, context.DeadlineExceeded):
		return "the kernel did not answer in time: another program may hold nf_tables' lock; run again, with a longer --timeout"
	}
	return ""
}
