package unflannel

import "slices"

// What Flannel writes, from runs of the real daemon: testdata/rulesets/README.md
// says which version wrote what. This file knows the names, shapes.go the rules.

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

// oldChain is the chain of v0.1.0 to v0.5.5, in nat, IPv4 only. Its name is too
// plain to tell whose it is: what it holds has to be Flannel's too.
const oldChain = "FLANNEL"

// ownTables are the tables of Flannel's nftables mode, each with its two chains.
var ownTables = map[Family]string{IP: "flannel-ipv4", IP6: "flannel-ipv6"}

var ownTableChains = []string{"postrtg", "forward"}

// queries asks for all that the catalogue has to see.
func queries(families []Family) []Query {
	var qs []Query
	for _, family := range families {
		for _, c := range ownChains {
			q := Query{Family: family, Table: c.table, Chains: []string{c.base, c.name}}
			if c.table == "nat" && family == IP {
				q.Chains = append(q.Chains, oldChain)
			}
			qs = append(qs, q)
		}
		qs = append(qs, Query{Family: family, Table: ownTables[family], Chains: ownTableChains})
	}
	return qs
}

// isOwnTable reports whether a table is Flannel's, whatever it holds.
func isOwnTable(t *Table) bool { return ownTables[t.Family] == t.Name }

// isOwnChain reports whether a chain of this name in this table is Flannel's,
// unless it has a hook: Flannel never made a base chain in iptables' tables.
func isOwnChain(table, name string) bool {
	return slices.ContainsFunc(ownChains, func(c ownChain) bool { return c.table == table && c.name == name })
}

// The versions that wrote a thing, for the report.
const (
	versionsChain   = "v0.20.0 and later"
	versionsTable   = "v0.25.0 and later, in nftables mode"
	versionsOldMasq = "v0.5.4 - v0.5.5"
)
