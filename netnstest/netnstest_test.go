package netnstest

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { Main(m) }

func inode(t testing.TB, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func TestIsolated(t *testing.T) {
	t.Parallel()
	a, b := New(t), New(t)
	own := inode(t, "/proc/self/ns/net")
	ia, ib := inode(t, a.Path), inode(t, b.Path)
	if ia == ib || ia == own || ib == own {
		t.Fatalf("namespaces %d and %d, the process's %d: want three", ia, ib, own)
	}
	a.LoadNFT("table inet mine {\n}\n")
	if d := a.Dump(); len(d) != 1 || d[0].Key != "table inet mine handle 1" {
		t.Errorf("dump where the table was loaded:\n%s", d)
	}
	if d := b.Dump(); len(d) != 0 {
		t.Errorf("dump of the other namespace:\n%s", d)
	}
	// What else programs may do with a path.
	out := b.MustRun("", "nsenter", "--net="+a.Path, "nft", "list", "tables")
	if out != "table inet mine\n" {
		t.Errorf("tables by way of the path: %q", out)
	}
}

func TestLoopback(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		New(t).Do(func() {
			l, err := net.Listen("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
		})
	}
}

// A process in the namespace, and one that it left behind, are gone with it.
func TestRemoved(t *testing.T) {
	t.Parallel()
	var cmd *exec.Cmd
	var pidfd int
	t.Run("inner", func(t *testing.T) {
		ns := New(t)
		out, in := io.Pipe()
		cmd = exec.Command("sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!; exec sleep 1000")
		cmd.Stdout = in
		if err := ns.Start(cmd); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 32)
		n, err := out.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		pid := 0
		for _, c := range strings.TrimSpace(string(b[:n])) {
			pid = 10*pid + int(c-'0')
		}
		if pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
			t.Fatal(err)
		}
	})
	if pidfd > 0 {
		defer unix.Close(pidfd)
		// Readable when the process has ended.
		fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, 0); n != 1 || err != nil {
			t.Errorf("the orphan is alive: poll: %d, %v", n, err)
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the started command ended with %v, want SIGKILL", err)
	}
}

// Not parallel, so that no other test has threads in namespaces on purpose.
func TestThreadsStayHome(t *testing.T) {
	own := inode(t, "/proc/self/ns/net")
	ns := New(t)
	in := inode(t, ns.Path)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			ns.Do(func() {
				if got := inode(t, threadNS); got != in {
					t.Errorf("inside: namespace %d, want %d", got, in)
				}
				if unix.Gettid() == unix.Getpid() {
					t.Error("on the main thread")
				}
				switch i % 4 {
				case 1:
					runtime.Gosched()
				case 2:
					// More locks than unlocks: the thread must not be used again,
					// or be home if it is.
					runtime.LockOSThread()
				case 3:
					// A goroutine that is started here does not run here.
					done := make(chan uint64)
					go func() { done <- inode(t, threadNS) }()
					if got := <-done; got != own {
						t.Errorf("goroutine of a function inside: namespace %d, want %d", got, own)
					}
				}
			})
			if got := inode(t, threadNS); got != own {
				t.Errorf("after: namespace %d, want %d", got, own)
			}
		})
	}
	wg.Wait()
	// A thread that does not find back takes a moment to end.
	deadline := time.Now().Add(5 * time.Second)
	for len(strayed(t, own)) > 0 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if s := strayed(t, own); len(s) > 0 {
		t.Errorf("threads in other namespaces: %v", s)
	}
}

// strayed returns this process's threads in other namespaces than the given one.
func strayed(t *testing.T, own uint64) (threads []string) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(tasks) == 0 {
		t.Fatalf("threads: %v, %v", tasks, err)
	}
	for _, task := range tasks {
		var st unix.Stat_t
		if err := unix.Stat(task, &st); err == nil && st.Ino != own {
			threads = append(threads, task)
		}
	}
	return threads
}

// If the way back is barred, the thread must end and not be used again.
func TestLostThreadDies(t *testing.T) {
	own := inode(t, "/proc/self/ns/net")
	tid := 0
	o := onThread(func() error { return unix.Unshare(unix.CLONE_NEWNET) }, func() {
		tid = unix.Gettid()
		// Without a right to it, setns fails; capabilities are the thread's.
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&hdr, &none[0]); err != nil {
			t.Error(err)
		}
	})
	if o.err != nil || !o.returned {
		t.Fatalf("outcome: %+v", o)
	}
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if unix.Gettid() == tid {
				t.Errorf("thread %d is used again", tid)
			}
			if got := inode(t, threadNS); got != own {
				t.Errorf("namespace %d, want %d", got, own)
			}
		})
	}
	wg.Wait()
}

func TestDoPanic(t *testing.T) {
	t.Parallel()
	ns := New(t)
	want := errors.New("out of it")
	defer func() {
		if got := recover(); got != want {
			t.Errorf("recovered %v, want %v", got, want)
		}
	}()
	ns.Do(func() { panic(want) })
	t.Error("the panic did not arrive")
}

func TestDoGoexit(t *testing.T) {
	t.Parallel()
	ns := New(t)
	ended := make(chan bool)
	go func() {
		defer close(ended)
		ns.Do(runtime.Goexit)
		ended <- true
	}()
	if <-ended {
		t.Error("the caller went on")
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	ns := New(t)
	stdout, stderr, err := ns.Run("in\n", "sh", "-c", "cat; echo err >&2; exit 3")
	var exit *exec.ExitError
	if stdout != "in\n" || stderr != "err\n" || !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("stdout %q, stderr %q, error %v", stdout, stderr, err)
	}
	if _, _, err := ns.Run("", "/does/not/exist"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent program: %v", err)
	}
	got := ns.MustRun("", "readlink", "/proc/self/ns/net")
	if want, err := os.Readlink(ns.Path); err != nil || strings.TrimSpace(got) != want {
		t.Errorf("the program ran in %q, want %q (%v)", got, want, err)
	}
}

// failure is a test that records that it failed.
type failure struct {
	testing.TB
	text string
}

func (f *failure) Helper() {}
func (f *failure) Fatalf(format string, args ...any) {
	var s []string
	for _, a := range args {
		if e, ok := a.(error); ok {
			a = e.Error()
		}
		if a, ok := a.(string); ok {
			s = append(s, a)
		}
	}
	f.text = strings.Join(s, "\n")
	runtime.Goexit()
}

func TestLoadersTellWhatIsWrong(t *testing.T) {
	t.Parallel()
	ns := New(t)
	for name, tt := range map[string]struct {
		load func(*NS)
		want string
	}{
		"nft":             {func(ns *NS) { ns.LoadNFT("tabel ip x {\n}\n") }, "syntax error"},
		"restore nft":     {func(ns *NS) { ns.Restore("nft", "ip", "*nat\n-A nowhere -j ACCEPT\nCOMMIT\n") }, "line 2 failed"},
		"restore legacy":  {func(ns *NS) { ns.Restore("legacy", "ip6", "*nat\n-X nowhere\nCOMMIT\n") }, "line"},
		"unknown variant": {func(ns *NS) { ns.Restore("ipset", "ip", "") }, "ipset"},
		"unknown family":  {func(ns *NS) { ns.Restore("nft", "inet", "") }, "inet"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &failure{TB: t}
			failing := &NS{Path: ns.Path, t: f, file: ns.file}
			done := make(chan struct{})
			go func() {
				defer close(done)
				tt.load(failing)
			}()
			<-done
			if !strings.Contains(f.text, tt.want) {
				t.Errorf("failed with %q, want %q in it", f.text, tt.want)
			}
		})
	}
}
