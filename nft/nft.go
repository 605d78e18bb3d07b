// Package nft is unflannel's backend for nf_tables, which iptables-nft writes to.
// It speaks netlink with the kernel and starts no program.
package nft

import (
	"context"
	"errors"
	"fmt"
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

	kernel func() (transport, error) // stands in for the kernel in tests
}

// New returns a backend.
func New() *Backend { return &Backend{} }

func (b *Backend) open() (transport, error) {
	if b.kernel != nil {
		return b.kernel()
	}
	s, err := openSocket()
	if err != nil {
		return nil, err // and not a transport that holds a nil *socket
	}
	return s, nil
}

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
	readAttempts = 64
	maxPause     = 100 * time.Millisecond
)

// Read reads the tables of the queries at one generation of the ruleset. A kernel
// without nf_tables gives an empty snapshot without error.
func (b *Backend) Read(ctx context.Context, queries []unflannel.Query) (*unflannel.Snapshot, error) {
	t, err := b.open()
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
		return b.absent(err) // not even nfnetlink is there
	}
	if err != nil {
		return nil, readError(err)
	}
	defer t.close()
	c := newConn(t)
	for attempt := 1; ; attempt++ {
		snapshot, err := b.readOnce(ctx, c, queries)
		if err == nil {
			return snapshot, nil
		}
		if !passing(err) || attempt == readAttempts {
			return nil, readError(err)
		}
		b.log().Debug("read interrupted", "attempt", attempt, "error", err)
		select {
		case <-time.After(min(time.Millisecond<<min(attempt, 16), maxPause)):
		case <-ctx.Done():
			return nil, readError(ctx.Err())
		}
	}
}

// passing reports whether an error of reading comes of another program's writing,
// so that it may be gone the next time. What is asked for by name in the middle of
// a read was there at its beginning.
func passing(err error) bool {
	return errors.Is(err, errInterrupted) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EINTR)
}

func (b *Backend) readOnce(ctx context.Context, c *conn, queries []unflannel.Query) (*unflannel.Snapshot, error) {
	generation, err := c.generation(ctx)
	switch {
	// nfnetlink answers EINVAL when it has no such subsystem.
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT):
		return b.absent(err)
	case err != nil:
		return nil, err
	}
	snapshot := &unflannel.Snapshot{Generation: generation}
	for _, q := range queries {
		if n := len(snapshot.Present); n == 0 || snapshot.Present[n-1] != q.Family {
			snapshot.Present = append(snapshot.Present, q.Family)
		}
	}
	if snapshot.Tables, err = c.readTables(ctx, queries); err != nil {
		return nil, err
	}
	if now, err := c.generation(ctx); err != nil {
		return nil, err
	} else if now != generation {
		return nil, errInterrupted
	}
	b.log().Debug("read", "generation", generation, "bytes", c.received, "requests", c.seq)
	return snapshot, nil
}

// absent is the answer of Read where the kernel has no nf_tables.
func (b *Backend) absent(err error) (*unflannel.Snapshot, error) {
	b.log().Debug("the kernel has no nf_tables", "error", err)
	return &unflannel.Snapshot{}, nil
}

// readError adds to what ended a read where it was and what to do.
func readError(err error) error {
	var e *unflannel.Error
	if !errors.As(err, &e) {
		e = &unflannel.Error{Op: "read ruleset", Backend: name, Err: err}
	}
	e.Advice = advice(err)
	return e
}

// advice says what the user can do about an error.
func advice(err error) string {
	var r *refusal
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return "this needs the capability CAP_NET_ADMIN in this network namespace"
	case errors.Is(err, unix.EMSGSIZE):
		return "run as root of the first user namespace, or raise net.core.wmem_max"
	case errors.Is(err, context.DeadlineExceeded):
		return "the kernel did not answer in time: another program may hold nf_tables' lock; run again, with a longer --timeout"
	case errors.Is(err, unix.ENOMEM):
		return "the kernel is short of memory; run again"
	case passing(err):
		return fmt.Sprintf("gave up after %d attempts; run again when fewer programs write rules", readAttempts)
	case errors.Is(err, errMalformed), errors.As(err, &r):
		return "please report this with the kernel's version (uname -r)"
	}
	return ""
}
