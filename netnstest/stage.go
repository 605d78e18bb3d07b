package netnstest

import (
	"fmt"
	"io"
	"runtime"
	"slices"
)

// Stage is a TB for a program that is no test: it holds what New makes, and ends what
// does not work.
type Stage struct {
	Output io.Writer // of Log

	err      error
	cleanups []func()
}

var _ TB = (*Stage)(nil)

// Run runs f to its end, or to the first Fatalf, and then everything that was given
// to Cleanup. It returns the first error.
func (s *Stage) Run(f func()) error {
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

// Helper does nothing: no line of the source is reported.
func (s *Stage) Helper() {}

// Log writes a line to Output.
func (s *Stage) Log(args ...any) { fmt.Fprintln(s.Output, args...) }

// Cleanup has f called when what Run runs has ended, the last one first.
func (s *Stage) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// Errorf makes Run return this error, if it is the first.
func (s *Stage) Errorf(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// Fatalf is Errorf, and ends the calling goroutine.
func (s *Stage) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	runtime.Goexit()
}
