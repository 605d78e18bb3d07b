package unflannel

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Saved are removed things that one call of one program can bring back.
type Saved struct {
	Backend string // "nft", "legacy"
	Family  Family
	removed []Finding
}

// Undo returns what a report says was removed, one part for each program that can
// bring it back. A report lists things in the order in which they were removed:
// after a retry, those of one program need not stand together.
func (r *Report) Undo() []Saved {
	var all []Saved
	for _, f := range r.Findings {
		if f.State != StateRemoved {
			continue
		}
		i := slices.IndexFunc(all, func(s Saved) bool { return s.Backend == f.Backend && s.Family == f.Family })
		if i < 0 {
			i = len(all)
			all = append(all, Saved{Backend: f.Backend, Family: f.Family})
		}
		all[i].removed = append(all[i].removed, f)
	}
	return all
}

// Program is the program that takes the text of WriteTo, with --noflush.
func (s Saved) Program() string {
	name := "iptables-" + s.Backend + "-restore"
	if s.Family == IP6 {
		name = "ip6tables-" + s.Backend + "-restore"
	}
	return name
}

// WriteTo writes what was removed for iptables-restore --noflush. Each rule goes
// back to its former place, which is right as long as its chain has not become
// shorter since. What that program cannot write stands in a comment: tables of
// Flannel's nftables mode, and rules with parts that were not understood.
func (s Saved) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "# removed by unflannel; bring it back with: %s --noflush FILE\n", s.Program())
	var tables []string
	byTable := map[string][]Finding{}
	for _, f := range s.removed {
		if byTable[f.Table] == nil {
			tables = append(tables, f.Table)
		}
		byTable[f.Table] = append(byTable[f.Table], f)
	}
	for _, table := range tables {
		writeTable(&b, byTable[table])
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

// writeTable writes what was removed from one table: chains first, then their
// rules, then the rules of other chains.
func writeTable(b *strings.Builder, removed []Finding) {
	table := removed[0].Table
	own := map[string]bool{}
	for _, f := range removed {
		if f.Kind == KindTable {
			fmt.Fprintf(b, "# %s was of nftables, not of iptables, and is not here\n", f.Rule)
			return
		}
		own[f.Chain] = own[f.Chain] || f.Kind == KindChain
	}
	inOrder := slices.SortedStableFunc(slices.Values(removed), func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.Chain, b.Chain), cmp.Compare(a.Position, b.Position), strings.Compare(a.Rule, b.Rule))
	})
	// What came back and was removed again need not be there twice.
	inOrder = slices.CompactFunc(inOrder, func(a, b Finding) bool {
		return a.Kind == b.Kind && a.Chain == b.Chain && a.Position == b.Position && a.Rule == b.Rule
	})
	fmt.Fprintf(b, "*%s\n", table)
	for _, f := range inOrder {
		if f.Kind == KindChain {
			fmt.Fprintf(b, ":%s - [0:0]\n", f.Chain)
		}
	}
	for _, inOwn := range []bool{true, false} {
		for _, f := range inOrder {
			if f.Kind == KindChain || own[f.Chain] != inOwn {
				continue
			}
			line := f.Rule
			if !inOwn { // not at the end, where it would have another effect
				line = fmt.Sprintf("-I %s %d%s", f.Chain, f.Position, strings.TrimPrefix(f.Rule, "-A "+f.Chain))
			}
			switch {
			case f.Incomplete:
				fmt.Fprintf(b, "# not understood whole, so not restored: %s\n", f.Rule)
			case f.Packets != nil:
				fmt.Fprintf(b, "[%d:%d] %s\n", *f.Packets, *f.Bytes, line)
			default:
				b.WriteString(line + "\n")
			}
		}
	}
	b.WriteString("COMMIT\n")
}
