package unflannel_test

import (
	"context"
	"testing"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/legacy"
	"github.com/unflannel/unflannel/netnstest"
	"github.com/unflannel/unflannel/nft"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

// node is a network namespace that plays a node.
type node struct {
	*netnstest.NS
	t *testing.T
}

func newNode(t *testing.T) node {
	t.Helper()
	return node{netnstest.New(t), t}
}

func (n node) check(o unflannel.Options) *unflannel.Report { return n.run(unflannel.Check, o) }
func (n node) clean(o unflannel.Options) *unflannel.Report { return n.run(unflannel.Clean, o) }

// run runs check or clean with both backends, and fails the test on an error.
func (n node) run(f func(context.Context, unflannel.Options, ...unflannel.Backend) (*unflannel.Report, error), o unflannel.Options) *unflannel.Report {
	n.t.Helper()
	var r *unflannel.Report
	var err error
	n.Do(func() { r, err = f(n.t.Context(), o, nft.New(), legacy.New()) })
	if err != nil {
		n.t.Fatalf("unexpected error: %v", err)
	}
	return r
}

// unchanged fails the test if the rulesets are not byte for byte the wanted.
func (n node) unchanged(after string, want netnstest.Dump) {
	n.t.Helper()
	if diff := netnstest.Diff(want, n.Dump()); diff != "" {
		n.t.Errorf("ruleset after %s:\n%s", after, diff)
	}
}

// cleanedOf tests the whole job on a node: check and dry run change nothing, clean
// takes away exactly the lines of the dump that gone says (nil: any, but changes
// and adds none), and a second clean finds and changes nothing more. It returns
// the reports of check and clean.
func (n node) cleanedOf(o unflannel.Options, outcome unflannel.Outcome, gone func(netnstest.Line) bool) (check, clean *unflannel.Report) {
	n.t.Helper()
	before := n.Dump()

	check = n.check(o)
	n.unchanged("check", before)
	dry := o
	dry.DryRun = true
	dryRun := n.clean(dry)
	n.unchanged("dry run", before)
	if check.Outcome != dryRun.Outcome || len(check.Findings) != len(dryRun.Findings) {
		n.t.Errorf("check says %s with %d findings, dry run %s with %d", check.Outcome, len(check.Findings), dryRun.Outcome, len(dryRun.Findings))
	}

	clean = n.clean(o)
	after := n.Dump()
	if netnstest.Diff(before, after) != "" {
		// iptables-legacy zeroes the policies' counters itself.
		before, after = before.WithoutLegacyPolicyCounters(), after.WithoutLegacyPolicyCounters()
	}
	if gone == nil {
		gone = notIn(after)
	}
	if diff := netnstest.Diff(before.Without(gone), after); diff != "" {
		n.t.Errorf("ruleset after clean:\n%s", diff)
	}
	if clean.Outcome != outcome {
		n.t.Errorf("outcome of clean is %s, want %s: %s", clean.Outcome, outcome, clean.Summary)
	}

	after = n.Dump()
	again := n.clean(o)
	n.unchanged("second clean", after)
	if again.Outcome != outcome {
		n.t.Errorf("outcome of second clean is %s, want %s: %s", again.Outcome, outcome, again.Summary)
	}
	return check, clean
}

// notIn are the lines that a dump lacks.
func notIn(d netnstest.Dump) func(netnstest.Line) bool {
	n := map[string]int{}
	for _, l := range d {
		n[l.String()]++
	}
	return func(l netnstest.Line) bool {
		n[l.String()]--
		return n[l.String()] < 0
	}
}
