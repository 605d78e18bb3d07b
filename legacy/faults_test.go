package legacy

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/netnstest"
)

const (
	realSave    = "exec iptables-legacy-save \"$@\"\n"
	realRestore = "exec iptables-legacy-restore \"$@\"\n"
)

// fakes writes shell scripts in the place of the two programs and returns a
// backend that uses them. An empty script is a program that is not there.
func fakes(t *testing.T, save, restore string) *Backend {
	t.Helper()
	dir := t.TempDir()
	for name, script := range map[string]string{"iptables-legacy-save": save, "iptables-legacy-restore": restore} {
		if script != "" {
			writeProgram(t, filepath.Join(dir, name), "#!/bin/sh\n[ \"$1\" = --version ] && echo 'iptables v1.8.9 (legacy)' && exit\n"+script)
		}
	}
	b := New()
	b.path = []string{dir}
	b.LockWait = time.Second
	return b
}

// writeProgram writes an executable file. It goes through a child: a descriptor
// open for writing that another test's fork inherits would make exec fail (ETXTBSY).
func writeProgram(t *testing.T, path, text string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", `cat >"$1" && chmod 755 "$1"`, "sh", path)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("write %s: %v\n%s", path, err, out)
	}
}

// loaded is a namespace with Flannel's chain in nat, a snapshot of it, and what to
// remove.
func loaded(t *testing.T) (*netnstest.NS, *unflannel.Snapshot, []unflannel.Removal) {
	t.Helper()
	ns := netnstest.New(t)
	ns.Restore("legacy", "ip", readFile(t, "testdata/everything.v4.save"))
	s := read(t, ns, New(), flannelQueries(unflannel.IP)[0])
	return ns, s, dropChains(s, "FLANNEL-POSTRTG")
}

