package unflannel_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestScale: however large a table is, what has to be found is found, removed in one
// batch, and in little memory. The program itself is run, since this process is large.
func TestScale(t *testing.T) {
	t.Parallel()
	program := build(t)
	for _, tc := range []struct {
		name     string
		ruleset  func(b *strings.Builder)
		removed  int
		memoryMB int
	}{
		{"100,000 rules in nat and 20,000 chains, with jumps from the first and the last", func(b *strings.Builder) {
			b.WriteString("table ip nat {\nchain POSTROUTING { type nat hook postrouting priority 100; policy accept; }\nchain FLANNEL-POSTRTG { }\n")
			for i := range 20_000 {
				fmt.Fprintf(b, "chain KUBE-SVC-%05d { }\n", i)
			}
			b.WriteString("}\n")
			for i := range 100_000 {
				fmt.Fprintf(b, "add rule ip nat KUBE-SVC-%05d ip saddr 10.%d.%d.0/24 counter accept\n", i/5, i%250, i/250%250)
			}
			b.WriteString("add rule ip nat FLANNEL-POSTRTG ip saddr 10.244.0.0/16 masquerade\nadd rule ip nat POSTROUTING jump FLANNEL-POSTRTG\nadd rule ip nat KUBE-SVC-19999 jump FLANNEL-POSTRTG\n")
		}, 4, 32},
		{"5,000 jumps from 5,000 chains", func(b *strings.Builder) {
			b.WriteString("table ip filter {\nchain FORWARD { type filter hook forward priority 0; policy accept; }\nchain FLANNEL-FWD { accept; }\n")
			for i := range 5_000 {
				fmt.Fprintf(b, "chain OPS-%05d { }\n", i)
			}
			b.WriteString("}\n")
			for i := range 5_000 {
				fmt.Fprintf(b, "add rule ip filter OPS-%05d ip saddr 10.0.0.1 jump FLANNEL-FWD\nadd rule ip filter OPS-%05d counter accept\n", i, i)
			}
			b.WriteString("add rule ip filter FORWARD jump FLANNEL-FWD\n")
		}, 5_003, 128},
		{"50,000 rules in Flannel's chain", func(b *strings.Builder) {
			b.WriteString("table ip filter {\nchain FORWARD { type filter hook forward priority 0; policy accept; }\nchain FLANNEL-FWD { }\n}\n")
			for i := range 50_000 {
				fmt.Fprintf(b, "add rule ip filter FLANNEL-FWD ip saddr 10.%d.%d.0/24 counter accept\n", i%250, i/250)
			}
			b.WriteString("add rule ip filter FORWARD jump FLANNEL-FWD\n")
		}, 50_002, 128},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			var b strings.Builder
			tc.ruleset(&b)
			n.LoadNFT(b.String())
			before := n.Dump()

			e := n.trace(nil, program, "clean", "-v", "--termination-log=")
			if e.status.ExitStatus() != 0 || !strings.Contains(e.out, fmt.Sprintf("removed %d leftovers of Flannel; nothing of Flannel is left", tc.removed)) {
				t.Fatalf("exit status %d: …%s", e.status.ExitStatus(), e.out[max(0, len(e.out)-500):])
			}
			if n := strings.Count(e.errs, "msg=committed"); n != 1 {
				t.Errorf("%d batches, want 1:\n%s", n, e.errs)
			}
			if e.peak == 0 || e.peak > tc.memoryMB<<10 {
				t.Errorf("it took %d KiB of memory, more than %d MiB", e.peak, tc.memoryMB)
			}
			t.Logf("%d KiB", e.peak)
			want := before.Without(ofOwnChains)
			if len(want) == len(before) {
				t.Fatal("nothing of Flannel's was there")
			}
			n.unchanged("clean", want)
		})
	}
}
