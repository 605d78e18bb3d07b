// Package legacy finds and removes rules of iptables-legacy, the packet filter
// that the kernel had before nf_tables.
//
// It looks by the kernel's own tables and starts no program for that, so nothing
// comes into being by looking: any other question (iptables-legacy -S, -C, -save
// -t) creates the table it asks about. It removes through the programs
// iptables-legacy-save and iptables-legacy-restore, one atomic restore for each
// table: they hold the lock that all writers of these tables share, and they know
// how to write back rules of extensions that this package has never heard of.
package legacy

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel"
)

// DefaultLockWait is how long New's backend lets iptables wait for the lock.
const DefaultLockWait = 30 * time.Second

// Backend is iptables-legacy. Its methods work in the network namespace of the
// calling thread; a Backend holds nothing of it and can be used in many.
type Backend struct {
	// HostRoot is a directory where the root of the host's file system is
	// mounted. If it is set, the programs are those of the host, run there by
	// chroot, which needs CAP_SYS_CHROOT. Default: those beside this program.
	HostRoot string

	// LockWait is how long iptables may wait for the lock, /run/xtables.lock, in
	// whole seconds and at least one. An environment variable XTABLES_LOCKFILE,
	// by which iptables uses another lock, is passed on to it.
	LockWait time.Duration

	// Logger gets every step at level debug. Default: nothing is logged.
	Logger *slog.Logger

	// path are the directories to search for programs. Default: PATH and where
	// distributions put them.
	path []string

	// procNet and kernel stand in for /proc/thread-self/net and kernelTable in tests.
	procNet string
	kernel  func(context.Context, unflannel.Family, string) (*table, error)

	// grace and limit are how long a program may go on after the context has
	// ended, and at all.
	grace, limit time.Duration
}

var _ unflannel.Backend = (*Backend)(nil)

// New returns a backend with the default settings.
func New() *Backend { return &Backend{LockWait: DefaultLockWait} }

// Name returns "legacy".
func (b *Backend) Name() string { return "legacy" }

func (b *Backend) log() *slog.Logger {
	if b.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return b.Logger
}

// Read reads what the queries ask for from the kernel. It opens nothing for tables
// that do not exist.
func (b *Backend) Read(ctx context.Context, queries []unflannel.Query) (*unflannel.Snapshot, error) {
	var errs []error
	s := &unflannel.Snapshot{}
	listed := map[unflannel.Family][]string{}
	for _, q := range queries {
		if _, ok := listed[q.Family]; ok {
			continue
		}
		names, present, err := b.tableNames(q.Family)
		if err != nil {
			errs = append(errs, &unflannel.Error{Op: "list tables", Backend: b.Name(), Family: q.Family, Err: err, Advice: adviceOnNames(err)})
		}
		if present {
			s.Present = append(s.Present, q.Family)
		}
		b.log().DebugContext(ctx, "listed tables", "backend", b.Name(), "family", q.Family, "present", present, "tables", names)
		listed[q.Family] = names
	}
	for _, q := range queries {
		if !slices.Contains(listed[q.Family], q.Table) {
			continue
		}
		t, _, err := b.readTable(ctx, q)
		if errors.Is(err, unix.EAFNOSUPPORT) {
			// IPv6 is switched off (ipv6.disable=1) while the modules of its tables are
			// there: no packet comes to them, and nobody can have written to them.
			b.log().DebugContext(ctx, "the kernel has no such family", "backend", b.Name(), "family", q.Family, "error", err)
			s.Present = slices.DeleteFunc(s.Present, func(f unflannel.Family) bool { return f == q.Family })
			continue
		}
		if err != nil {
			errs = append(errs, &unflannel.Error{Op: "read rules", Backend: b.Name(), Family: q.Family, Table: q.Table, Err: err, Advice: adviceOnTable(err)})
			continue
		}
		s.Tables = append(s.Tables, t)
	}
	return s, errors.Join(errs...)
}

// readTable reads a table that is listed, and how many entries the kernel counts
// in it, or 0 where only text could be had.
func (b *Backend) readTable(ctx context.Context, q unflannel.Query) (*unflannel.Table, int, error) {
	log := b.log().With("backend", b.Name(), "family", q.Family, "table", q.Table)
	kernel := b.kernel
	if kernel == nil {
		kernel = kernelTable
	}
	raw, err := kernel(ctx, q.Family, q.Table)
	if errors.Is(err, unix.EINVAL) {
		// A 64-bit kernel without compatible tables says so to a 32-bit program.
		log.DebugContext(ctx, "reading by program", "cause", err)
		t, err := b.readText(ctx, q)
		return t, 0, err
	}
	if err != nil {
		return nil, 0, err
	}
	chains, err := raw.chains(q.Chains)
	if err != nil {
		return nil, 0, err
	}
	log.DebugContext(ctx, "read table", "entries", raw.entries, "bytes", len(raw.data), "chains", len(chains))
	return &unflannel.Table{Family: q.Family, Name: q.Table, Chains: chains}, int(raw.entries), nil
}
