package legacy

import (
	"bytes"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/unflannel/unflannel"
)

// hookNames are the names of the built-in chains, in the order of the kernel's
// hook numbers.
var hookNames = [...]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// hooks says where a table's built-in chains begin, and where their policies are.
type hooks struct {
	valid            uint32 // a bit for each hook that the table has
	entry, underflow [len(hookNames)]uint32
}

// table is a whole table as the kernel hands it out: entries without a break. A
// built-in chain is the entries from its hook's to its policy, both included. Any
// other begins with a head, an entry whose target is ERROR and holds the chain's
// name, and ends with a RETURN that iptables puts there. The last entry of all is
// a head too, with the name ERROR.
type table struct {
	*layout
	hooks
	entries uint32 // how many the kernel counts
	data    []byte
}

// extent is where a chain is in a table.
type extent struct {
	hook  int // -1 of a chain that is not built in
	name  int // offset of the name of such a chain
	first int // offset of its first rule, or of end
	end   int // offset of the policy or the last RETURN, which are not rules
}

// index goes through the whole table and returns its chains in the order of
// their offsets. What it returned no error for holds together: all extents are
// made of entries with targets inside the data.
func (t *table) index() ([]extent, error) {
	var (
		chains   []extent
		open     bool // the last of chains has no end yet
		previous int
		count    uint32
		hooks    uint32
	)
	for at := 0; ; {
		e, err := t.entryAt(at)
		if err != nil {
			return nil, err
		}
		count++
		next := at + e.next
		head, hook := t.isHead(at, e), t.hookAt(at)
		if head || hook >= 0 {
			if open {
				if err := t.close(&chains[len(chains)-1], previous); err != nil {
					return nil, err
				}
			}
			open = true
		}
		switch {
		case head && hook >= 0:
			return nil, fmt.Errorf("hook %s begins with a chain's head", hookNames[hook])
		case head && next == len(t.data):
			if count != t.entries {
				return nil, fmt.Errorf("%d entries instead of %d", count, t.entries)
			}
			if hooks != t.valid {
				return nil, fmt.Errorf("hooks %#x without a chain", t.valid&^hooks)
			}
			return chains, nil
		case head && bytes.IndexByte(t.data[at+e.target+extensionSize:at+e.target+e.targetSize], 0) <= 0:
			return nil, fmt.Errorf("chain at %d has no name", at)
		case head:
			chains = append(chains, extent{hook: -1, name: at + e.target + extensionSize, first: next})
		case hook >= 0:
			hooks |= 1 << hook
			chains = append(chains, extent{hook: hook, first: at})
		case !open:
			return nil, fmt.Errorf("entry at %d is in no chain", at)
		}
		previous, at = at, next
	}
}

// close sets a chain's end to the chain's last entry, and checks that it is a
// policy or a RETURN.
func (t *table) close(c *extent, last int) error {
	c.end = last
	if last < c.first {
		return fmt.Errorf("chain %q has no end", t.nameOf(*c))
	}
	e, err := t.entryAt(last)
	if err != nil {
		return err
	}
	verdict, ok := t.verdict(last, e)
	bare := ok && e.target == t.size
	if c.hook < 0 {
		if !bare || verdict != verdictReturn {
			return fmt.Errorf("chain %q does not end with RETURN", t.nameOf(*c))
		}
		return nil
	}
	if !bare || uint32(last) != t.underflow[c.hook] || verdict != verdictAccept && verdict != verdictDrop {
		return fmt.Errorf("chain %q does not end with its policy", t.nameOf(*c))
	}
	return nil
}

