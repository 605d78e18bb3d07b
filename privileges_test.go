package unflannel_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPrivileges runs the program with less and less of what root may do.
func TestPrivileges(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root has capabilities to give away")
	}
	program := build(t)
	for _, tc := range []struct {
		name         string
		capabilities []uintptr // those that are left
		nft, legacy  int       // exit statuses
		nftSays      string
		legacySays   string
	}{
		{"none", nil, 2, 2, "CAP_NET_ADMIN", "CAP_NET_ADMIN"},
		{"all but CAP_NET_ADMIN", []uintptr{unix.CAP_NET_RAW, unix.CAP_SYS_ADMIN, unix.CAP_DAC_OVERRIDE}, 2, 2, "CAP_NET_ADMIN", "CAP_NET_ADMIN"},
		{"CAP_NET_ADMIN alone", []uintptr{unix.CAP_NET_ADMIN}, 0, 1, "removed 24 leftovers", "CAP_NET_RAW"},
		{"CAP_NET_ADMIN and CAP_NET_RAW", []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW}, 0, 0, "removed 24 leftovers", "removed 24 leftovers"},
	} {
		for backend, want := range map[string]struct {
			status int
			says   string
		}{"nft": {tc.nft, tc.nftSays}, "legacy": {tc.legacy, tc.legacySays}} {
			t.Run(tc.name+"/"+backend, func(t *testing.T) {
				t.Parallel()
				n, _ := leftoverNode(t, backend)
				before := n.Dump()
				out, status := n.runWith(tc.capabilities, program, "clean", "--termination-log=", "--backend", backend)
				if status != want.status || !strings.Contains(out, want.says) {
					t.Errorf("exit status %d, want %d, and %q in:\n%s", status, want.status, want.says, out)
				}
				if status != 0 {
					n.unchanged("a refusal", before)
				}
				// Looking at legacy needs no more than CAP_NET_ADMIN.
				if backend == "legacy" && want.status == 1 && !strings.Contains(out, "24 leftovers of Flannel on this node") {
					t.Errorf("it did not say what is left:\n%s", out)
				}
			})
		}
	}
}

// runWith runs a program as root with nothing but these capabilities.
func (n node) runWith(capabilities []uintptr, program string, args ...string) (output string, status int) {
	n.t.Helper()
	var names []string
	for _, c := range capabilities {
		names = append(names, map[uintptr]string{
			unix.CAP_NET_ADMIN: "+net_admin", unix.CAP_NET_RAW: "+net_raw", unix.CAP_SYS_ADMIN: "+sys_admin", unix.CAP_DAC_OVERRIDE: "+dac_override",
		}[c])
	}
	bounding := strings.Join(append([]string{"-all"}, names...), ",")
	cmd := exec.Command("setpriv", append([]string{"--bounding-set", bounding, "--inh-caps", bounding, program}, args...)...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := n.Start(cmd); err != nil {
		n.t.Fatal(err)
	}
	err := cmd.Wait()
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		n.t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// TestUnreadableNames: to somebody else than root the kernel does not show which
// legacy tables exist, whatever else he may do. What is there is unknown then.
func TestUnreadableNames(t *testing.T) {
	t.Parallel()
	if ids, err := os.ReadFile("/proc/self/uid_map"); err != nil || strings.HasSuffix(strings.TrimSpace(string(ids)), " 1") {
		t.Skip("there is nobody but root in this user namespace")
	}
	program := build(t)
	for backend, want := range map[string]struct {
		status int
		says   string
	}{
		"nft":    {0, "removed 24 leftovers of Flannel; nothing of Flannel is left"},
		"legacy": {2, "list tables of family ip (legacy): open /proc/thread-self/net/ip_tables_names: permission denied; run as root"},
	} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			n, _ := leftoverNode(t, backend)
			before := n.Dump()
			cmd := exec.Command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=+net_admin,+net_raw", "--ambient-caps=+net_admin,+net_raw",
				program, "clean", "--termination-log=", "--backend", backend)
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := n.Start(cmd); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // the status says it
			if status := cmd.ProcessState.ExitCode(); status != want.status || !strings.Contains(out.String(), want.says) {
				t.Errorf("exit status %d, want %d, and %q in:\n%s", status, want.status, want.says, out.String())
			}
			if want.status != 0 {
				n.unchanged("a refusal", before)
			}
		})
	}
}

// TestReadOnlyRoot: with no place at all to write to, nf_tables is cleaned.
func TestReadOnlyRoot(t *testing.T) {
	t.Parallel()
	program := build(t)
	n, _ := leftoverNode(t, "nft")
	before := n.Dump()
	script := `mount --make-rprivate / && for m in $(awk '{print $5}' /proc/self/mountinfo | sort -u); do mount -o remount,bind,ro "$m" 2>/dev/null; done
! touch /tmp/x /x 2>/dev/null && exec "$0" clean`
	cmd := exec.Command("unshare", "--mount", "sh", "-c", script, program)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := n.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "removed 24 leftovers") {
		t.Errorf("%v:\n%s", err, out.String())
	}
	n.unchanged("clean", before.Without(ofOwnChains))
}

// TestUserNamespace: root of a user namespace may do everything in a network
// namespace of its own.
func TestUserNamespace(t *testing.T) {
	t.Parallel()
	program := build(t)
	script := `set -e
mount -t tmpfs tmpfs /run
for b in nft legacy; do
	iptables-$b-restore <testdata/rulesets/flannel-v0.28.9-iptables-busy-node.v4.save
	ip6tables-$b-restore <testdata/rulesets/flannel-v0.28.9-iptables-busy-node.v6.save
done
exec "$0" clean --termination-log=`
	cmd := exec.Command("sh", "-c", script, program)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "removed 48 leftovers of Flannel; nothing of Flannel is left") {
		t.Errorf("%v:\n%s", err, out)
	}
}
