// Command launch runs a program and writes what it cost to a file:
//
//	launch FILE PROGRAM ARGUMENT...
//
// The costs are the time from its start to its end in nanoseconds, the CPU time of
// the program and all its descendants in microseconds, and the memory of the largest
// of them in KiB. The kernel carries the memory of a program's parent over into that
// figure, which is why the parent is this small one.
package main

import (
	"os"
	"strconv"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) < 3 {
		fail("usage: launch FILE PROGRAM ARGUMENT...")
	}
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}}
	begin := time.Now()
	pid, err := syscall.ForkExec(os.Args[2], os.Args[2:], attr)
	if err != nil {
		fail(os.Args[2] + ": " + err.Error())
	}
	var status syscall.WaitStatus
	var usage syscall.Rusage
	for {
		_, err = syscall.Wait4(pid, &status, 0, &usage)
		if err != syscall.EINTR {
			break
		}
	}
	wall := time.Since(begin)
	if err != nil {
		fail(err.Error())
	}
	cpu := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	line := strconv.FormatInt(wall.Nanoseconds(), 10) + " " +
		strconv.FormatInt(cpu.Microseconds(), 10) + " " + strconv.FormatInt(int64(usage.Maxrss), 10) + "\n"
	if err := os.WriteFile(os.Args[1], []byte(line), 0o600); err != nil {
		fail(err.Error())
	}
	if status.Signaled() {
		fail("killed by " + status.Signal().String())
	}
	os.Exit(status.ExitStatus())
}

func fail(message string) {
	os.Stderr.WriteString("launch: " + message + "\n")
	os.Exit(125)
}
