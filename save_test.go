package unflannel_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/legacy"
	"github.com/unflannel/unflannel/nft"
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

// TestSaveAfterRetry: a report lists what was removed attempt by attempt. What one
// program brings back is one part all the same, and what was removed twice is in it
// once.
func TestSaveAfterRetry(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"ip":  "testdata/rulesets/flannel-v0.28.9-iptables-busy-node.v4.save",
		"ip6": "testdata/rulesets/flannel-v0.28.9-iptables-busy-node.v6.save",
	}
	for _, backend := range []unflannel.Backend{nft.New(), legacy.New()} {
		for name, afterFirst := range map[string]func(node){
			"interrupted": func(node) {},
			"written again": func(n node) {
				n.MustRun("*nat\n:FLANNEL-POSTRTG - [0:0]\n"+
					"[3:180] -A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment \"flanneld masq\" -j RETURN\n"+
					"[3:180] -A POSTROUTING -m comment --comment \"flanneld masq\" -j FLANNEL-POSTRTG\nCOMMIT\n",
					"iptables-"+backend.Name()+"-restore", "--noflush", "-c")
			},
		} {
			t.Run(backend.Name()+"/"+name, func(t *testing.T) {
				t.Parallel()
				n := newNode(t)
				for family, file := range files {
					text, err := os.ReadFile(file)
					if err != nil {
						t.Fatal(err)
					}
					n.Restore(backend.Name(), family, strings.ReplaceAll(string(text), "\n-A", "\n[3:180] -A"))
				}
				saved := func() string {
					return n.savedLines("iptables-"+backend.Name()+"-save") + n.savedLines("ip6tables-"+backend.Name()+"-save")
				}
				before := saved()

				b := &piecemeal{Backend: backend, afterFirst: func() { afterFirst(n) }}
				var report *unflannel.Report
				var err error
				n.Do(func() { report, err = unflannel.Clean(t.Context(), unflannel.Options{}, b) })
				if err != nil || report.Outcome != unflannel.NothingLeft {
					t.Fatalf("error %v, outcome %s: %s", err, report.Outcome, report.Summary)
				}
				undo := report.Undo()
				if len(undo) != 2 {
					t.Fatalf("%d programs are needed to bring it back, want 2", len(undo))
				}
				var texts strings.Builder
				for _, s := range undo {
					var b strings.Builder
					if _, err := s.WriteTo(&b); err != nil {
						t.Fatal(err)
					}
					n.MustRun(b.String(), s.Program(), "--noflush", "-c")
					texts.WriteString(b.String())
				}
				if diff := cmp.Diff(before, saved()); diff != "" {
					t.Errorf("not what it was (-want +got):\n%s\nfrom:\n%s", diff, texts.String())
				}
			})
		}
	}
}

// piecemeal is a backend whose first removal reaches only the first and the last
// table before another program comes between.
type piecemeal struct {
	unflannel.Backend
	afterFirst func()
	attempts   int
}

func (b *piecemeal) Remove(ctx context.Context, s *unflannel.Snapshot, removals []unflannel.Removal) error {
	if b.attempts++; b.attempts > 1 {
		return b.Backend.Remove(ctx, s, removals)
	}
	err := b.Backend.Remove(ctx, s, []unflannel.Removal{removals[0], removals[len(removals)-1]})
	b.afterFirst()
	return errors.Join(err, &unflannel.Error{Op: "remove leftovers", Backend: b.Name(), Err: unflannel.ErrConflict})
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
