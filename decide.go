package unflannel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// decide says what of a table's content is Flannel's, and what of that to remove.
// It only looks: the same table gives the same answer, whatever the backend.
func decide(backend string, t *Table, asked []netip.Prefix) decision {
	d := decision{backend: backend, table: t, asked: asked, removal: Removal{Table: t}}
	if isOwnTable(t) {
		d.ownTable()
	} else {
		for _, c := range t.Chains {
			switch {
			case isOwnChain(t.Name, c.Name):
				d.ownChain(c, versionsChain)
			case t.Family == IP && t.Name == "nat" && c.Name == oldChain:
				d.oldChain(c)
			}
		}
		for _, c := range t.Chains {
			d.baseChain(c)
		}
	}
	if t.Owner != 0 {
		d.keepOwned()
	}
	return d
}

// decision is what the catalogue makes of one table.
type decision struct {
	backend string
	table   *Table
	asked   []netip.Prefix // networks whose rules are to go though nothing names their writer

	findings   []Finding
	notTouched []Finding
	removal    Removal

	oldNetwork netip.Prefix // of the chain FLANNEL, if it is Flannel's
}

// keepOwned turns the decision into one for a table that only its owner can change.
func (d *decision) keepOwned() {
	reason := fmt.Sprintf("the table belongs to the process with netlink port %d (usually its process id): "+
		"only that process can change it; stop it, or remove the rules there", d.table.Owner)
	for i := range d.findings {
		d.findings[i].Reason = reason
	}
	d.removal = Removal{Table: d.table}
}

func (d *decision) ownTable() {
	t := d.table
	f := d.finding(KindTable, "", versionsTable)
	f.Rule = fmt.Sprintf("table %s %s", t.Family, t.Name)
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			d.rule(KindRule, r, versionsTable)
			f.Networks = union(f.Networks, networks(t.Family, r))
		}
	}
	f.Handle = t.Handle
	if t.Others > 0 {
		f.Effect = fmt.Sprintf("it holds %d more chains, sets or other objects, which go with it", t.Others)
	}
	d.findings = append(d.findings, f)
	d.removal.Whole = true
}

// ownChain decides on a chain that is Flannel's and on all that refers to it.
func (d *decision) ownChain(c *Chain, versions string) {
	f := d.finding(KindChain, c.Name, versions)
	f.Rule, f.Handle = newChain(c.Name), c.Handle
	if c.Hook != "" {
		f.Kind, f.Versions = KindBaseChain, ""
		f.Reason = fmt.Sprintf("it has the hook %s, so it is not Flannel's, whose chain has none: not touched", c.Hook)
		d.findings = append(d.findings, f)
		return
	}
	for _, r := range c.References {
		if d.isOwn(r.Chain) {
			continue // it goes with its chain
		}
		d.rule(KindJump, r, versions)
		d.removal.Rules = append(d.removal.Rules, r)
	}
	for _, r := range c.Rules {
		v := versions
		if versions == versionsChain {
			s, _ := shapeOf(d.table.Family, r)
			v = inOwnChain(s)
		}
		d.rule(KindRule, r, v)
		f.Networks = union(f.Networks, networks(d.table.Family, r))
		if r.Target.Chain && hasFlannel(r.Target.Name) {
			d.nearName(r.Target.Name)
		}
	}
	if len(c.Maps) > 0 || c.Unseen > 0 {
		f.Reason = "it is emptied but kept: " + strings.Join(holders(c), " and ") + "; remove that, then run again"
		if len(c.Rules) > 0 {
			d.removal.Flush = append(d.removal.Flush, c)
		}
	} else {
		d.removal.Drop = append(d.removal.Drop, c)
	}
	d.findings = append(d.findings, f)
}

// isOwn reports whether a chain is Flannel's, with all that is in it.
func (d *decision) isOwn(chain string) bool {
	if !isOwnChain(d.table.Name, chain) && !(d.oldNetwork.IsValid() && chain == oldChain) {
		return false
	}
	return !slices.ContainsFunc(d.table.Chains, func(c *Chain) bool { return c.Name == chain && c.Hook != "" })
}

// oldChain decides on the chain FLANNEL, whose name alone does not tell.
func (d *decision) oldChain(c *Chain) {
	versions, network := oldChainContent(c.Rules)
	if c.Hook != "" || versions == "" {
		f := d.finding(KindChain, c.Name, "")
		f.Rule, f.Handle, f.State = newChain(c.Name), c.Handle, StateNotTouched
		f.Reason = "its content is not what Flannel wrote into a chain of this name"
		d.notTouched = append(d.notTouched, f)
		return
	}
	d.oldNetwork = network
	d.ownChain(c, versions)
}

