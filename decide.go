package unflannel

import (
	"fmt"
	"strings"
)

// decide says what of a table's content is Flannel's, and what of that to remove.
// It only looks: the same table gives the same answer, whatever the backend.
func decide(backend string, t *Table) ([]Finding, Removal) {
	d := decision{backend: backend, removal: Removal{Table: t}}
	for _, c := range t.Chains {
		if isOwnChain(t.Name, c.Name) {
			d.ownChain(t, c)
		}
	}
	if t.Owner != 0 {
		reason := fmt.Sprintf("the table belongs to the process with netlink port %d (usually its process id): "+
			"only that process can change it; stop it, or remove the rules there", t.Owner)
		for i := range d.findings {
			d.findings[i].Reason = reason
		}
		d.removal = Removal{Table: t}
	}
	return d.findings, d.removal
}

type decision struct {
	backend  string
	findings []Finding
	removal  Removal
}

func (d *decision) ownChain(t *Table, c *Chain) {
	chain := Finding{
		Backend: d.backend, Family: t.Family, Table: t.Name, Chain: c.Name,
		Kind: KindChain, Rule: "-N " + c.Name, Handle: c.Handle,
	}
	if c.Hook != "" {
		chain.Kind = KindBaseChain
		chain.Reason = fmt.Sprintf("it has the hook %s, so it is not Flannel's, whose chain has none: not touched", c.Hook)
		d.findings = append(d.findings, chain)
		return
	}
	for _, r := range c.References {
		d.rule(t, KindJump, r)
		if !isOwnChain(t.Name, r.Chain) { // there it goes with its chain
			d.removal.Rules = append(d.removal.Rules, r)
		}
	}
	for _, r := range c.Rules {
		d.rule(t, KindRule, r)
	}
	if len(c.Maps) > 0 || c.Unseen > 0 {
		chain.Reason = "it is emptied but kept: " + strings.Join(holders(c), " and ") + "; remove that, then run again"
		if len(c.Rules) > 0 {
			d.removal.Flush = append(d.removal.Flush, c)
		}
	} else {
		d.removal.Drop = append(d.removal.Drop, c)
	}
	d.findings = append(d.findings, chain)
}

func (d *decision) rule(t *Table, kind Kind, r Rule) {
	f := Finding{
		Backend: d.backend, Family: t.Family, Table: t.Name, Chain: r.Chain,
		Kind: kind, Rule: r.String(), Handle: r.Handle, Position: r.Position,
	}
	if r.Counted {
		f.Packets, f.Bytes = &r.Packets, &r.Bytes
	}
	d.findings = append(d.findings, f)
}

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

// empty reports whether there is nothing to remove.
func (r Removal) empty() bool {
	return len(r.Rules) == 0 && len(r.Flush) == 0 && len(r.Drop) == 0
}
