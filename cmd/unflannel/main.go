// Command unflannel finds what Flannel left in a node's firewall and removes it.
//
// It runs for milliseconds on one thread: the runtime need not ask the container for
// its share of processors, again and again.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"
)

// The exit statuses.
const (
	exitNothingLeft = 0
	exitLeft        = 1
	exitFailed      = 2
)

func main() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	p := program{name: filepath.Base(os.Args[0]), stdout: os.Stdout, stderr: os.Stderr}
	os.Exit(p.main(untilSignal(), os.Args[1:]))
}

// signalDelay is how long a signal still ends the program at once, which leaves
// nothing half done in the kernel. Listening to signals costs a hundred system calls,
// a fifth of a whole run, and most runs are over sooner.
const signalDelay = 20 * time.Millisecond

// untilSignal returns a context that ends with the first SIGINT or SIGTERM, so that
// the program can say how far it came. A second one ends the program.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(signalDelay, func() {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
		s := <-signals
		signal.Reset()
		cancel(fmt.Errorf("%w by the signal %v", context.Canceled, s))
	})
	return ctx
}

// memoryLimit is where the garbage collector begins to save memory rather than time:
// only a chain of Flannel's with tens of thousands of rules comes near it.
const memoryLimit = 64 << 20

// program is one call of the command.
type program struct {
	name           string // by which it was called: it may be installed under another
	stdout, stderr io.Writer
}

func (p program) main(ctx context.Context, args []string) int {
	status, err := p.verb(ctx, args)
	if err != nil {
		fmt.Fprintf(p.stderr, "%s: %v\n", p.name, err)
	}
	return status
}

func (p program) verb(ctx context.Context, args []string) (int, error) {
	if len(args) == 0 {
		return exitFailed, fmt.Errorf("no verb given: use check, clean, version or help (%s help)", p.name)
	}
	verb, args := args[0], args[1:]
	switch verb {
	case "check", "clean":
		s := settings{verb: verb}
		err := s.parse(args)
		if errors.Is(err, errHelp) {
			return exitNothingLeft, p.help(verb)
		}
		if err == nil {
			err = s.resolve()
		}
		if err != nil {
			return exitFailed, fmt.Errorf("%w (%s help %s)", err, p.name, verb)
		}
		return p.run(ctx, s)
	case "version", "--version":
		_, err := fmt.Fprintln(p.stdout, versionLine(p.name))
		return exitNothingLeft, err
	case "help", "--help", "-h":
		topic := ""
		if len(args) > 0 {
			topic = args[0]
		}
		if err := p.help(topic); err != nil {
			return exitFailed, err
		}
		return exitNothingLeft, nil
	}
	return exitFailed, fmt.Errorf("%s (%s help)", unknown("verb", verb, verbs), p.name)
}
