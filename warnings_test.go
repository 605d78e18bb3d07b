package unflannel_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/unflannel/unflannel"
)

// TestWarnOfPolicy: where FORWARD drops what nobody accepts, the loss of Flannel's
// accepting rules is warned of, once, before and after.
func TestWarnOfPolicy(t *testing.T) {
	t.Parallel()
	const accepting = "-A FLANNEL-FWD -s 10.244.0.0/16 -j ACCEPT\n-A FLANNEL-FWD -d 10.244.0.0/16 -j ACCEPT\n"
	for _, tc := range []struct {
		name, save string
		networks   []netip.Prefix
		warned     bool
	}{
		{"DROP and Flannel's chain", filterSave + ":FLANNEL-FWD - [0:0]\n-A FORWARD -j FLANNEL-FWD\n" + accepting + "COMMIT\n", nil, true},
		{"ACCEPT and Flannel's chain", "*filter\n:FORWARD ACCEPT [0:0]\n:FLANNEL-FWD - [0:0]\n-A FORWARD -j FLANNEL-FWD\n" + accepting + "COMMIT\n", nil, false},
		{"DROP and an empty chain", filterSave + ":FLANNEL-FWD - [0:0]\n-A FORWARD -j FLANNEL-FWD\nCOMMIT\n", nil, false},
		{"DROP and rules without a comment, asked for", filterSave + "-A FORWARD -s 10.244.0.0/16 -j ACCEPT\nCOMMIT\n", []netip.Prefix{clusterIPv4}, true},
		{"DROP and rules without a comment", filterSave + "-A FORWARD -s 10.244.0.0/16 -j ACCEPT\nCOMMIT\n", nil, false},
	} {
		for _, backend := range []string{"nft", "legacy"} {
			t.Run(tc.name+"/"+backend, func(t *testing.T) {
				t.Parallel()
				n := newNode(t)
				n.Restore(backend, "ip", tc.save)
				o := unflannel.Options{Networks: tc.networks}
				for _, r := range []*unflannel.Report{n.check(o), n.clean(o)} {
					warned := len(r.Warnings) == 1 && strings.Contains(r.Warnings[0], "DROP") && strings.Contains(r.Warnings[0], "10.244.0.0/16")
					if warned != tc.warned || len(r.Warnings) > 1 {
						t.Errorf("%s warns %q", r.Verb, r.Warnings)
					}
				}
			})
		}
	}
}