// Whatever the programs do but what they should, the ruleset stays as it is, and
// the message names the table, the program and what it said.
func TestProgramsFail(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, save, restore string
		change              func(*testing.T, *Backend)
		is                  error    // what the error wraps
		conflict            bool     // that it wraps ErrConflict
		says                []string // what is in its message
	}{
		{
			name: "restore exits 1, a line failed", restore: "echo 'iptables-restore: line 2 failed' >&2; exit 1",
			conflict: true, says: []string{"iptables-legacy-restore: exit status 1: iptables-restore: line 2 failed"},
		},
		{
			name: "restore exits 4, no lock file", restore: "echo \"Fatal: can't open lock file /run/xtables.lock: Read-only file system\" >&2; exit 4",
			says: []string{"exit status 4: Fatal: can't open lock file", "make the directory of the lock, /run, writable"},
		},
		{
			name: "restore exits 2", restore: "echo \"iptables-restore v1.8.9 (legacy): Couldn't load target \\`X'\" >&2; echo more >&2; exit 2",
			says: []string{"exit status 2: iptables-restore v1.8.9 (legacy): Couldn't load target `X'"},
		},
		{
			name: "restore exits 3", restore: "echo \"can't initialize table: Table does not exist\" >&2; exit 3",
			conflict: true, says: []string{"exit status 3: can't initialize table"},
		},
		{
			name: "restore exits 4, lock", restore: "echo 'Another app is currently holding the xtables lock; still 0s 0us time ahead to have a chance to grab the lock...' >&2; exit 4",
			is: errLocked, says: []string{"the xtables lock is held by another program", "exit status 4: Another app", "raise --lock-wait"},
		},
		{
			name: "restore exits 4, not root", restore: "echo 'Fatal: iptables: Permission denied (you must be root)' >&2; exit 4",
			is: fs.ErrPermission, says: []string{"exit status 4", "CAP_NET_RAW"},
		},
		{
			name: "restore exits 111 in silence", restore: "exit 111",
			says: []string{"iptables-legacy-restore: exit status 111"},
		},
		{
			name: "restore dies", restore: "kill -SEGV $$",
			says: []string{"iptables-legacy-restore: signal: segmentation fault"},
		},
		{
			name: "restore hangs", restore: "sleep 1000", change: func(_ *testing.T, b *Backend) { b.limit = 300 * time.Millisecond },
			is: context.DeadlineExceeded, says: []string{"iptables-legacy-restore: killed after 300ms"},
		},
		{
			name: "restore hangs in a child", restore: "sleep 1000 & wait", change: func(_ *testing.T, b *Backend) { b.limit = 300 * time.Millisecond },
			is: context.DeadlineExceeded, says: []string{"iptables-legacy-restore: killed after 300ms"},
		},
		{
			name: "restore complains without end", restore: "yes complaint | head -c 3000000 >&2; exit 2",
			says: []string{"exit status 2: complaint"},
		},
		{
			name: "restore talks without end", restore: "yes",
			is: errOutput, says: []string{"more than 64 MiB of output"},
		},
		{
			name: "save fails", save: "echo 'Cannot initialize: Permission denied (you must be root)' >&2; exit 1",
			says: []string{"iptables-legacy-save: exit status 1: Cannot initialize", "CAP_NET_RAW"},
		},
		{
			name: "save hangs", save: "sleep 1000", change: func(_ *testing.T, b *Backend) { b.limit = 300 * time.Millisecond },
			is: context.DeadlineExceeded, says: []string{"iptables-legacy-save: killed after 300ms"},
		},
		{
			name: "save talks without end", save: "yes",
			is: errOutput, says: []string{"iptables-legacy-save: more than 64 MiB of output"},
		},
		{
			name: "save dies", save: "kill -9 $$",
			says: []string{"iptables-legacy-save: signal: killed"},
		},
		{
			name: "save says nothing", save: "exit 0",
			is: errNotUnderstood, says: []string{"it is not the table nat", "remove these rules by hand"},
		},
		{
			name: "save talks nonsense", save: "head -c 100000 /dev/urandom",
			is: errNotUnderstood, says: []string{"iptables-legacy-save: output is not understood, nothing was removed"},
		},
		{
			name: "save shows another table", save: "exec iptables-legacy-save -t filter",
			is: errNotUnderstood, says: []string{"it is not the table nat"},
		},
		{
			name: "save ends in the middle", save: "iptables-legacy-save -t nat | head -n 9",
			is: errNotUnderstood, says: []string{"has no end"},
		},
		{
			name: "save leaves rules out", save: "iptables-legacy-save -t nat | grep -v SNAT",
			is: errNotUnderstood, says: []string{"where the kernel counts"},
		},
		{
			name: "save shows rules in another order", save: "iptables-legacy-save -t nat | sed '/j FLANNEL-POSTRTG/{h;d};/j SNAT/{p;x}'",
			is: errNotUnderstood, says: []string{"where the kernel has"},
		},
		{
			name: "save shows a rule otherwise", save: "iptables-legacy-save -t nat | sed 's/\"flanneld masq\" -j FLANNEL/\"other\" -j FLANNEL/'",
			is: errNotUnderstood, says: []string{`it has "-A POSTROUTING -m comment --comment other -j FLANNEL-POSTRTG" where the kernel has "-A POSTROUTING -m comment --comment \"flanneld masq\" -j FLANNEL-POSTRTG"`},
		},
		{
			name: "no programs", change: func(t *testing.T, b *Backend) { b.path = []string{t.TempDir()} },
			is: exec.ErrNotFound, says: []string{"iptables-legacy-save and iptables-legacy-restore: executable file not found", "install iptables", "--host-root"},
		},
		{
			name: "no restore", change: func(t *testing.T, b *Backend) { os.Remove(filepath.Join(b.path[0], "iptables-legacy-restore")) },
			is: exec.ErrNotFound,
		},
		{
			name: "not executable", change: func(t *testing.T, b *Backend) { os.Chmod(filepath.Join(b.path[0], "iptables-legacy-restore"), 0o644) },
			is: exec.ErrNotFound, says: []string{"iptables-legacy-restore: not an executable file"},
		},
		{
			name: "no program at all", change: func(t *testing.T, b *Backend) {
				writeProgram(t, filepath.Join(b.path[0], "iptables-legacy-save"), "\x7fELF, or not")
			},
			is: exec.ErrNotFound, says: []string{"exec format error"},
		},
		{
			name: "nf_tables in disguise", change: func(t *testing.T, b *Backend) {
				writeProgram(t, filepath.Join(b.path[0], "iptables-legacy-save"), "#!/bin/sh\necho 'iptables-save v1.8.9 (nf_tables)'")
			},
			is: exec.ErrNotFound, says: []string{"it is the nf_tables variant (iptables-save v1.8.9 (nf_tables))"},
		},
		{
			name: "restore alone is nf_tables in disguise", change: func(t *testing.T, b *Backend) {
				writeProgram(t, filepath.Join(b.path[0], "iptables-legacy-restore"), "#!/bin/sh\necho 'iptables-restore v1.8.9 (nf_tables)'")
			},
			is: exec.ErrNotFound, says: []string{"iptables-legacy-restore: it is the nf_tables variant"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.save == "" {
				test.save = realSave
			}
			if test.restore == "" {
				test.restore = realRestore
			}
			b := fakes(t, test.save, test.restore)
			if test.change != nil {
				test.change(t, b)
			}
			ns, s, removals := loaded(t)
			before := ns.Dump()
			err := remove(ns, context.Background(), b, s, removals)
			checkFailure(t, err, append(test.says, "remove rules FLANNEL-POSTRTG in table ip nat (legacy): "))
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("error %v is not %v", err, test.is)
			}
			if errors.Is(err, unflannel.ErrConflict) != test.conflict {
				t.Errorf("error %v: conflict should be %t", err, test.conflict)
			}
			if d := netnstest.Diff(before, ns.Dump()); d != "" {
				t.Error(d)
			}
		})
	}
}

