package netnstest

import (
	"fmt"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"
)

// NS is a network namespace that lasts as long as its test. Its methods may be
// called from any goroutine; those that fail the test, only from the test's.
type NS struct {
	// Path is a file by which programs enter the namespace (nsenter --net=PATH,
	// podman --network ns:PATH). It is a descriptor of this process and
	// not a mount, so that a test that is killed leaves nothing behind.
	Path string

	t    TB
	file *os.File

	mu      sync.Mutex
	started []*exec.Cmd
}

// New makes a network namespace in which nothing but the loopback device exists,
// which is up. It fails the test if it cannot. At the test's end the processes
// that are still in the namespace are killed, and it goes.
func New(t TB) *NS {
	t.Helper()
	NeedKernel(t)
	ns := &NS{t: t}
	var err error
	o := onThread(func() error {
		return unix.Unshare(unix.CLONE_NEWNET)
	}, func() {
		if err = loopbackUp(); err == nil {
			ns.file, err = os.Open(threadNS)
		}
	})
	if o.err != nil {
		err = o.err
	}
	if err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	ns.Path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.file.Fd())
	t.Cleanup(ns.close)
	return ns
}

// Do runs f on a thread inside the namespace and returns when f is done. Sockets
// that f opens and programs that it starts belong to the namespace; goroutines
// that it starts do not run there. A panic of f goes on in the caller, and so
// does runtime.Goexit: f may call t.Fatal, and the test ends.
func (ns *NS) Do(f func()) {
	ns.t.Helper()
	o := onThread(func() error {
		return unix.Setns(int(ns.file.Fd()), unix.CLONE_NEWNET)
	}, f)
	if o.err != nil {
		ns.t.Fatalf("enter the network namespace: %v", o.err)
	}
	o.finish(func(s string) { ns.t.Log(s) })
}

// loopbackUp brings lo up; the kernel gives it its addresses then.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return nil
}

func (ns *NS) close() {
	ns.mu.Lock()
	for _, cmd := range ns.started {
		cmd.Process.Kill() // may have gone to another namespace
	}
	ns.mu.Unlock()
	if err := killMembers(ns.file); err != nil {
		ns.t.Errorf("kill the processes in the network namespace: %v", err)
	}
	ns.file.Close()
}
