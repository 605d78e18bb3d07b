package unflannel_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unflannel/unflannel"
)

// TestCases cleans nodes as people reported them (testdata/cases: a folder each,
// with NOTES.md, before and after), in every backend that the case names. What
// clean leaves is compared twice: with the case's after, as text, and with what
// was there before, byte for byte: each thing left is a thing that was there.
func TestCases(t *testing.T) {
	t.Parallel()
	folders, err := filepath.Glob("testdata/cases/*")
	if err != nil {
		t.Fatal(err)
	}
	if len(folders) != 15 {
		t.Errorf("%d cases, want 15: test data is missing", len(folders))
	}
	for _, folder := range folders {
		c := reported{t: t, folder: folder}
		for _, variant := range strings.Fields(c.read("backend")) {
			t.Run(filepath.Base(folder)+"/"+variant, func(t *testing.T) {
				t.Parallel()
				reported{t, folder}.test(variant)
			})
		}
	}
}

// reported is a node that somebody reported.
type reported struct {
	t      *testing.T
	folder string
}

// read returns one of the case's files, "" if it has none of that name.
func (c reported) read(name string) string {
	text, err := os.ReadFile(filepath.Join(c.folder, name))
	if err != nil && !os.IsNotExist(err) {
		c.t.Fatal(err)
	}
	return string(text)
}

func (c reported) test(variant string) {
	before, after := newNode(c.t), newNode(c.t)
	c.load(before, "before", variant)
	c.load(after, "after", variant)

	var o unflannel.Options
	// "uncommented NETWORK LEASE": rules that no comment tells.
	if needs := strings.Fields(c.read("needs")); len(needs) > 1 {
		o.Networks = []netip.Prefix{netip.MustParsePrefix(needs[1])}
	}
	want := after.text()
	check, clean := before.cleanedOf(o, unflannel.NothingLeft, nil)
	if diff := cmp.Diff(want, before.text()); diff != "" {
		c.t.Errorf("what clean left is not the case's after (-want +got):\n%s", diff)
	}
	removed := 0
	for _, f := range clean.Findings {
		if f.State == unflannel.StateRemoved {
			removed++
		}
	}
	if len(check.Findings) != len(clean.Findings) || removed != len(clean.Findings) {
		c.t.Errorf("check found %d things, clean reports %d and removed %d", len(check.Findings), len(clean.Findings), removed)
	}
}

func (c reported) load(n node, which, variant string) {
	if sets := c.read("ipset"); sets != "" {
		n.MustRun(sets, "ipset", "restore")
	}
	restore := func(backend, family, file string) {
		if save := c.read(which + file); save != "" {
			n.Restore(backend, family, save)
		}
	}
	switch variant {
	case "both":
		restore("legacy", "ip", ".legacy.v4.save")
		restore("legacy", "ip6", ".legacy.v6.save")
		restore("nft", "ip", ".v4.save")
		restore("nft", "ip6", ".v6.save")
	case "nft", "legacy":
		restore(variant, "ip", ".v4.save")
		restore(variant, "ip6", ".v6.save")
	}
	if native := c.read(which + ".nft"); native != "" && variant != "legacy" {
		n.LoadNFT(native)
	}
}

// text is all that the programs print of a node's rulesets, counters included but
// for the policies' of iptables-legacy, which that program zeroes itself.
func (n node) text() string {
	n.t.Helper()
	var b strings.Builder
	b.WriteString(anonymous.ReplaceAllString(n.MustRun("", "nft", "list", "ruleset"), "__$1"))
	for _, l := range n.Dump().WithoutLegacyPolicyCounters() {
		if strings.HasPrefix(l.Key, "legacy ") {
			b.WriteString(l.String() + "\n")
		}
	}
	return b.String()
}

var anonymous = regexp.MustCompile(`__(set|map)\d+`)
