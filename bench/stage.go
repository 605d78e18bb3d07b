package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
)

// stage is what a test is elsewhere: it holds the namespaces of one size, and ends
// what does not work.
type stage struct {
	err      error
	cleanups []func()
}

// run runs f to its end, or to the first Fatalf, and then everything that was given
// to Cleanup. It returns the first error.
func (s *stage) run(f func()) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, cleanup := range slices.Backward(s.cleanups) {
				cleanup()
			}
		}()
		f()
	}()
	<-done
	return s.err
}

func (s *stage) Helper()          {}
func (s *stage) Log(args ...any)  { fmt.Fprintln(os.Stderr, args...) }
func (s *stage) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *stage) Errorf(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

func (s *stage) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	runtime.Goexit()
}
