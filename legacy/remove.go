package legacy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/unflannel/unflannel"
)

// Remove applies the removals table by table, each by one atomic restore. When ctx
// ends, no further table is begun.
func (b *Backend) Remove(ctx context.Context, _ *unflannel.Snapshot, removals []unflannel.Removal) error {
	var errs []error
	found := map[unflannel.Family]programs{}
	for _, r := range removals {
		if len(r.Rules) == 0 && len(r.Flush) == 0 && len(r.Drop) == 0 {
			continue
		}
		fail := func(err error) {
			errs = append(errs, &unflannel.Error{Op: "remove rules", Backend: b.Name(),
				Family: r.Table.Family, Table: r.Table.Name, Chain: firstChain(r), Err: err, Advice: adviceOnRemove(err)})
		}
		p, ok := found[r.Table.Family]
		if !ok {
			var err error
			if p, err = b.findPrograms(ctx, r.Table.Family); err != nil {
				fail(err)
				continue
			}
			found[r.Table.Family] = p
		}
		if err := b.removeFrom(ctx, p, r); err != nil {
			fail(err)
		}
	}
	return errors.Join(errs...)
}

// firstChain names a chain for a message: one that goes, or one that a rule
// stands in.
func firstChain(r unflannel.Removal) string {
	switch {
	case len(r.Drop) > 0:
		return r.Drop[0].Name
	case len(r.Flush) > 0:
		return r.Flush[0].Name
	}
	return r.Rules[0].Chain
}

// removeFrom removes from one table. The text of iptables-save is trusted only if
// the kernel shows the snapshot's rules both before and after it was written. From
// then on the restore looks after itself: it names rules by what they say and
// chains by name, fails as a whole if one is missing or a chain is still in use,
// and holds the lock.
func (b *Backend) removeFrom(ctx context.Context, p programs, r unflannel.Removal) error {
	if _, err := b.unchanged(ctx, r.Table); err != nil {
		return err
	}
	text, err := b.run(ctx, p.save, nil, "-t", r.Table.Name)
	if err != nil {
		return err
	}
	entries, err := b.unchanged(ctx, r.Table)
	if err != nil {
		return err
	}
	input, err := restoreInput(text, r, entries)
	if err != nil {
		return fmt.Errorf("%s: %w", p.save, err)
	}
	return b.restore(ctx, p.restore, input)
}

// unchanged reads a table again and returns how many entries the kernel counts in
// it, or an error that wraps ErrConflict if it is not what the snapshot says.
func (b *Backend) unchanged(ctx context.Context, snapshot *unflannel.Table) (int, error) {
	names, _, err := b.tableNames(snapshot.Family)
	if err != nil {
		return 0, err
	}
	if !slices.Contains(names, snapshot.Name) {
		return 0, fmt.Errorf("the table is gone: %w", unflannel.ErrConflict)
	}
	q := unflannel.Query{Family: snapshot.Family, Table: snapshot.Name}
	for _, c := range snapshot.Chains {
		q.Chains = append(q.Chains, c.Name)
	}
	now, entries, err := b.readTable(ctx, q)
	if err != nil {
		return 0, err
	}
	same := slices.EqualFunc(now.Chains, snapshot.Chains, func(a, b *unflannel.Chain) bool {
		return a.Name == b.Name && slices.EqualFunc(a.Rules, b.Rules, sameRule) && slices.EqualFunc(a.References, b.References, sameRule)
	})
	if !same {
		return 0, unflannel.ErrConflict
	}
	return entries, nil
}

// sameRule compares rules without their counters.
func sameRule(a, b unflannel.Rule) bool {
	return a.Chain == b.Chain && a.Position == b.Position &&
		a.Source == b.Source && a.Destination == b.Destination && a.In == b.In && a.Out == b.Out && a.Protocol == b.Protocol &&
		slices.Equal(a.Matches, b.Matches) && a.Target == b.Target
}

// errNotUnderstood is text of iptables-save that does not agree with the kernel.
var errNotUnderstood = errors.New("output is not understood, nothing was removed")

// restoreInput writes what iptables-restore --noflush has to be told: each rule
// exactly as iptables-save has it, so that all that this package does not
// understand of it is in there too. text is the output of iptables-save, entries
// what the kernel counts in the table, or 0.
func restoreInput(text []byte, r unflannel.Removal, entries int) ([]byte, error) {
	saved, err := parseSave(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotUnderstood, err)
	}
	if len(saved) != 1 || saved[0].name != r.Table.Name {
		return nil, fmt.Errorf("%w: it is not the table %s", errNotUnderstood, r.Table.Name)
	}
	t := saved[0]
	if n := t.entries(); entries != 0 && n != entries {
		return nil, fmt.Errorf("%w: it has %d entries where the kernel counts %d", errNotUnderstood, n, entries)
	}
	emptied := map[string]bool{}
	for _, c := range slices.Concat(r.Flush, r.Drop) {
		emptied[c.Name] = true
	}
	wanted := map[place]unflannel.Rule{}
	for _, rule := range r.Rules {
		if !emptied[rule.Chain] {
			wanted[place{rule.Chain, rule.Position}] = rule
		}
	}

	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n", t.name)
	positions := map[string]int{}
	for _, s := range t.rules {
		positions[s.chain]++
		at := place{s.chain, positions[s.chain]}
		rule, ok := wanted[at]
		if !ok {
			continue
		}
		if err := t.agrees(s, rule); err != nil {
			return nil, fmt.Errorf("%w: %w", errNotUnderstood, err)
		}
		delete(wanted, at)
		b.WriteString("-D" + strings.TrimPrefix(s.line, "-A") + "\n")
	}
	for at := range wanted {
		return nil, fmt.Errorf("%w: it has no rule %d of chain %s", errNotUnderstood, at.position, at.chain)
	}
	for _, c := range slices.Concat(r.Flush, r.Drop) {
		fmt.Fprintf(&b, "-F %s\n", c.Name)
	}
	for _, c := range r.Drop {
		fmt.Fprintf(&b, "-X %s\n", c.Name)
	}
	b.WriteString("COMMIT\n")
	return []byte(b.String()), nil
}

// place is where a rule stands.
type place struct {
	chain    string
	position int
}

// entries returns how many entries the kernel must count for this text: the rules,
// a policy for each built-in chain, a head and a RETURN for each other, and the
// end of the table.
func (t *savedTable) entries() int {
	n := len(t.rules) + 1
	for _, policy := range t.policies {
		n++
		if policy == "-" {
			n++
		}
	}
	return n
}

// agrees returns an error if a line says something else than the rule that the
// kernel has in its place. Of a rule with parts that are not understood, and so
// cannot be compared, the place has to be enough.
func (t *savedTable) agrees(s savedRule, rule unflannel.Rule) error {
	if !hasOneForm(rule) {
		return nil
	}
	parsed, err := t.parse(s)
	if err != nil {
		return err
	}
	if have, want := parsed.String(), rule.String(); have != want {
		return fmt.Errorf("it has %q where the kernel has %q", have, want)
	}
	return nil
}

// hasOneForm reports whether iptables-save is sure to write a rule as this package
// does. Protocols without a name of iptables' own may get one from /etc/protocols.
func hasOneForm(r unflannel.Rule) bool {
	if p := r.Protocol.Value; p != "" && p[0] <= '9' {
		return false
	}
	return !r.Target.Opaque && !slices.ContainsFunc(r.Matches, func(m unflannel.Match) bool { return m.Opaque })
}