// checkFailure checks that err is an *unflannel.Error of one line that says some
// things.
func checkFailure(t *testing.T, err error, says []string) {
	t.Helper()
	var e *unflannel.Error
	if !errors.As(err, &e) || e.Backend != "legacy" {
		t.Fatalf("error %v is no unflannel.Error of this backend", err)
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error\n%v\ndoes not say\n%s", err, text)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error is more than one line: %q", err)
	}
	if len(err.Error()) > 2000 {
		t.Errorf("error of %d bytes", len(err.Error()))
	}
}

// Nothing of a program that was killed goes on.
func TestKilledWithChildren(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	b := fakes(t, realSave, "sleep 1000 & echo $! >"+file+"; wait")
	b.limit = 500 * time.Millisecond
	ns, s, removals := loaded(t)
	if err := remove(ns, context.Background(), b, s, removals); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v is not that of a deadline", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(readFile(t, file)))
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d goes on", pid)
}

// Programs that cannot wait for the lock are told so in vain, then not any more.
func TestRestoreWithoutWait(t *testing.T) {
	t.Parallel()
	for name, complaint := range map[string]string{
		"1.6.0": "iptables-restore: unrecognized option '--wait=1'\nTry `iptables-restore -h' for more information.",
		"musl":  "iptables-restore: unrecognized option: wait=1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := fakes(t, realSave, `for a; do case $a in -w*|--wait*) echo "`+strings.ReplaceAll(complaint, "`", "\\`")+`" >&2; exit 2;; esac; done
`+realRestore)
			ns, s, removals := loaded(t)
			want := without(ns.Dump(), "FLANNEL-POSTRTG")
			if err := remove(ns, context.Background(), b, s, removals); err != nil {
				t.Fatal(err)
			}
			if d := netnstest.Diff(want, ns.Dump().WithoutLegacyPolicyCounters()); d != "" {
				t.Error(d)
			}
		})
	}
}

// The real program, while another one holds the lock. Not parallel: the lock, an
// own one for this test, is given by the environment.
func TestLocked(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "xtables.lock")
	ns, s, removals := loaded(t)
	t.Setenv("XTABLES_LOCKFILE", lock)
	f, err := os.Create(lock)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	b := New()
	b.LockWait = time.Second
	before := ns.Dump()
	err = remove(ns, context.Background(), b, s, removals)
	checkFailure(t, err, []string{"in table ip nat", "exit status 4", "raise --lock-wait"})
	if !errors.Is(err, errLocked) || errors.Is(err, unflannel.ErrConflict) {
		t.Errorf("error %v", err)
	}
	if d := netnstest.Diff(before, ns.Dump()); d != "" {
		t.Error(d)
	}

	// And when it is given back in time.
	b.LockWait = 10 * time.Second
	given := make(chan error)
	time.AfterFunc(300*time.Millisecond, func() { given <- unix.Flock(int(f.Fd()), unix.LOCK_UN) })
	err = remove(ns, context.Background(), b, s, removals)
	if err := errors.Join(err, <-given); err != nil {
		t.Error(err)
	}
}

// The real programs, without the capability that they need and this package does
// not, and with a lock that cannot be made.
func TestProgramsWithoutRights(t *testing.T) {
	t.Parallel()
	const without = "exec setpriv --bounding-set=-net_raw --inh-caps=-net_raw "
	for _, test := range []struct {
		name, save, restore string
		says                []string
	}{
		{"save without CAP_NET_RAW", without + "iptables-legacy-save \"$@\"", realRestore, []string{"iptables-legacy-save", "exit status", "CAP_NET_RAW"}},
		{"restore without CAP_NET_RAW", realSave, without + "iptables-legacy-restore \"$@\"", []string{"iptables-legacy-restore", "exit status", "CAP_NET_RAW"}},
		{"no directory for the lock", realSave, "XTABLES_LOCKFILE=/nowhere/lock " + realRestore, []string{"lock file /nowhere/lock", "XTABLES_LOCKFILE"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := fakes(t, test.save, test.restore)
			ns, s, removals := loaded(t)
			before := ns.Dump()
			err := remove(ns, context.Background(), b, s, removals)
			t.Log(err)
			checkFailure(t, err, test.says)
			if errors.Is(err, unflannel.ErrConflict) {
				t.Errorf("error %v is a conflict", err)
			}
			if d := netnstest.Diff(before, ns.Dump()); d != "" {
				t.Error(d)
			}
		})
	}
}

// When the context ends, the restore at work may end in a while and is killed
// after that; a further table is not begun.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, restore string
		grace         time.Duration
		removed       bool // the first table's
	}{
		{"restore ends in time", "sleep 0.5\n" + realRestore, time.Minute, true},
		{"restore goes on", "sleep 1000", 200 * time.Millisecond, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			begun := filepath.Join(t.TempDir(), "begun")
			b := fakes(t, realSave, "echo $$ >>"+begun+"\n"+test.restore)
			b.grace = test.grace
			ns := netnstest.New(t)
			ns.Restore("legacy", "ip", readFile(t, "testdata/everything.v4.save"))
			want := ns.Dump()
			if test.removed {
				want = without(want, "FLANNEL-POSTRTG")
			}
			s := read(t, ns, New(), flannelQueries(unflannel.IP)...)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			go func() {
				for range 1000 {
					if _, err := os.Stat(begun); err == nil {
						break
					}
					time.Sleep(5 * time.Millisecond)
				}
				cancel()
			}()
			err := remove(ns, ctx, b, s, dropChains(s, "FLANNEL-POSTRTG", "FLANNEL-FWD"))
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error %v is not that of the context", err)
			}
			if errors.Is(err, unflannel.ErrConflict) {
				t.Errorf("error %v blames another program", err)
			}
			if n := strings.Count(readFile(t, begun), "\n"); n != 1 {
				t.Errorf("%d restores", n)
			}
			if d := netnstest.Diff(want.WithoutLegacyPolicyCounters(), ns.Dump().WithoutLegacyPolicyCounters()); d != "" {
				t.Error(d)
			}
		})
	}
}