// baseChain decides on the rules that Flannel wrote right into a built-in chain.
func (d *decision) baseChain(c *Chain) {
	fits := d.flannelsPlace(c)
	var unasked []Rule // rules without a comment, in Flannel's shapes
	for _, r := range c.Rules {
		if d.isOwn(c.Name) || r.Target.Chain && d.isOwn(r.Target.Name) {
			continue // decided with the chain
		}
		s, network := shapeOf(d.table.Family, r)
		switch {
		case fits(s) && commented(s, r) != "":
			d.remove(r, commented(s, r))
		case fits(s) && len(r.Matches) == 0 && slices.Contains(d.asked, network):
			d.remove(r, bare(s, r))
		case fits(s) && s == outsideMasquerade && len(r.Matches) == 0 && network == d.oldNetwork:
			d.remove(r, versionsOldMasq) // the chain FLANNEL tells whose it is
		default:
			if fits(s) && len(r.Matches) == 0 {
				unasked = append(unasked, r)
			}
			if mentionsFlannel(r) {
				d.mention(r)
			}
		}
	}
	d.suspect(unasked)
}

// flannelsPlace tells which shapes Flannel wrote right into a chain.
func (d *decision) flannelsPlace(c *Chain) func(shape) bool {
	switch {
	case d.table.Name == "nat" && c.Name == "POSTROUTING" && c.Hook == "postrouting":
		return shape.isMasquerading
	case d.table.Name == "filter" && c.Name == "FORWARD" && c.Hook == "forward":
		return shape.isForwarding
	}
	return func(shape) bool { return false }
}

// suspect reports rules without a comment that are together what only Flannel
// writes: the three masquerading rules that all of v0.5.6 to v0.16.1 have, for one
// network. Accepting rules alone prove nothing.
func (d *decision) suspect(rules []Rule) {
	family := d.table.Family
	seen := map[netip.Prefix]map[shape]bool{}
	for _, r := range rules {
		s, network := shapeOf(family, r)
		if seen[network] == nil {
			seen[network] = map[shape]bool{}
		}
		seen[network][s] = true
	}
	for _, r := range rules {
		s, network := shapeOf(family, r)
		if set := seen[network]; set[insideReturn] && set[insideMasquerade] && set[outsideMasquerade] {
			d.rule(KindRule, r, bare(s, r))
			f := &d.findings[len(d.findings)-1]
			f.State = StateSuspected
			f.Reason = fmt.Sprintf("no comment says whose it is, but together these rules are what Flannel wrote: "+
				"to have them removed, run again with --network %s", network)
		}
	}
}

// remove decides that a rule goes.
func (d *decision) remove(r Rule, versions string) {
	d.rule(KindRule, r, versions)
	d.removal.Rules = append(d.removal.Rules, r)
}

// mention notes a rule that names Flannel and is not its.
func (d *decision) mention(r Rule) {
	f := d.ruleFinding(KindRule, r, "")
	f.State, f.Reason = StateNotTouched, "it only mentions Flannel"
	d.notTouched = append(d.notTouched, f)
	if r.Target.Chain && hasFlannel(r.Target.Name) {
		d.nearName(r.Target.Name)
	}
}

// nearName notes a chain whose name is like Flannel's.
func (d *decision) nearName(chain string) {
	rule := newChain(chain)
	known := func(f Finding) bool { return f.Rule == rule }
	if d.isOwn(chain) || slices.ContainsFunc(d.notTouched, known) {
		return
	}
	f := d.finding(KindChain, chain, "")
	f.Rule, f.State, f.Reason = rule, StateNotTouched, "Flannel writes no chain of this name in this table"
	d.notTouched = append(d.notTouched, f)
}

func (d *decision) rule(kind Kind, r Rule, versions string) {
	d.findings = append(d.findings, d.ruleFinding(kind, r, versions))
}

func (d *decision) ruleFinding(kind Kind, r Rule, versions string) Finding {
	f := d.finding(kind, r.Chain, versions)
	f.Rule, f.Incomplete, f.Handle, f.Position = r.String(), r.incomplete(), r.Handle, r.Position
	f.Effect, f.Networks = effect(d.table.Family, r), networks(d.table.Family, r)
	if r.Counted {
		f.Packets, f.Bytes = &r.Packets, &r.Bytes
	}
	return f
}

func (d *decision) finding(kind Kind, chain, versions string) Finding {
	return Finding{
		Backend: d.backend, Family: d.table.Family, Table: d.table.Name, Chain: chain,
		Kind: kind, State: StateFound, Versions: versions,
	}
}

// newChain is a chain as `iptables -S` prints it.
func newChain(name string) string { return printable("-N " + name) }

// holders says what keeps a chain from being deleted.
func holders(c *Chain) []string {
	var all []string
	for _, m := range c.Maps {
		if m.Chain != "" {
			all = append(all, fmt.Sprintf("the anonymous verdict map %s in a rule of chain %s refers to it", m.Name, m.Chain))
		} else {
			all = append(all, fmt.Sprintf("the verdict map %s has an element that refers to it", m.Name))
		}
	}
	if c.Unseen > 0 {
		all = append(all, fmt.Sprintf("the kernel counts %d more references to it than it shows (perhaps elements of a verdict map that timed out)", c.Unseen))
	}
	return all
}

func union(a, b []netip.Prefix) []netip.Prefix {
	for _, p := range b {
		if !slices.Contains(a, p) {
			a = append(a, p)
		}
	}
	return a
}

// empty reports whether there is nothing to remove.
func (r Removal) empty() bool {
	return !r.Whole && len(r.Rules) == 0 && len(r.Flush) == 0 && len(r.Drop) == 0
}
