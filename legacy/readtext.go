package legacy

import (
	"context"
	"fmt"
	"strings"

	"github.com/unflannel/unflannel"
)

// readText reads a table through iptables-save, where the kernel does not let this
// program look. Without -t, iptables-save goes by the same list of names as
// [Backend.Read] and creates nothing.
func (b *Backend) readText(ctx context.Context, q unflannel.Query) (*unflannel.Table, error) {
	p, err := b.findPrograms(ctx, q.Family)
	if err != nil {
		return nil, fmt.Errorf("the kernel does not show this table to a 32-bit program, and there is no other to ask: %w", err)
	}
	text, err := b.run(ctx, p.save, nil, "-c")
	if err != nil {
		return nil, err
	}
	saved, err := parseSave(text)
	if err != nil {
		return nil, err
	}
	t := &unflannel.Table{Family: q.Family, Name: q.Table}
	for _, s := range saved {
		if s.name == q.Table {
			t.Chains, err = s.chains(q.Chains)
			return t, err
		}
	}
	return nil, fmt.Errorf("%s does not show the table", p.save)
}

// chains returns the wanted chains that the table has, and the rules that refer to
// them.
func (t *savedTable) chains(wanted []string) ([]*unflannel.Chain, error) {
	var chains []*unflannel.Chain
	for _, name := range wanted {
		policy, ok := t.policies[name]
		if !ok {
			continue
		}
		c := &unflannel.Chain{Name: name}
		if policy != "-" {
			c.Hook, c.Policy = strings.ToLower(name), policy
		}
		chains = append(chains, c)
	}
	positions := map[string]int{}
	for _, s := range t.rules {
		r, err := t.parse(s)
		if err != nil {
			return nil, err
		}
		positions[s.chain]++
		r.Position = positions[s.chain]
		for _, c := range chains {
			switch {
			case r.Chain == c.Name:
				c.Rules = append(c.Rules, r)
			case r.Target.Chain && r.Target.Name == c.Name:
				c.References = append(c.References, r)
			}
		}
	}
	return chains, nil
}
