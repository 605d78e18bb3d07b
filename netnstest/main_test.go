package netnstest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const nobody = 65534

// A user who is not root gets the same results, by way of a user namespace.
func TestWithoutRoot(t *testing.T) {
	if !mapped(t, nobody) {
		t.Skip("these tests run in a user namespace already: every one of them is a test without root")
	}
	dir := publicDir(t)
	binary := filepath.Join(dir, "test")
	copySelf(t, binary)
	// Not earlier: a program that another test starts while the copy is open for
	// writing inherits it for a moment, and then the copy cannot be executed.
	t.Parallel()
	for name, tt := range map[string]struct {
		env  []string
		args []string
		code int
		want string
	}{
		"tests": {
			args: []string{"-test.run=^(TestIsolated|TestRemoved|TestDumpSees|TestDumpOfNothing)$", "-test.v"},
			want: "--- PASS: TestDumpSees/legacy_ip6/new_chain",
		},
		"exit code": {args: []string{"-test.nonsense"}, code: 2, want: "-test.nonsense"},
		// A user who is not mapped to root must not start another try.
		"no endless try": {env: []string{inUserNS + "=1"}, code: 1, want: "is not root in the new user namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(binary, tt.args...)
			cmd.Dir = dir
			cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir}, tt.env...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState == nil {
				t.Fatal(err)
			}
			if got := cmd.ProcessState.ExitCode(); got != tt.code || !strings.Contains(string(out), tt.want) {
				t.Errorf("exit code %d, want %d and %q in:\n%s", got, tt.code, tt.want, out)
			}
		})
	}
}

// mapped reports whether a user exists in this process's user namespace.
func mapped(t *testing.T, uid int) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var inside, outside, size int
		if _, err := fmt.Sscan(line, &inside, &outside, &size); err != nil {
			t.Fatal(err)
		}
		if inside <= uid && uid-inside < size {
			return true
		}
	}
	return false
}

// publicDir returns a directory that every user may use; t.TempDir's is closed.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "netnstest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	return dir
}

func copySelf(t *testing.T, to string) {
	t.Helper()
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(f, from)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(to, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}
