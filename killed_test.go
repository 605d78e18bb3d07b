package unflannel_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/netnstest"
)

// long reports whether the tests should try everything instead of a sample.
func long() bool { return os.Getenv("UNFLANNEL_LONG") != "" }

// build builds the program as it is released, with more environment variables.
func build(t *testing.T, env ...string) string {
	t.Helper()
	netnstest.NeedKernel(t)
	program := filepath.Join(t.TempDir(), "unflannel")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./cmd/unflannel")
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// ended is how a traced program ended.
type ended struct {
	status    unix.WaitStatus
	steps     int    // its system calls
	peak      int    // its greatest resident memory, in KiB
	out, errs string // what it printed
}

// trace runs a program in the namespace and waits for it and for all that it
// started. If step is given, it is called before each of its system calls with the
// process and the number of the call. Resource usage would include that of this process, as
// the kernel counts; a tracer can look at the program's own at its end.
func (n node) trace(step func(pid, step int), program string, args ...string) (e ended) {
	n.t.Helper()
	var err error
	ownThread(func() {
		var ns *os.File
		if ns, err = os.Open(n.Path); err != nil {
			return
		}
		defer ns.Close()
		if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err == nil {
			e, err = trace(n.t.TempDir(), step, program, args...)
		}
	})
	if err != nil {
		n.t.Fatalf("trace %s: %v", program, err)
	}
	return e
}

func trace(dir string, step func(pid, step int), program string, args ...string) (e ended, err error) {
	var output [2]*os.File
	for i := range output {
		if output[i], err = os.Create(filepath.Join(dir, fmt.Sprint(i))); err != nil {
			return e, err
		}
		defer output[i].Close()
	}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = output[0], output[1] // files: nothing has to be copied
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return e, err
	}
	pid := cmd.Process.Pid
	defer cmd.Process.Release() // waited for below

	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK |
		unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_TRACEEXIT | unix.PTRACE_O_EXITKILL
	resume := unix.PtraceCont
	if step != nil {
		resume = unix.PtraceSyscall
	}
	type thread struct{ own, inCall bool }
	threads := map[int]*thread{}
	for {
		var ws unix.WaitStatus
		tid, err := unix.Wait4(-1, &ws, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ECHILD:
			var texts [2]string
			for i, f := range output {
				b, err := os.ReadFile(f.Name())
				if err != nil {
					return e, err
				}
				texts[i] = string(b)
			}
			e.out, e.errs = texts[0], texts[1]
			return e, nil
		case err != nil:
			return e, err
		}
		if !ws.Stopped() {
			if tid == pid {
				e.status = ws
			}
			continue
		}
		th, first := threads[tid], false
		if th == nil {
			_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", pid, tid))
			th, first = &thread{own: err == nil}, true
			threads[tid] = th
		}
		signal := int(ws.StopSignal())
		switch {
		case first && tid == pid: // at its exec; inherited by all that it starts
			if err := unix.PtraceSetOptions(pid, options); err != nil {
				return e, err
			}
			signal = 0
		case first && ws.StopSignal() == unix.SIGSTOP: // a new thread or process
			signal = 0
		case ws.StopSignal() == unix.SIGTRAP|0x80:
			if th.inCall = !th.inCall; th.own && th.inCall {
				e.steps++
				step(pid, e.steps)
			}
			signal = 0
		case ws.StopSignal() == unix.SIGTRAP:
			if tid == pid && ws.TrapCause() == unix.PTRACE_EVENT_EXIT {
				e.peak = peak(pid)
			}
			signal = 0
		}
		if err := resume(tid, signal); err != nil && !errors.Is(err, unix.ESRCH) { // killed meanwhile
			return e, err
		}
	}
}

// peak is the greatest resident memory that a process ever had, in KiB.
func peak(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kib, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, _ := strconv.Atoi(kib)
	return n
}

// ownThread runs f on a thread that has no children, so that waiting for all of
// the thread's children waits for nobody else's, and that ends with f.
func ownThread(f func()) {
	var done sync.WaitGroup
	done.Go(func() {
		runtime.LockOSThread() // never unlocked
		children, err := os.ReadFile("/proc/thread-self/children")
		if unix.Gettid() == unix.Getpid() || err != nil || len(children) > 0 {
			ownThread(f) // on another, as this one is taken
			return
		}
		f()
	})
	done.Wait()
}

