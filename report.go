package unflannel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// SchemaVersion is the version of [Report]'s JSON form. It grows when a field
// changes its meaning or goes; new fields may come without.
const SchemaVersion = 1

// Report says what was found and what became of it.
type Report struct {
	SchemaVersion int            `json:"schemaVersion"`
	Verb          string         `json:"verb"`   // "check" or "clean"
	DryRun        bool           `json:"dryRun"` // clean only said what it would do
	Outcome       Outcome        `json:"outcome"`
	Summary       string         `json:"summary"` // the outcome in a sentence
	Backends      []BackendState `json:"backends"`
	Findings      []Finding      `json:"findings"`
	// NotTouched are things that only mention Flannel. They have no effect on the
	// outcome. Only what is read on the way is listed: the built-in chains where
	// Flannel's rules stand, and what Flannel's own rules refer to.
	NotTouched []Finding `json:"notTouched"`
	// Connections are those that were masqueraded by Flannel's rules and that the
	// kernel was made to forget (in a dry run: would be).
	Connections []Connection `json:"connections"`
	Settled     *Settled     `json:"settled,omitempty"`
	// Warnings are sentences about what else an operator should know. They have no
	// effect on the outcome.
	Warnings []string  `json:"warnings"`
	Errors   []Problem `json:"errors"`
}

// Outcome is what holds when the run has ended.
type Outcome string

// The outcomes.
const (
	NothingLeft Outcome = "nothing-left" // nothing of Flannel's is there
	Left        Outcome = "left"         // something is
	Unknown     Outcome = "unknown"      // something could not be read
)

// BackendState says what a backend could tell of one family.
type BackendState struct {
	Backend string `json:"backend"`
	Family  Family `json:"family"`
	State   string `json:"state"` // "read", "absent" (the kernel lacks it) or "unknown" (an error says why)
	// Attempts is how often the backend was asked to remove something; more than
	// one when other programs wrote in between. Always 0 for check.
	Attempts int `json:"attempts"`
}

// Kind is what kind of thing a [Finding] is.
type Kind string

// The kinds of findings.
const (
	KindJump      Kind = "jump"       // a rule of another chain that jumps or goes to a chain of Flannel's
	KindRule      Kind = "rule"       // a rule in a chain of Flannel's, or of Flannel's in a built-in chain
	KindChain     Kind = "chain"      // a chain of Flannel's itself
	KindBaseChain Kind = "base-chain" // a chain with such a name that cannot be Flannel's, as it has a hook
	KindTable     Kind = "table"      // a table of Flannel's nftables mode
)

// State is what became of a [Finding].
type State string

// The states of findings.
const (
	StateFound   State = "found"   // it is there; nobody tried to remove it
	StateRemoved State = "removed" // it was there, its removal was asked for, and a fresh look no longer finds it
	StateLeft    State = "left"    // it is there and clean could not remove it
	// StateSuspected: it is there and looks like Flannel's, but nothing in it says
	// so. It is removed only when its network is asked for.
	StateSuspected  State = "suspected"
	StateNotTouched State = "not-touched" // it only mentions Flannel
	StateReturned   State = "returned"    // it was removed, and it is there again
)

// Finding is one thing that is Flannel's, or bears its name.
type Finding struct {
	Backend string `json:"backend"`
	Family  Family `json:"family"`
	Table   string `json:"table"`
	Chain   string `json:"chain"`
	Kind    Kind   `json:"kind"`
	Rule    string `json:"rule"` // in the syntax of iptables
	// Incomplete says that Rule has parts in brackets, which were not understood.
	Incomplete bool    `json:"incomplete,omitempty"`
	Handle     uint64  `json:"handle,omitempty"`   // nf_tables' handle of the rule, chain or table
	Position   int     `json:"position,omitempty"` // the rule's place in its chain, from 1
	Packets    *uint64 `json:"packets,omitempty"`  // absent where nothing is counted
	Bytes      *uint64 `json:"bytes,omitempty"`
	State      State   `json:"state"`
	// Versions are the versions of Flannel that write such a thing, Effect is what it
	// does to traffic, and Networks are the cluster networks that it tells of.
	Versions string         `json:"flannelVersions,omitempty"`
	Effect   string         `json:"effect,omitempty"`
	Networks []netip.Prefix `json:"networks,omitempty"`
	// Reason says why it is not, or cannot be, removed, and what to do about it.
	Reason string `json:"reason,omitempty"`
}

// Problem is an [*Error] in a report.
type Problem struct {
	Backend string `json:"backend,omitempty"`
	Family  Family `json:"family,omitempty"`
	Table   string `json:"table,omitempty"`
	Chain   string `json:"chain,omitempty"`
	Message string `json:"message"`
}

// conclude fills in the outcome and the summary.
func (r *Report) conclude() {
	n := map[State]int{}
	for _, f := range r.Findings {
		n[f.State]++
	}
	present, suspected := n[StateFound]+n[StateLeft]+n[StateReturned], n[StateSuspected]
	unknown := slices.ContainsFunc(r.Backends, func(b BackendState) bool { return b.State == "unknown" })

	var parts []string
	say := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if n[StateRemoved] > 0 {
		say("removed %s of Flannel", count(n[StateRemoved], "leftover"))
	}
	if present > 0 {
		say("%s of Flannel on this node", count(present, "leftover"))
	}
	if len(r.Connections) > 0 && !r.DryRun {
		say("ended %s that had been masqueraded", count(len(r.Connections), "connection"))
	}
	if suspected > 0 {
		say("%s that may be Flannel's", count(suspected, "rule"))
	}
	switch {
	case unknown:
		r.Outcome = Unknown
		say("could not tell all that is left: %s", r.Errors[0].Message)
	case present+suspected > 0:
		r.Outcome = Left
		switch reason := r.firstReason(); {
		case len(r.Errors) > 0:
			say("%s", r.Errors[0].Message)
		case reason != "":
			say("%s", reason)
		case r.DryRun:
			say("nothing was changed, as this was a dry run")
		case r.Verb == "check":
			say("clean removes them")
		}
	case len(r.Errors) > 0: // of connections, or of watching: the rules are gone
		r.Outcome = Left
		say("nothing of Flannel is left in the firewall of this node, but: %s", r.Errors[0].Message)
	default:
		r.Outcome = NothingLeft
		say("nothing of Flannel is left on this node")
	}
	r.Summary = strings.Join(parts, "; ")
}

func (r *Report) firstReason() string {
	for _, f := range r.Findings {
		if f.State != StateRemoved && f.Reason != "" {
			return fmt.Sprintf("%s in table %s %s (%s): %s", f.Chain, f.Family, f.Table, f.Backend, f.Reason)
		}
	}
	return ""
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
