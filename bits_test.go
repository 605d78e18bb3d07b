package unflannel_test

import (
	"errors"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestThirtyTwoBit: a 32-bit program sees the same as a 64-bit one and removes it, or
// says that it can't: the kernel does not show it the tables of iptables-legacy, which
// have other sizes there, so that it asks iptables' own programs.
func TestThirtyTwoBit(t *testing.T) {
	t.Parallel()
	if runtime.GOARCH != "amd64" {
		t.Skip("expected: this kernel may not run 32-bit programs")
	}
	native, program := build(t), build(t, "GOARCH=386")
	if err := exec.Command(program, "version").Run(); errors.Is(err, unix.ENOEXEC) {
		t.Skip("this kernel runs no 32-bit programs (CONFIG_IA32_EMULATION)")
	}
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			n, _ := leftoverNode(t, backend)
			before := n.Dump()
			run := func(program, verb string, more ...string) (string, error) {
				out, errs, err := n.Run("", program, append([]string{verb, "--termination-log="}, more...)...)
				return out + errs, err
			}
			want, _ := run(native, "check")
			if got, _ := run(program, "check"); got != want || !strings.Contains(got, "24 leftovers") {
				t.Errorf("check says\n%s\nand not\n%s", got, want)
			}
			if backend == "legacy" {
				out, err := run(program, "clean", "--host-root", t.TempDir())
				if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(out, "32-bit") {
					t.Errorf("clean without iptables: %v\n%s", err, out)
				}
			}
			n.unchanged("check", before)
			if out, err := run(program, "clean"); err != nil || !strings.Contains(out, "removed 24 leftovers of Flannel; nothing of Flannel is left") {
				t.Errorf("clean: %v\n%s", err, out)
			}
			n.unchanged("clean", before.Without(ofOwnChains)) // no packets: no counters of policies
		})
	}
}
