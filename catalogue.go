package unflannel

// What Flannel writes, from runs of the real daemon: testdata/rulesets/README.md
// says which version wrote what.

// ownChain is a chain that is Flannel's by its name, with everything in it and
// everything that refers to it.
type ownChain struct {
	table string
	base  string // the built-in chain that Flannel jumps from
	name  string
}

var ownChains = []ownChain{
	{table: "nat", base: "POSTROUTING", name: "FLANNEL-POSTRTG"},
	{table: "filter", base: "FORWARD", name: "FLANNEL-FWD"},
}

// queries asks for all that the catalogue has to see.
func queries(families []Family) []Query {
	var qs []Query
	for _, family := range families {
		for _, c := range ownChains {
			qs = append(qs, Query{Family: family, Table: c.table, Chains: []string{c.base, c.name}})
		}
	}
	return qs
}

// isOwnChain reports whether a chain of this name in this table is Flannel's,
// unless it has a hook: Flannel never made a base chain in iptables' tables.
func isOwnChain(table, name string) bool {
	for _, c := range ownChains {
		if c.table == table && c.name == name {
			return true
		}
	}
	return false
}
