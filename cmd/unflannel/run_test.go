package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/netnstest"
)

// TestExitStatus runs the verbs in turn on a node, and says what each returns.
func TestExitStatus(t *testing.T) {
	t.Parallel()
	ns := newNode(t)
	for _, step := range []struct {
		args   string
		status int
		stdout []string
	}{
		{"check", 1, []string{"found  nft  ip  nat ", "12 leftovers of Flannel on this node; clean removes them\n"}},
		{"check --family ip6", 0, []string{"nothing of Flannel is left"}},
		{"check --backend legacy", 0, []string{"nothing of Flannel is left"}},
		{"clean --dry-run", 1, []string{"would remove  nft", "12 leftovers of Flannel on this node", "dry run"}},
		{"clean --family ip6", 0, nil},
		{"clean --backend legacy", 0, nil},
		{"check", 1, nil},
		{"clean", 0, []string{
			`removed  nft  ip  nat     0 packets, 0 bytes  -A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG`,
			"masquerades pod traffic of 10.244.0.0/16 to other nodes and beyond; Flannel v0.20.0 and later",
			"warning: the policy of FORWARD in table ip filter (nft) is DROP",
			"removed 12 leftovers of Flannel; nothing of Flannel is left on this node\n",
		}},
		{"clean", 0, []string{"nothing of Flannel is left on this node\n"}},
		{"check", 0, []string{"nothing of Flannel is left on this node\n"}},
	} {
		r := callIn(t, ns, strings.Fields(step.args)...)
		if r.status != step.status || r.stderr != "" {
			t.Errorf("%s: exit status %d, want %d; standard error %q", step.args, r.status, step.status, r.stderr)
		}
		contains(t, step.args, r.stdout, step.stdout...)
	}
}

// TestJSON: one document that says what the text says.
func TestJSON(t *testing.T) {
	t.Parallel()
	ns := newNode(t)
	for _, step := range []struct {
		args    string
		outcome unflannel.Outcome
		state   unflannel.State
		found   int
	}{
		{"check --output json", unflannel.Left, unflannel.StateFound, 12},
		{"clean --output json --dry-run", unflannel.Left, unflannel.StateFound, 12},
		{"clean --output json", unflannel.NothingLeft, unflannel.StateRemoved, 12},
		{"clean --output json", unflannel.NothingLeft, "", 0},
	} {
		r := callIn(t, ns, strings.Fields(step.args)...)
		d := json.NewDecoder(strings.NewReader(r.stdout))
		d.DisallowUnknownFields()
		var report unflannel.Report
		if err := d.Decode(&report); err != nil {
			t.Fatalf("%s: %v in:\n%s", step.args, err, r.stdout)
		}
		if d.More() {
			t.Errorf("%s prints more than one document", step.args)
		}
		if report.SchemaVersion != 1 || report.Outcome != step.outcome || len(report.Findings) != step.found ||
			report.DryRun != strings.Contains(step.args, "--dry-run") || len(report.Backends) != 4 {
			t.Errorf("%s: %+v", step.args, report)
		}
		for _, f := range report.Findings {
			if f.State != step.state || f.Handle == 0 || f.Rule == "" || f.Versions == "" {
				t.Errorf("%s: finding %+v", step.args, f)
			}
		}
		for _, list := range []string{`"findings": [`, `"notTouched": [`, `"errors": [`, `"warnings": [`, `"connections": [`} {
			contains(t, step.args, r.stdout, list) // never null
		}
	}
}

// TestNetNS works in a namespace from outside of it, in both backends. The thread
// that entered it is not used again.
func TestNetNS(t *testing.T) {
	t.Parallel()
	ns := newNode(t)
	ns.Restore("legacy", "ip6", ruleset(t, "flannel-v0.28.9-iptables-busy-node.v6.save"))
	elsewhere := netnstest.New(t)
	before := elsewhere.Dump()
	// The program moves its thread: one that can be thrown away.
	r := elsewhereThread(func() result {
		return call(t.Context(), "clean", "--netns", ns.Path, "--termination-log=")
	})
	if r.status != 0 {
		t.Errorf("exit status %d: %s%s", r.status, r.stdout, r.stderr)
	}
	contains(t, "the output", r.stdout, "removed 24 leftovers")
	if again := callIn(t, ns, "check"); again.status != 0 {
		t.Errorf("something is left:\n%s", again.stdout)
	}
	if diff := netnstest.Diff(before, elsewhere.Dump()); diff != "" {
		t.Errorf("another namespace changed:\n%s", diff)
	}
}

func TestTerminationLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	if err := os.WriteFile(there, []byte("something longer than what the summary says, which has to go whole: "+strings.Repeat("x", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	ns := newNode(t)
	ns.Do(func() {
		call(t.Context(), "check", "--termination-log", there)
		call(t.Context(), "check", "--termination-log", filepath.Join(dir, "absent"))
		if r := call(t.Context(), "check", "--termination-log", dir); !strings.Contains(r.stderr, "could not be written") || r.status != 1 {
			t.Errorf("a directory as the file: exit status %d, standard error %q", r.status, r.stderr)
		}
	})
	text, err := os.ReadFile(there)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != "12 leftovers of Flannel on this node; clean removes them\n" {
		t.Errorf("the file holds %q", text)
	}
	if _, err := os.Stat(filepath.Join(dir, "absent")); !os.IsNotExist(err) {
		t.Errorf("a file that did not exist was made: %v", err)
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	ns := newNode(t)
	ns.MustRun("", "iptables-nft", "-A", "FORWARD", "-i", "flannel.1", "-j", "ACCEPT")
	quiet := callIn(t, ns, "check")
	if quiet.stderr != "" || strings.Contains(quiet.stdout, "not-touched") {
		t.Errorf("without -v: %+v", quiet)
	}
	text := callIn(t, ns, "check", "-v")
	contains(t, "-v", text.stderr, "generation=", "bytes=", "requests=", "tables=")
	contains(t, "-v", text.stdout, "not-touched  nft  ip  filter", "-A FORWARD -i flannel.1 -j ACCEPT", "it only mentions Flannel")
	for line := range strings.Lines(callIn(t, ns, "clean", "-v", "--log-format", "json").stderr) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
}

// TestEnded: with a context that has ended, nothing is changed and nothing told.
func TestEnded(t *testing.T) {
	t.Parallel()
	ns := newNode(t)
	before := ns.Dump()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ns.Do(func() {
		r := call(ctx, "clean", "--termination-log=")
		if r.status != exitFailed {
			t.Errorf("exit status %d: %s", r.status, r.stdout)
		}
		contains(t, "the summary", r.stdout, "could not tell", "context canceled")
	})
	if diff := netnstest.Diff(before, ns.Dump()); diff != "" {
		t.Errorf("the ruleset changed:\n%s", diff)
	}
}

func TestSave(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "undo")
	ns := newNode(t)
	ns.Restore("legacy", "ip6", ruleset(t, "flannel-v0.28.9-iptables-busy-node.v6.save"))
	first := callIn(t, ns, "clean", "--save", file)
	contains(t, "standard error", first.stderr, "iptables-nft-restore --noflush "+file+"\n", "ip6tables-legacy-restore --noflush "+file+".legacy.ip6\n")
	for name, program := range map[string]string{file: "iptables-nft-restore", file + ".legacy.ip6": "ip6tables-legacy-restore"} {
		ns.MustRun("", program, "--noflush", name)
	}
	if r := callIn(t, ns, "check"); !strings.Contains(r.stdout, "24 leftovers") {
		t.Errorf("not all came back:\n%s", r.stdout)
	}
	before := ns.Dump()
	for _, exists := range []string{file + ".legacy.ip6", file} {
		r := callIn(t, ns, "clean", "--save", file)
		if r.status != exitFailed {
			t.Errorf("exit status %d", r.status)
		}
		contains(t, "standard error", r.stderr, exists+": file exists; nothing was removed: give a new file")
		if err := os.Rename(exists, exists+".away"); err != nil {
			t.Error(err)
		}
	}
	if diff := netnstest.Diff(before, ns.Dump()); diff != "" {
		t.Errorf("the ruleset changed:\n%s", diff)
	}
	if r := callIn(t, netnstest.New(t), "clean", "--save", file+".2"); r.status != 0 || r.stderr != "" {
		t.Errorf("nothing to save: exit status %d, %s", r.status, r.stderr)
	}
	if _, err := os.Stat(file + ".2"); !os.IsNotExist(err) {
		t.Errorf("an empty file stays: %v", err)
	}
}

func TestSubnetEnv(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "subnet.env")
	text := "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_IPV6_NETWORK=fd00:10:244::/56\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ns := netnstest.New(t)
	ns.Restore("nft", "ip", ruleset(t, "flannel-v0.15.1-iptables.v4.save"))
	ns.Restore("legacy", "ip6", ruleset(t, "flannel-v0.15.1-iptables.v6.save"))
	if r := callIn(t, ns, "clean"); r.status != 1 || !strings.Contains(r.stdout, "suspected") {
		t.Errorf("not asked: exit status %d\n%s", r.status, r.stdout)
	}
	if r := callIn(t, ns, "clean", "--subnet-env", file); r.status != 0 || !strings.Contains(r.stdout, "removed 12 leftovers") {
		t.Errorf("asked: exit status %d\n%s", r.status, r.stdout)
	}
}