// chains decodes the wanted chains that the table has, and the rules that refer
// to them. It steps over all other rules without looking into them.
func (t *table) chains(wanted []string) ([]*unflannel.Chain, error) {
	index, err := t.index()
	if err != nil {
		return nil, err
	}
	type found struct {
		*unflannel.Chain
		extent
	}
	var all []found
	for _, name := range wanted {
		for _, x := range index {
			if !t.isNamed(x, name) {
				continue
			}
			c := &unflannel.Chain{Name: name}
			if x.hook >= 0 {
				c.Hook = strings.ToLower(name)
				c.Policy = t.policy(x)
			}
			all = append(all, found{c, x})
			break
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	for _, x := range index {
		var own *unflannel.Chain
		for _, f := range all {
			if f.first == x.first {
				own = f.Chain
			}
		}
		for at, position := x.first, 1; at < x.end; position++ {
			e, err := t.entryAt(at)
			if err != nil {
				return nil, err
			}
			var refers *unflannel.Chain
			if verdict, ok := t.verdict(at, e); ok && verdict != at+e.next {
				for _, f := range all {
					if f.first == verdict && f.Chain != own {
						refers = f.Chain
					}
				}
			}
			if own != nil || refers != nil {
				rule, err := t.rule(index, at, e)
				if err != nil {
					return nil, fmt.Errorf("rule %d of chain %q: %w", position, t.nameOf(x), err)
				}
				rule.Chain, rule.Position = t.nameOf(x), position
				if own != nil {
					own.Rules = append(own.Rules, rule)
				}
				if refers != nil {
					refers.References = append(refers.References, rule)
				}
			}
			at += e.next
		}
	}
	chains := make([]*unflannel.Chain, len(all))
	for i, f := range all {
		chains[i] = f.Chain
	}
	return chains, nil
}

// chainAt returns the name of the chain whose first rule is at an offset.
func (t *table) chainAt(index []extent, first int) (string, bool) {
	i := sort.Search(len(index), func(i int) bool { return index[i].first >= first })
	if i == len(index) || index[i].first != first {
		return "", false
	}
	return t.nameOf(index[i]), true
}

func (t *table) nameOf(c extent) string {
	if c.hook >= 0 {
		return hookNames[c.hook]
	}
	return string(cString(t.data[c.name:]))
}

// isNamed is nameOf(c) == name without an allocation for each chain of the table.
func (t *table) isNamed(c extent, name string) bool {
	if c.hook >= 0 {
		return hookNames[c.hook] == name
	}
	return string(cString(t.data[c.name:])) == name
}

func (t *table) policy(c extent) string {
	if e, err := t.entryAt(c.end); err == nil {
		if v, ok := t.verdict(c.end, e); ok && v == verdictDrop {
			return "DROP"
		}
	}
	return "ACCEPT"
}

// hookAt returns the number of the hook that begins at an offset, or -1.
func (t *table) hookAt(at int) int {
	for i, entry := range t.entry {
		if t.valid&(1<<i) != 0 && entry == uint32(at) {
			return i
		}
	}
	return -1
}

// entry is the outline of an entry: where its target and the next entry are,
// counted from its own begin, and the size of the target.
type entry struct{ target, targetSize, next int }

var errCut = errors.New("the table ends inside an entry")

// entryAt reads the outline of the entry at an offset and checks that nothing of
// it sticks out.
func (t *table) entryAt(at int) (entry, error) {
	if at < 0 || at+t.size+extensionSize > len(t.data) {
		return entry{}, errCut
	}
	b := t.data[at:]
	e := entry{
		target: int(host.Uint16(b[t.targetOffset:])),
		next:   int(host.Uint16(b[t.nextOffset:])),
	}
	if e.next > len(b) {
		return entry{}, errCut
	}
	if e.target < t.size || e.target+extensionSize > e.next {
		return entry{}, fmt.Errorf("target of the entry at %d is outside of it", at)
	}
	e.targetSize = int(host.Uint16(b[e.target:]))
	if e.targetSize < extensionSize || e.target+e.targetSize > e.next {
		return entry{}, fmt.Errorf("target of the entry at %d has an impossible size", at)
	}
	return e, nil
}

// The verdicts of a standard target: -1 minus the kernel's NF_DROP, NF_ACCEPT and
// NF_QUEUE, and what iptables calls RETURN. From 0 on, they are the offset of the
// rule to go on with.
const (
	verdictDrop   = -1
	verdictAccept = -2
	verdictQueue  = -4
	verdictReturn = -5
)

// verdict returns the verdict of an entry with a standard target, whose name is
// empty.
func (t *table) verdict(at int, e entry) (int, bool) {
	target := t.data[at+e.target:]
	if target[extensionName] != 0 || e.targetSize < extensionSize+4 {
		return 0, false
	}
	return int(int32(host.Uint32(target[extensionSize:]))), true
}

var errorName = []byte("ERROR\x00")

// isHead reports whether an entry is a chain's head, which holds a name.
func (t *table) isHead(at int, e entry) bool {
	target := t.data[at+e.target:]
	return e.targetSize > extensionSize && bytes.HasPrefix(target[extensionName:], errorName)
}

// cString returns what stands before the first NUL.
func cString(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}
