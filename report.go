package unflannel

import (
	"fmt"
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
	Errors        []Problem      `json:"errors"`
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
	KindRule      Kind = "rule"       // a rule in a chain of Flannel's
	KindChain     Kind = "chain"      // a chain of Flannel's itself
	KindBaseChain Kind = "base-chain" // a chain with such a name that cannot be Flannel's, as it has a hook
)

// State is what became of a [Finding].
type State string

// The states of findings.
const (
	StateFound   State = "found"   // it is there; nobody tried to remove it
	StateRemoved State = "removed" // it was there, its removal was asked for, and a fresh look no longer finds it
	StateLeft    State = "left"    // it is there and clean could not remove it
)

// Finding is one thing that is Flannel's, or bears its name.
type Finding struct {
	Backend  string  `json:"backend"`
	Family   Family  `json:"family"`
	Table    string  `json:"table"`
	Chain    string  `json:"chain"`
	Kind     Kind    `json:"kind"`
	Rule     string  `json:"rule"`             // in the syntax of iptables
	Handle   uint64  `json:"handle,omitempty"` // nf_tables' handle of the rule or chain
	Position int     `json:"position,omitempty"`
	Packets  *uint64 `json:"packets,omitempty"` // absent where nothing is counted
	Bytes    *uint64 `json:"bytes,omitempty"`
	State    State   `json:"state"`
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
	present := n[StateFound] + n[StateLeft]
	unknown := false
	for _, b := range r.Backends {
		unknown = unknown || b.State == "unknown"
	}

	var s strings.Builder
	switch {
	case r.Verb == "clean" && n[StateRemoved] > 0:
		fmt.Fprintf(&s, "removed %s of Flannel's; ", things(n[StateRemoved]))
	case r.DryRun && present > 0:
		s.WriteString("dry run, nothing was changed: ")
	}
	switch {
	case unknown:
		r.Outcome = Unknown
		if present > 0 {
			fmt.Fprintf(&s, "%s there, and ", thingsAre(present))
		}
		fmt.Fprintf(&s, "it could not be told whether something is left: %s", r.Errors[0].Message)
	case present > 0:
		r.Outcome = Left
		fmt.Fprintf(&s, "%s left on this node", thingsAre(present))
		if len(r.Errors) > 0 {
			s.WriteString(": " + r.Errors[0].Message)
		} else if reason := r.firstReason(); reason != "" {
			s.WriteString(": " + reason)
		}
	default:
		r.Outcome = NothingLeft
		s.WriteString("nothing of Flannel's is left on this node")
	}
	r.Summary = s.String()
}

func (r *Report) firstReason() string {
	for _, f := range r.Findings {
		if f.State != StateRemoved && f.Reason != "" {
			return fmt.Sprintf("%s in table %s %s (%s): %s", f.Chain, f.Family, f.Table, f.Backend, f.Reason)
		}
	}
	return ""
}

func things(n int) string {
	if n == 1 {
		return "1 thing"
	}
	return fmt.Sprintf("%d things", n)
}

func thingsAre(n int) string {
	if n == 1 {
		return "1 thing of Flannel's is"
	}
	return fmt.Sprintf("%d things of Flannel's are", n)
}
