package legacy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/netnstest"
)

// allQueries ask for things in every table there can be.
func allQueries() []unflannel.Query {
	var queries []unflannel.Query
	for _, family := range families {
		for _, table := range []string{"nat", "filter", "mangle", "raw", "security"} {
			queries = append(queries, unflannel.Query{Family: family.Family, Table: table, Chains: []string{"FORWARD", "POSTROUTING", "FLANNEL-FWD"}})
		}
	}
	return queries
}

// To look creates nothing, and starts nothing.
func TestReadCreatesNothing(t *testing.T) {
	t.Parallel()
	names := func(ns *netnstest.NS) string {
		return ns.MustRun("", "sh", "-c", "cat /proc/self/net/ip_tables_names; echo; cat /proc/self/net/ip6_tables_names")
	}
	for _, load := range []string{"", "raw"} {
		ns := netnstest.New(t)
		if load != "" {
			ns.MustRun("", "iptables-legacy-save", "-t", load)
		}
		before := names(ns)
		b := New()
		if strconv.IntSize != 32 { // there it takes a program
			b.path = []string{}
		}
		s := read(t, ns, b, allQueries()...)
		if after := names(ns); after != before {
			t.Errorf("tables %q instead of %q", after, before)
		}
		if len(s.Present) != 2 || s.Present[0] != unflannel.IP || s.Present[1] != unflannel.IP6 {
			t.Errorf("present: %v", s.Present)
		}
		var tables []string
		for _, table := range s.Tables {
			tables = append(tables, table.Name)
		}
		if have := strings.Join(tables, " "); have != load {
			t.Errorf("tables %q instead of %q", have, load)
		}
	}
}

// The file of names that is missing, unreadable, or without its directory.
func TestNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ip6_tables_names"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b := New()
	b.procNet = dir
	s, err := b.Read(t.Context(), allQueries())
	if err != nil || len(s.Present) != 1 || s.Present[0] != unflannel.IP6 || s.Tables != nil {
		t.Errorf("%+v, %v", s, err)
	}

	b.procNet = filepath.Join(dir, "nothing")
	s, err = b.Read(t.Context(), allQueries())
	if !errors.Is(err, fs.ErrNotExist) || s == nil || s.Present != nil {
		t.Errorf("%+v, %v", s, err)
	}
	checkFailure(t, errors.Unwrap(joined{err}), []string{"mount /proc"})

	if _, err := b.Read(t.Context(), []unflannel.Query{{Family: "bridge", Table: "nat"}}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("error %v", err)
	}
}

