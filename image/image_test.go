// Package image tests the real image in real containers, with podman: make test-image.
package image

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/unflannel/unflannel/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

// image is the name of the image that make test-image has built.
func image(t *testing.T) string {
	t.Helper()
	name := os.Getenv("UNFLANNEL_IMAGE")
	if name == "" {
		t.Skip("no image: this test needs podman and is run by make test-image")
	}
	return name
}

// run runs the program of the image in a container that shares a namespace's network:
// read-only, without any capability but those given or a way to gain one, under the
// engine's own seccomp profile.
func run(t *testing.T, ns *netnstest.NS, capabilities string, options []string, args ...string) (output string, status int) {
	t.Helper()
	command := append(strings.Fields(os.Getenv("PODMAN_OPTIONS")), "run", "--rm", "--read-only",
		"--network", "ns:"+ns.Path, "--cap-drop", "all", "--cap-add", capabilities,
		"--security-opt", "no-new-privileges")
	command = append(command, strings.Fields(os.Getenv("PODMAN_RUN_OPTIONS"))...)
	command = append(append(append(command, options...), image(t)), args...)
	out, err := exec.Command("podman", command...).CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	status = 0
	if err != nil {
		status = err.(*exec.ExitError).ExitCode()
	}
	if status >= 125 {
		t.Fatalf("podman: exit status %d:\n%s", status, out)
	}
	return string(out), status
}

func leftovers(t *testing.T, ns *netnstest.NS, backend string) netnstest.Dump {
	t.Helper()
	for family, file := range map[string]string{"ip": "flannel-v0.28.9-iptables-busy-node.v4.save", "ip6": "flannel-v0.28.9-iptables-busy-node.v6.save"} {
		text, err := os.ReadFile("../testdata/rulesets/" + file)
		if err != nil {
			t.Fatal(err)
		}
		ns.Restore(backend, family, string(text))
	}
	return ns.Dump()
}

func flannels(l netnstest.Line) bool {
	return l.Contains("FLANNEL-POSTRTG") || l.Contains("FLANNEL-FWD")
}

func want(t *testing.T, ns *netnstest.NS, want netnstest.Dump) {
	t.Helper()
	if diff := netnstest.Diff(want.WithoutLegacyPolicyCounters(), ns.Dump().WithoutLegacyPolicyCounters()); diff != "" {
		t.Errorf("ruleset:\n%s", diff)
	}
}

// TestNFT: NET_ADMIN alone, in an image that holds nothing else, is enough.
func TestNFT(t *testing.T) {
	image(t)
	ns := netnstest.New(t)
	before := leftovers(t, ns, "nft")
	out, status := run(t, ns, "NET_ADMIN", nil, "check")
	if status != 1 || !strings.Contains(out, "24 leftovers of Flannel on this node") {
		t.Errorf("check: exit status %d:\n%s", status, out)
	}
	want(t, ns, before)
	out, status = run(t, ns, "NET_ADMIN", nil, "clean")
	if status != 0 || !strings.Contains(out, "removed 24 leftovers") {
		t.Errorf("clean: exit status %d:\n%s", status, out)
	}
	want(t, ns, before.Without(flannels))
}

// TestLegacy: leftovers in iptables-legacy are found without any program, and
// removed by the host's, once its root and its lock are there.
func TestLegacy(t *testing.T) {
	image(t)
	ns := netnstest.New(t)
	before := leftovers(t, ns, "legacy")
	out, status := run(t, ns, "NET_ADMIN", nil, "clean")
	if status != 1 || !strings.Contains(out, "24 leftovers of Flannel on this node") ||
		!strings.Contains(out, "--host-root") || !strings.Contains(out, "iptables-legacy") {
		t.Errorf("without the host's programs: exit status %d:\n%s", status, out)
	}
	want(t, ns, before)

	lock := t.TempDir() + "/xtables.lock" // stands in for the host's /run/xtables.lock
	if err := os.WriteFile(lock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	options := []string{"-v", "/:/host:ro", "-v", lock + ":/host/run/xtables.lock"}
	if _, err := os.Stat("/run/xtables.lock"); os.IsNotExist(err) {
		if err := os.WriteFile("/run/xtables.lock", nil, 0o600); err != nil { // a place to mount it at
			t.Fatal(err)
		}
	}
	out, status = run(t, ns, "NET_ADMIN,NET_RAW,SYS_CHROOT", options, "clean", "--host-root", "/host")
	if status != 0 || !strings.Contains(out, "removed 24 leftovers") {
		t.Errorf("with the host's programs: exit status %d:\n%s", status, out)
	}
	want(t, ns, before.Without(flannels))
}

// TestMemory: the limit of deploy/base is enough for a node with 50,000 rules in a
// table of iptables-legacy, which holds all of them to change one.
func TestMemory(t *testing.T) {
	image(t)
	ns := netnstest.New(t)
	var rules strings.Builder
	rules.WriteString("*nat\n:POSTROUTING ACCEPT [0:0]\n:FLANNEL-POSTRTG - [0:0]\n:MANY - [0:0]\n" +
		"-A POSTROUTING -m comment --comment \"flanneld masq\" -j FLANNEL-POSTRTG\n" +
		"-A FLANNEL-POSTRTG -s 10.244.0.0/16 -d 10.244.0.0/16 -m comment --comment \"flanneld masq\" -j RETURN\n")
	for i := range 50_000 {
		fmt.Fprintf(&rules, "-A MANY -s 10.0.%d.%d/32 -m comment --comment \"%d\" -j RETURN\n", i>>8, i&255, i)
	}
	rules.WriteString("COMMIT\n")
	ns.Restore("legacy", "ip", rules.String())
	options := []string{"-v", "/:/host:ro", "--memory", "512m", "--memory-swap", "512m"}
	out, status := run(t, ns, "NET_ADMIN,NET_RAW,SYS_CHROOT", options, "clean", "--host-root", "/host")
	if status != 0 || !strings.Contains(out, "removed 3 leftovers") {
		t.Errorf("exit status %d:\n%s", status, out)
	}
}

// TestNoCapability: what is missing is named.
func TestNoCapability(t *testing.T) {
	image(t)
	ns := netnstest.New(t)
	before := leftovers(t, ns, "nft")
	out, status := run(t, ns, "CHOWN", nil, "clean")
	if status != 2 || !strings.Contains(out, "CAP_NET_ADMIN") {
		t.Errorf("exit status %d:\n%s", status, out)
	}
	want(t, ns, before)
}

// TestNothingElse: the image holds no shell to run.
func TestNothingElse(t *testing.T) {
	name := image(t)
	command := append(strings.Fields(os.Getenv("PODMAN_OPTIONS")), "run", "--rm", "--network", "none")
	command = append(command, strings.Fields(os.Getenv("PODMAN_RUN_OPTIONS"))...)
	out, err := exec.Command("podman", append(command, "--entrypoint", "/bin/sh", name, "-c", "true")...).CombinedOutput()
	if err == nil {
		t.Errorf("there is a shell:\n%s", out)
	}
	if !strings.Contains(string(out), "/bin/sh") {
		t.Errorf("podman failed for another reason: %v\n%s", err, out)
	}
}
