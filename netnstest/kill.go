package netnstest

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// killMembers kills the processes whose network namespace is the given one, and
// returns when none is left. It finds them by the namespace and not by their
// parents: programs start others, and these outlive them.
func killMembers(ns *os.File) error {
	want, err := ns.Stat()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		left, err := killOnce(want)
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v do not die", left)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// killOnce kills the processes that it finds in the namespace and returns them.
func killOnce(ns os.FileInfo) (found []int, err error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		// Held before it is looked at: else the number could be another process's
		// by the time of the signal.
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // gone
		}
		// A process that has died, and one of another user, show no namespace.
		if is, err := os.Stat("/proc/" + name + "/ns/net"); err == nil && os.SameFile(is, ns) {
			found = append(found, pid)
			unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		unix.Close(fd)
	}
	return found, nil
}