// Who may not read one family's names is told so, and gets the other family.
func TestNamesDenied(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	ns.Restore("legacy", "ip6", readFile(t, "testdata/everything.v6.save"))
	dir := t.TempDir()
	// A file that is there and cannot be read, whoever asks: a directory.
	if err := os.Mkdir(filepath.Join(dir, "ip_tables_names"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ip6_tables_names"), []byte("filter\nnat\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := New()
	b.procNet = dir
	var s *unflannel.Snapshot
	var err error
	ns.Do(func() {
		s, err = b.Read(t.Context(), append(flannelQueries(unflannel.IP), flannelQueries(unflannel.IP6)...))
	})
	checkFailure(t, err, []string{"list tables of family ip (legacy): "})
	if s == nil || len(s.Tables) != 2 || len(s.Present) != 1 {
		t.Errorf("%+v", s)
	}
}

// onThread runs f on a thread in the namespace that ends with it, so that f may
// spoil it.
func onThread(t *testing.T, ns *netnstest.NS, f func()) {
	t.Helper()
	var wait sync.WaitGroup
	wait.Go(func() {
		runtime.LockOSThread() // for ever
		fd, err := unix.Open(ns.Path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(fd)
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		f()
	})
	wait.Wait()
}

// Another user than root may not read the names: unknown, not clean.
func TestReadAsOtherUser(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	onThread(t, ns, func() {
		const nobody = 65534
		// All of this thread alone; with the user go the capabilities over files.
		unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0)
		unix.RawSyscall(unix.SYS_SETFSGID, nobody, 0, 0)
		unix.RawSyscall(unix.SYS_SETFSUID, nobody, 0, 0)
		if now, _, _ := unix.RawSyscall(unix.SYS_SETFSUID, nobody, 0, 0); now != nobody {
			t.Skip("expected: a user namespace of one user has no other")
		}
		s, err := New().Read(t.Context(), allQueries())
		if !errors.Is(err, fs.ErrPermission) || s == nil || s.Present != nil {
			t.Errorf("%+v, %v", s, err)
		}
		checkFailure(t, errors.Unwrap(joined{err}), []string{"list tables of family ip (legacy): ", "permission denied; run as root"})
	})
}

// joined gives the first of joined errors to errors.Unwrap.
type joined struct{ error }

func (j joined) Unwrap() error {
	if m, ok := j.error.(interface{ Unwrap() []error }); ok {
		return m.Unwrap()[0]
	}
	return j.error
}

// The tables want CAP_NET_ADMIN, and nothing else.
func TestReadByCapability(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	ns.Restore("legacy", "ip", readFile(t, "testdata/everything.v4.save"))
	for _, test := range []struct {
		name    string
		effect  uint32
		allowed bool
	}{
		{"CAP_NET_ADMIN alone", 1 << unix.CAP_NET_ADMIN, true},
		{"CAP_NET_RAW alone", 1 << unix.CAP_NET_RAW, false},
		{"none", 0, false},
	} {
		onThread(t, ns, func() {
			head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			data := [2]unix.CapUserData{{Effective: test.effect, Permitted: test.effect}}
			if err := unix.Capset(&head, &data[0]); err != nil {
				t.Error(err)
				return
			}
			s, err := New().Read(t.Context(), flannelQueries(unflannel.IP))
			if test.allowed {
				if err != nil || len(s.Tables) != 2 {
					t.Errorf("%s: %+v, %v", test.name, s, err)
				}
				return
			}
			if !errors.Is(err, unix.EPERM) || len(s.Tables) != 0 || len(s.Present) != 1 {
				t.Errorf("%s: %+v, %v", test.name, s, err)
			}
			checkFailure(t, errors.Unwrap(joined{err}), []string{"read rules in table ip nat (legacy): ", "operation not permitted; run with CAP_NET_ADMIN"})
		})
	}
}

// While a table is replaced all the time, every read is of one state: a chain is
// never seen without what the same restore put into it.
func TestReadWhileWritten(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	const (
		one = "*nat\n:POSTROUTING ACCEPT [0:0]\n:FLANNEL-POSTRTG - [0:0]\n-A POSTROUTING -j FLANNEL-POSTRTG\n-A FLANNEL-POSTRTG -j RETURN\nCOMMIT\n"
		two = "*nat\n:POSTROUTING ACCEPT [0:0]\n:FLANNEL-POSTRTG - [0:0]\n-A POSTROUTING -j FLANNEL-POSTRTG\n-A POSTROUTING -j FLANNEL-POSTRTG\n-A FLANNEL-POSTRTG -j RETURN\n-A FLANNEL-POSTRTG -j RETURN\nCOMMIT\n"
	)
	ns.Restore("legacy", "ip", one)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, stderr, err := ns.Run([]string{two, one}[i%2], "iptables-legacy-restore", "-w"); err != nil {
				t.Errorf("%v: %s", err, stderr)
				return
			}
		}
	}()
	for range 100 {
		s := read(t, ns, New(), flannelQueries(unflannel.IP)[0])
		chain := s.Tables[0].Chains[1]
		if n := len(chain.Rules); n != len(chain.References) || n != len(s.Tables[0].Chains[0].Rules) {
			t.Errorf("%d rules, %d references, %d rules in POSTROUTING", n, len(chain.References), len(s.Tables[0].Chains[0].Rules))
		}
	}
	close(stop)
	<-done
}

// Removing takes two programs for each table, and is told in the log.
func TestTwoPrograms(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	ns.Restore("legacy", "ip", readFile(t, "testdata/everything.v4.save"))
	var log strings.Builder
	b := New()
	b.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := read(t, ns, b, flannelQueries(unflannel.IP)...)
	if err := remove(ns, context.Background(), b, s, dropChains(s, "FLANNEL-POSTRTG", "FLANNEL-FWD")); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "starting program"); n != 4 {
		t.Errorf("%d programs:\n%s", n, log.String())
	}
}

// An ended context ends everything.
func TestReadEndsWithContext(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	ns.Restore("legacy", "ip", readFile(t, "testdata/everything.v4.save"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ns.Do(func() {
		if _, err := New().Read(ctx, flannelQueries(unflannel.IP)); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
}

// A kernel with IPv6 switched off may list its tables, but has no socket to ask for
// them (seen on Linux 5.10 with ipv6.disable=1 and the module ip6table_nat loaded).
func TestFamilyOff(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	for _, family := range []unflannel.Family{unflannel.IP, unflannel.IP6} {
		ns.Restore("legacy", string(family), "*nat\nCOMMIT\n*filter\nCOMMIT\n")
	}
	b := New()
	b.kernel = func(ctx context.Context, family unflannel.Family, name string) (*table, error) {
		if family == unflannel.IP6 {
			return nil, fmt.Errorf("open socket: %w", unix.EAFNOSUPPORT)
		}
		return kernelTable(ctx, family, name)
	}
	ns.Do(func() {
		s, err := b.Read(t.Context(), append(flannelQueries(unflannel.IP), flannelQueries(unflannel.IP6)...))
		if err != nil || !slices.Equal(s.Present, []unflannel.Family{unflannel.IP}) || len(s.Tables) != 2 {
			t.Errorf("families %v, %d tables, %v", s.Present, len(s.Tables), err)
		}
	})
}

// Where the kernel does not show its tables and there is no program: unknown.
func TestTextWithoutPrograms(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	ns.Restore("legacy", "ip", readFile(t, "testdata/everything.v4.save"))
	b := textBackend()
	b.path = []string{t.TempDir()}
	ns.Do(func() {
		_, err := b.Read(t.Context(), flannelQueries(unflannel.IP)[:1])
		checkFailure(t, err, []string{"read rules in table ip nat (legacy): ", "32-bit", "install iptables"})
	})
}
