package legacy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	maxOutput = 64 << 20 // bytes of output that are read; 200,000 rules make some 30 MB
	maxErrors = 4 << 10  // bytes of error messages that are kept

	// extraTime is what a program may take beyond its wait for the lock.
	extraTime = 30 * time.Second

	// graceTime is what a program may still take when the context has ended.
	graceTime = 2 * time.Second
)

// program is how to start one of iptables' programs.
type program struct {
	path string   // inside root
	root string   // where to chroot first; "" for not at all
	args []string // what a multi-call binary is told to be
}

// String returns the program as a user would type it.
func (p program) String() string {
	s := strings.Join(append([]string{p.path}, p.args...), " ")
	if p.root != "" {
		s += " in " + p.root
	}
	return s
}

// programError is a program that did not end well.
type programError struct {
	program program
	started bool
	status  int    // exit status; -1 if it did not come to one
	stderr  string // what it wrote there, or the beginning
	err     error
}

// Error returns the program, what became of it, and the first line it wrote.
func (e *programError) Error() string {
	s := fmt.Sprintf("%s: %v", e.program, e.err)
	if line := firstLine(e.stderr); line != "" {
		s += ": " + line
	}
	return s
}

func (e *programError) Unwrap() error { return e.err }

// failedProgram returns the programError that err wraps, or nil.
func failedProgram(err error) *programError {
	var e *programError
	errors.As(err, &e)
	return e
}

var errOutput = fmt.Errorf("more than %d MiB of output", maxOutput>>20)

// run runs a program to its end and returns its output; errors are of type
// *programError. The program starts in the network namespace of the calling
// thread, as a child does.
//
// When ctx ends, the program is killed, but only after a grace: nearly always it
// is about to end, and then it is known whether its change, which is atomic in the
// kernel, was made. It is also killed when it takes longer than any lock explains.
func (b *Backend) run(ctx context.Context, p program, stdin []byte, args ...string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, &programError{program: p, status: -1, err: err}
	}
	limit, grace := b.limit, b.grace
	if limit == 0 {
		limit = b.lockWait() + extraTime
	}
	if grace == 0 {
		grace = graceTime
	}
	life, kill := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer kill()
	defer context.AfterFunc(ctx, func() {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-timer.C:
			kill()
		case <-life.Done():
		}
	})()

	stdout, stderr := limited{max: maxOutput, full: errOutput}, limited{max: maxErrors}
	cmd := exec.CommandContext(life, p.path, append(p.args[:len(p.args):len(p.args)], args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	cmd.Env = environment()
	cmd.Dir = "/"
	// A group of its own, so that Ctrl-C in a terminal does not reach it, and what
	// it has started dies with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Chroot: p.root}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // for pipes that somebody else still holds

	b.log().DebugContext(ctx, "starting program", "backend", b.Name(), "program", p.String(), "args", args)
	err := cmd.Run()
	if err == nil {
		return stdout.data.Bytes(), nil
	}
	e := &programError{program: p, started: cmd.Process != nil, status: -1, stderr: stderr.data.String(), err: err}
	var exit *exec.ExitError
	switch {
	case stdout.overflowed:
		e.err = errOutput
	case ctx.Err() != nil && life.Err() != nil:
		e.err = ctx.Err()
	case life.Err() != nil:
		e.err = fmt.Errorf("killed after %v without an end: %w", limit, context.DeadlineExceeded)
	case errors.As(err, &exit):
		e.status = exit.ExitCode()
	}
	return nil, e
}

// environment is all that a program gets to see: messages in English, the
// directories for what it starts itself (modprobe), and the lock, if it is
// another than usual.
func environment() []string {
	env := []string{"PATH=" + strings.Join(systemPath, ":"), "LC_ALL=C"}
	if lock, ok := os.LookupEnv(lockVariable); ok {
		env = append(env, lockVariable+"="+lock)
	}
	return env
}

// lockWait is LockWait as iptables takes it: in whole seconds, at least one.
func (b *Backend) lockWait() time.Duration {
	return max(b.LockWait.Round(time.Second), time.Second)
}

// limited keeps the first max bytes written to it. What comes after is an error
// to the writer, or, if there is none in full, dropped.
type limited struct {
	data       bytes.Buffer
	max        int
	full       error
	overflowed bool
}

func (l *limited) Write(p []byte) (int, error) {
	room := l.max - l.data.Len()
	if len(p) <= room {
		return l.data.Write(p)
	}
	l.data.Write(p[:room])
	l.overflowed = true
	if l.full != nil {
		return room, l.full
	}
	return len(p), nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(line)
}
