package netnstest

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// threadNS is the calling thread's network namespace. /proc/self would be the
// main thread's.
const threadNS = "/proc/thread-self/ns/net"

// outcome is how a function ended that ran on another goroutine.
type outcome struct {
	err      error // why it was not run
	returned bool  // neither a panic nor runtime.Goexit ended it
	panicked any
	stack    []byte
}

// onThread runs enter, which takes the thread to another network namespace, and
// then f, both on a thread that runs nothing else meanwhile. The thread is back
// in its own namespace before onThread returns, or never runs Go code again.
func onThread(enter func() error, f func()) outcome {
	done := make(chan outcome, 1)
	go func() {
		runtime.LockOSThread()
		// The main thread stands for the process: /proc/self and /proc/net show
		// its namespace to everybody. While this goroutine holds it, another one
		// gets another thread.
		if unix.Gettid() == unix.Getpid() {
			done <- onThread(enter, f)
			runtime.UnlockOSThread()
			return
		}

		var o outcome
		defer func() { done <- o }()
		own, err := os.Open(threadNS)
		if err != nil {
			o.err = err
			runtime.UnlockOSThread()
			return
		}
		defer own.Close()
		defer func() {
			// A goroutine that ends locked takes its thread with it: that is right
			// for a thread that does not find back.
			if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err == nil {
				runtime.UnlockOSThread()
			}
		}()
		if o.err = enter(); o.err != nil {
			return
		}
		defer func() {
			// Nil if f returned, and if runtime.Goexit ended it.
			if o.panicked = recover(); o.panicked != nil {
				o.stack = debug.Stack()
			}
		}()
		f()
		o.returned = true
	}()
	return <-done
}

// finish ends the calling goroutine as f ended its own.
func (o outcome) finish(log func(string)) {
	switch {
	case o.panicked != nil:
		// The stack that the panic is about to print is the caller's.
		log(fmt.Sprintf("panic in a network namespace: %v\n%s", o.panicked, o.stack))
		panic(o.panicked)
	case o.err == nil && !o.returned:
		runtime.Goexit()
	}
}
