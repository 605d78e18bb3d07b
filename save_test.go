package unflannel_test

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unflannel/unflannel"
)

// TestSave removes and brings back: what iptables-save prints is then what it was,
// places and counters included.
func TestSave(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ file, family string }{
		{"flannel-v0.20.2-iptables-busy-node.v4.save", "ip"}, // jumps first
		{"flannel-v0.28.9-iptables-busy-node.v4.save", "ip"}, // jumps last
		{"flannel-v0.28.9-iptables-busy-node.v6.save", "ip6"},
		{"flannel-v0.19.2-then-v0.28.9-iptables.v4.save", "ip"},
		{"flannel-v0.13.0-iptables-new-lease.v4.save", "ip"},
		{"flannel-v0.5.5-iptables.v4.save", "ip"},
		{"flannel-v0.25.7-iptables-after-sigterm.v4.save", "ip"},
	} {
		for _, backend := range []string{"nft", "legacy"} {
			t.Run(tc.file+"/"+backend, func(t *testing.T) {
				t.Parallel()
				text, err := os.ReadFile("testdata/rulesets/" + tc.file)
				if err != nil {
					t.Fatal(err)
				}
				n := newNode(t)
				n.Restore(backend, tc.family, strings.ReplaceAll(string(text), "\n-A", "\n[3:180] -A"))
				save := strings.Replace(map[string]string{"ip": "iptables-B-save", "ip6": "ip6tables-B-save"}[tc.family], "B", backend, 1)
				saved := func() string { return n.savedLines(save) }
				before := saved()
				report := n.clean(unflannel.Options{Networks: []netip.Prefix{clusterIPv4, clusterIPv6}})
				if before == saved() {
					t.Fatal("nothing was removed")
				}
				undo := report.Undo()
				if len(undo) != 1 {
					t.Fatalf("%d programs are needed to bring it back, want 1", len(undo))
				}
				var b strings.Builder
				if _, err := undo[0].WriteTo(&b); err != nil {
					t.Fatal(err)
				}
				n.MustRun(b.String(), undo[0].Program(), "--noflush", "-c")
				if diff := cmp.Diff(before, saved()); diff != "" {
					t.Errorf("not what it was (-want +got):\n%s\nfrom:\n%s", diff, b.String())
				}
			})
		}
	}
}

// savedLines are the lines of iptables-save that tell of rules and chains; policies'
// counters do not come back.
func (n node) savedLines(program string) string {
	n.t.Helper()
	var b strings.Builder
	for line := range strings.Lines(n.MustRun("", program, "-c")) {
		if strings.HasPrefix(line, ":") {
			line, _, _ = strings.Cut(line, " [")
			line += "\n"
		}
		if !strings.HasPrefix(line, "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}
