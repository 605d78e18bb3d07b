package legacy

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/netnstest"
)

// Every rule of every ruleset is, as decoded from the kernel, what the real
// iptables-legacy-save writes of it: text, counters, place; every policy, and every
// reference to a chain.
func TestReadIsWhatSaveWrites(t *testing.T) {
	t.Parallel()
	for _, family := range families {
		for _, file := range savesOf(t, family.Family) {
			t.Run(strings.TrimPrefix(filepath.Clean(file), "../testdata/"), func(t *testing.T) {
				t.Parallel()
				ns := netnstest.New(t)
				ns.Restore("legacy", string(family.Family), readFile(t, file))
				text := ns.MustRun("", family.program+"-legacy-save", "-c")
				s := read(t, ns, New(), queryAll(t, family.Family, text)...)
				compare(t, text, s)
			})
		}
	}
}

// compare compares a snapshot of all chains with the text of iptables-save -c.
func compare(t *testing.T, text string, s *unflannel.Snapshot) {
	t.Helper()
	saved, err := parseSave([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Tables) != len(saved) {
		t.Fatalf("%d tables instead of %d", len(s.Tables), len(saved))
	}
	for i, want := range saved {
		have := s.Tables[i]
		if len(have.Chains) != len(want.policies) {
			t.Errorf("table %s: %d chains instead of %d", have.Name, len(have.Chains), len(want.policies))
		}
		rules, references := map[string][]savedRule{}, map[string][]string{}
		for _, r := range want.rules {
			rules[r.chain] = append(rules[r.chain], r)
			if to := jump(r.line); to != r.chain {
				references[to] = append(references[to], r.line)
			}
		}
		for _, c := range have.Chains {
			compareHead(t, c, want.policies[c.Name])
			if len(c.Rules) != len(rules[c.Name]) {
				t.Errorf("chain %s: %d rules instead of %d", c.Name, len(c.Rules), len(rules[c.Name]))
				continue
			}
			for n, r := range c.Rules {
				compareRule(t, r, rules[c.Name][n])
				if r.Position != n+1 {
					t.Errorf("position %d instead of %d: %s", r.Position, n+1, r)
				}
			}
			if len(c.References) != len(references[c.Name]) {
				t.Errorf("chain %s: %d references instead of %d", c.Name, len(c.References), len(references[c.Name]))
			}
			for _, r := range c.References {
				line := rules[r.Chain][r.Position-1]
				compareRule(t, r, line)
				if !slices.Contains(references[c.Name], line.line) {
					t.Errorf("no reference to %s: %s", c.Name, r)
				}
			}
		}
	}
}

// jump returns what a line of iptables-save jumps or goes to.
func jump(line string) string {
	tokens, _ := tokenize(line)
	for i := 0; i < len(tokens)-1; i++ {
		switch tokens[i].raw {
		case "--comment":
			i++
		case "-j", "-g":
			return tokens[i+1].text
		}
	}
	return ""
}

func compareHead(t *testing.T, c *unflannel.Chain, policy string) {
	t.Helper()
	hook, verdict := "", ""
	if policy != "-" {
		hook, verdict = strings.ToLower(c.Name), policy
	}
	if c.Hook != hook || c.Policy != verdict {
		t.Errorf("chain %s: hook %q and policy %q instead of %q and %q", c.Name, c.Hook, c.Policy, hook, verdict)
	}
}

func compareRule(t *testing.T, r unflannel.Rule, want savedRule) {
	t.Helper()
	if counters := fmt.Sprintf("%d:%d", r.Packets, r.Bytes); counters != want.counters {
		t.Errorf("counters %s instead of %s: %s", counters, want.counters, r)
	}
	if hasOneForm(r) {
		have := strings.ReplaceAll(r.String(), "::102:304/128", "::1.2.3.4/128") // two ways to write one address
		if have != want.line {
			t.Errorf("rule of %s\nhave %s\nwant %s", r.Chain, have, want.line)
		}
		return
	}
	// What comes before the first thing that is not understood is as it should be,
	// unless that is a condition of the rule itself, which Rule shows after others.
	if slices.ContainsFunc(r.Matches, func(m unflannel.Match) bool { return strings.HasPrefix(m.Name, "-") }) {
		return
	}
	plain, opaque, bracket := strings.Cut(r.String(), "[")
	if bracket && !strings.HasPrefix(want.line, strings.TrimSuffix(plain, " ")) {
		t.Errorf("rule of %s\nhave %s\nwant %s", r.Chain, plain+"["+opaque, want.line)
	}
}

// What is opaque, and how it is shown.
func TestOpaqueParts(t *testing.T) {
	t.Parallel()
	if strconv.IntSize == 32 {
		t.Skip("expected: a 32-bit program reads text, which has all options of all extensions")
	}
	ns := netnstest.New(t)
	ns.Restore("legacy", "ip", readFile(t, "testdata/everything.v4.save"))
	s := read(t, ns, New(), unflannel.Query{Family: unflannel.IP, Table: "filter", Chains: []string{"FORWARD", "FLANNEL-FWD-LOG"}},
		unflannel.Query{Family: unflannel.IP, Table: "nat", Chains: []string{"POSTROUTING"}})
	shown := map[string]bool{}
	for _, table := range s.Tables {
		for _, c := range table.Chains {
			for _, r := range c.Rules {
				if strings.Contains(r.String(), "[") {
					shown[r.String()] = true
				}
			}
		}
	}
	want := []string{
		`-A FLANNEL-FWD-LOG -j REJECT [target REJECT revision 0]`,
		`-A FORWARD ! -d 0.0.0.0/0 [-s 10.0.0.0/255.0.255.0]`,
		`-A FORWARD [! -f] -j QUEUE`,
		`-A FORWARD [-f]`,
		`-A FORWARD [match conntrack revision 3]`,
		`-A FORWARD [match limit revision 0] -j LOG [target LOG revision 0]`,
		`-A POSTROUTING -j SNAT [target SNAT revision 0]`,
	}
	if have := slices.Sorted(maps.Keys(shown)); !slices.Equal(have, want) {
		t.Errorf("have\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}