// leftoverNode is a node with Flannel's leftovers and other rules.
func leftoverNode(t *testing.T, backend string) (n node, restore func()) {
	n = newNode(t)
	restore = func() {
		for family, file := range map[string]string{"ip": "v4", "ip6": "v6"} {
			n.Restore(backend, family, ruleset(t, "flannel-v0.28.9-iptables-busy-node."+file+".save"))
		}
	}
	restore()
	return n, restore
}

func ruleset(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/rulesets/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// half returns what a dump is of, if the dump is neither as before nor done: in
// nf_tables all must be the one or the other, in legacy each table.
func half(before, after netnstest.Dump) string {
	before, after = before.WithoutLegacyPolicyCounters(), after.WithoutLegacyPolicyCounters()
	part := func(l netnstest.Line) string {
		if f := strings.Fields(l.Key); f[0] == "legacy" {
			return strings.Join(f[:3], " ")
		}
		return "nf_tables"
	}
	var parts []string
	for _, l := range before {
		if !slices.Contains(parts, part(l)) {
			parts = append(parts, part(l))
		}
	}
	for _, p := range parts {
		others := func(l netnstest.Line) bool { return part(l) != p }
		was, is := before.Without(others), after.Without(others)
		if netnstest.Diff(was, is) != "" {
			if diff := netnstest.Diff(was.Without(ofOwnChains), is); diff != "" {
				return p + ":\n" + diff
			}
		}
	}
	return ""
}

// TestKilledAtSystemCalls kills the program at each of its system calls, or at
// some, spread over the run, where UNFLANNEL_LONG is not set.
func TestKilledAtSystemCalls(t *testing.T) {
	t.Parallel()
	program := build(t)
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			args := []string{"clean", "--termination-log=", "--backend", backend}
			n, _ := leftoverNode(t, backend)
			last := n.trace(func(int, int) {}, program, args...).steps
			stride := 1
			if !long() {
				stride = last / 40
			}
			testKilled(t, backend, stride, func(n node, at int) bool {
				return n.trace(func(pid, step int) {
					if step == at {
						unix.Kill(pid, unix.SIGKILL)
					}
				}, program, args...).status.Signaled()
			})
		})
	}
}

// TestKilledAfterTimes kills the program after times that grow in small steps, or
// in larger ones, where UNFLANNEL_LONG is not set.
func TestKilledAfterTimes(t *testing.T) {
	t.Parallel()
	program := build(t)
	for backend, step := range map[string]time.Duration{"nft": 10 * time.Microsecond, "legacy": time.Millisecond} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			stride := 1
			if !long() {
				stride = 7
			}
			testKilled(t, backend, stride, func(n node, steps int) bool {
				return n.trace(func(pid, call int) {
					if call == 1 {
						time.AfterFunc(time.Duration(steps)*step, func() { unix.Kill(pid, unix.SIGKILL) })
					}
				}, program, "clean", "--termination-log=", "--backend", backend).status.Signaled()
			})
		})
	}
}

// testKilled runs clean again and again and kills it later each time, until it
// ends by itself.
func testKilled(t *testing.T, backend string, stride int, kill func(n node, at int) (killed bool)) {
	n, restore := leftoverNode(t, backend)
	kills, changed := 0, 0
	for at := 1; ; at += stride {
		before := n.Dump()
		killed := kill(n, at)
		after := n.Dump()
		if h := half(before, after); h != "" {
			t.Fatalf("killed at %d: neither as before nor done: %s", at, h)
		}
		same := netnstest.Diff(before, after) == ""
		if !same || !killed {
			next := n.clean(unflannel.Options{})
			if next.Outcome != unflannel.NothingLeft {
				t.Fatalf("killed at %d: the next run says %s", at, next.Summary)
			}
			restore()
		}
		if !killed {
			break
		}
		kills++
		if !same {
			changed++
		}
	}
	t.Logf("killed %d times, %d of them with something removed", kills, changed)
}
