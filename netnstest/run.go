package netnstest

import (
	"os/exec"
	"strings"
)

// Run runs a program inside the namespace and waits for it. The error is that of
// [exec.Cmd.Run].
func (ns *NS) Run(stdin, name string, arg ...string) (stdout, stderr string, err error) {
	ns.t.Helper()
	var out, errOut strings.Builder
	cmd := exec.Command(name, arg...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Stdout = &out
	cmd.Stderr = &errOut
	if err = ns.Start(cmd); err == nil {
		err = cmd.Wait()
	}
	return out.String(), errOut.String(), err
}

// MustRun is [NS.Run] for programs that have to succeed: it returns the standard
// output, and fails the test with what the program says if it does not.
func (ns *NS) MustRun(stdin, name string, arg ...string) string {
	ns.t.Helper()
	stdout, stderr, err := ns.Run(stdin, name, arg...)
	if err != nil {
		ns.t.Fatalf("run %s: %v\n%s%s", strings.Join(append([]string{name}, arg...), " "), err, stderr, stdout)
	}
	return stdout
}

// Start starts a command inside the namespace. The caller waits for it as for
// any other; at the test's end it is killed. SysProcAttr.Pdeathsig is of no use
// here: it would come at the end of a thread that Start borrows.
func (ns *NS) Start(cmd *exec.Cmd) error {
	ns.t.Helper()
	var err error
	// A program is born in the namespace of the thread that starts it.
	ns.Do(func() { err = cmd.Start() })
	if err != nil {
		return err
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.started = append(ns.started, cmd)
	return nil
}
