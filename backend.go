package unflannel

import (
	"context"
	"errors"
)

// Backend reads and changes one of the kernel's packet filters, in the network
// namespace of the calling thread. Callers that switch namespaces lock their
// goroutine to its thread for as long as they use the backend.
type Backend interface {
	// Name is the backend's name in reports: "nft", "legacy".
	Name() string

	// Read reads what the queries ask for. It changes nothing: no table, chain
	// or module comes into being by it. Tables and chains that do not exist are
	// left out of the snapshot. Where one part cannot be read, the others still
	// are, and the error joins one [*Error] for each part that is missing.
	Read(ctx context.Context, queries []Query) (*Snapshot, error)

	// Remove applies the removals, which were decided on the snapshot. An error
	// that wraps [ErrConflict] says that somebody else changed the ruleset since:
	// what was not applied has to be decided again on a new snapshot.
	Remove(ctx context.Context, snapshot *Snapshot, removals []Removal) error
}

// ErrConflict is wrapped by an error of [Backend.Remove] when another program
// wrote to the ruleset between reading and removing, or when what became of the
// removal is unknown. Reading again settles both.
var ErrConflict = errors.New("the ruleset was changed by another program")

// Query asks for named chains of one table, with all that they hold and all that
// refers to them. Base chains come first: that is where Flannel's jumps are.
type Query struct {
	Family Family
	Table  string
	Chains []string
}

// Snapshot is what a backend read of its ruleset.
type Snapshot struct {
	Generation uint32   // of the nf_tables ruleset; 0 in legacy
	Present    []Family // the families that this kernel has in this backend
	Tables     []*Table // those of the queries that exist
}

// Table is what was read of one table.
type Table struct {
	Family Family
	Name   string
	Handle uint64 // nf_tables' handle; 0 in legacy
	// Owner is the netlink port of the process that owns the table (nf_tables'
	// flag "owner"), usually its process id; 0 for none. Nobody else can change
	// such a table.
	Owner  uint32
	Chains []*Chain // those of the query that exist, in its order
	// Others counts what else is in an nf_tables table: other chains, sets, objects.
	Others int
}

// Chain is a chain with all that it holds and all that refers to it.
type Chain struct {
	Name   string
	Handle uint64 // nf_tables' handle; 0 in legacy
	Hook   string // a base chain's hook (forward, postrouting, …); "" of any other chain
	Policy string // a base chain's verdict at its end: ACCEPT or DROP
	Rules  []Rule
	// References are the rules of other chains that jump or go to this one.
	References []Rule
	// Maps are the verdict maps with elements that jump or go to this chain.
	Maps []Map
	// Unseen is how many more references the kernel counts than can be read, such
	// as elements of a verdict map that have timed out but still exist.
	Unseen int
}

// Map is a verdict map of nf_tables.
type Map struct {
	Name string
	// Chain is where an anonymous map is used; "" of a named map, which stays
	// when no rule uses it.
	Chain string
}

// Removal is what to remove from one table.
type Removal struct {
	Table *Table
	Rules []Rule   // each deleted where it stands
	Flush []*Chain // emptied, but kept
	Drop  []*Chain // emptied and deleted
	Whole bool     // the table itself, with all in it (nf_tables only)
}
