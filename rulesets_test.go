package unflannel_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/netnstest"
)

// TestRulesets runs the whole job on what every version of Flannel wrote, in each
// backend that can hold it.
func TestRulesets(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/rulesets/*.*")
	if err != nil {
		t.Fatal(err)
	}
	tested := 0
	for _, file := range files {
		name := filepath.Base(file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		family := "ip"
		if strings.HasSuffix(name, ".v6.save") {
			family = "ip6"
		}
		for _, backend := range backendsOf(name) {
			tested++
			t.Run(name+"/"+backend, func(t *testing.T) {
				t.Parallel()
				n := newNode(t)
				if backend == "native" {
					n.LoadNFT(string(text))
				} else {
					n.Restore(backend, family, string(text))
				}
				gone := allRules // nobody but Flannel wrote a rule here
				if strings.Contains(name, "busy-node") {
					gone = ofOwnChains
				}
				networks := unflannel.Options{Networks: []netip.Prefix{clusterIPv4, clusterIPv6}}
				check, _ := n.cleanedOf(networks, unflannel.NothingLeft, gone)
				for _, f := range check.Findings {
					if backend != "native" && f.Kind != unflannel.KindChain && !strings.Contains(string(text), f.Rule+"\n") {
						t.Errorf("check found a rule that is not in the file: %s", f.Rule)
					}
					if f.Versions == "" || f.Kind == unflannel.KindRule && f.Effect == "" {
						t.Errorf("check does not say who wrote %q, or what it does", f.Rule)
					}
					if f.Kind == unflannel.KindRule && len(f.Networks) == 0 && !strings.Contains(f.Rule, "--mark") &&
						!strings.Contains(name, "ipv6-off") && !strings.HasPrefix(f.Rule, "-A FLANNEL ") {
						t.Errorf("check does not tell the network of %q", f.Rule)
					}
				}
			})
		}
	}
	if tested < 70 {
		t.Errorf("only %d rulesets were tested: test data is missing", tested)
	}
}

func backendsOf(name string) []string {
	switch {
	case strings.HasSuffix(name, ".nft"):
		return []string{"native"}
	case strings.HasSuffix(name, "-legacy.v6.save"): // iptables-nft refuses "! -s ::/0"
		return []string{"legacy"}
	case strings.HasSuffix(name, ".save"):
		return []string{"nft", "legacy"}
	}
	return nil
}

var (
	clusterIPv4 = netip.MustParsePrefix("10.244.0.0/16")
	clusterIPv6 = netip.MustParsePrefix("fd00:10:244::/56")
)

// ofOwnChains are the lines of the two chains, their rules, and what refers to them.
func ofOwnChains(l netnstest.Line) bool {
	return l.Contains("FLANNEL-POSTRTG") || l.Contains("FLANNEL-FWD")
}

// allRules are the lines of all rules, of all chains that are not built in, and of
// Flannel's own tables.
func allRules(l netnstest.Line) bool {
	return strings.HasPrefix(l.Key, "rule ") || strings.HasPrefix(l.Key, "legacy ") && strings.Contains(l.Key, " -> ") ||
		strings.Contains(l.Key, " FLANNEL") || l.Contains(" flannel-ipv")
}

// TestUnasked: without the network, rules that bear neither a name nor a comment
// stay. Where they are a set that only Flannel writes, they are reported.
func TestUnasked(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		file      string
		suspected int
	}{
		{"flannel-v0.6.2-iptables.v4.save", 3},
		{"flannel-v0.8.0-iptables.v4.save", 4},
		{"flannel-v0.9.1-iptables.v4.save", 4},
		{"flannel-v0.13.0-iptables-new-lease.v4.save", 5},
		{"flannel-v0.15.1-iptables.v4.save", 4},
		{"flannel-v0.15.1-iptables.v6.save", 4},
	} {
		for _, backend := range []string{"nft", "legacy"} {
			t.Run(tc.file+"/"+backend, func(t *testing.T) {
				t.Parallel()
				text, err := os.ReadFile("testdata/rulesets/" + tc.file)
				if err != nil {
					t.Fatal(err)
				}
				n := newNode(t)
				family, network := "ip", clusterIPv4
				if strings.HasSuffix(tc.file, ".v6.save") {
					family, network = "ip6", clusterIPv6
				}
				n.Restore(backend, family, string(text))
				nothing := func(netnstest.Line) bool { return false }
				check, clean := n.cleanedOf(unflannel.Options{}, unflannel.Left, nothing)
				for _, r := range []*unflannel.Report{check, clean} {
					if len(r.Findings) != tc.suspected {
						t.Errorf("%s reports %d findings, want %d", r.Verb, len(r.Findings), tc.suspected)
					}
					for _, f := range r.Findings {
						if f.State != unflannel.StateSuspected || !strings.Contains(f.Reason, "--network "+network.String()) {
							t.Errorf("%s is %s with the reason %q", f.Rule, f.State, f.Reason)
						}
					}
				}
			})
		}
	}
}
