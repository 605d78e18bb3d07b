package unflannel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"
)

// Family is the protocol family of a table, by nf_tables' name for it.
type Family string

// The families that Flannel writes to.
const (
	IP  Family = "ip"
	IP6 Family = "ip6"
)

// Rule is one rule of a chain, decoded by a backend into iptables' terms. What a
// backend does not understand is kept as an opaque [Match] or [Target], never
// dropped, so that a rule that says more than the catalogue knows cannot be
// taken for Flannel's.
type Rule struct {
	Chain    string // the chain it stands in
	Handle   uint64 // nf_tables' handle of the rule; 0 in legacy
	Position int    // its place in the chain, from 1, when it was read

	Counted        bool   // whether the rule has a counter (native nf_tables rules may lack one)
	Packets, Bytes uint64 // what the counter held when the rule was read

	Source, Destination Address
	In, Out             Condition // input and output interface; a trailing + matches any suffix
	Protocol            Condition // by its name in iptables-save, or its number
	Matches             []Match   // all other conditions, in the rule's order
	Target              Target
}

// Address is a condition on a packet's source or destination. The zero Address
// is no condition.
type Address struct {
	Prefix netip.Prefix
	Not    bool // the address must be outside Prefix
}

// Condition is a condition on a name, or on its absence. The zero Condition is
// no condition.
type Condition struct {
	Value string
	Not   bool // the packet's must be another
}

// Match is a further condition of a rule.
type Match struct {
	Name string // iptables' name of the match: comment, mark, tcp, …
	// Args are the match's options as iptables-save writes them; of a comment,
	// its bare text; of an opaque match, a description.
	Args   string
	Opaque bool // the backend does not understand the match, or not all of it
}

// Target is what becomes of a packet that a rule matches. The zero Target is
// none: the packet is counted and goes on.
type Target struct {
	Name   string // a verdict (ACCEPT), an extension (MASQUERADE), or a chain
	Chain  bool   // Name is a chain of the same table
	Goto   bool   // to that chain by goto: it returns to the caller of the rule's chain
	Args   string // the target's options as iptables-save writes them, or a description
	Opaque bool   // the backend does not understand the target's options
}

// Comment returns the text of the rule's only comment, and whether it has
// exactly one.
func (r Rule) Comment() (text string, ok bool) {
	n := 0
	for _, m := range r.Matches {
		if m.Name == "comment" && !m.Opaque {
			text = m.Args
			n++
		}
	}
	return text, n == 1
}

// incomplete reports whether the backend did not understand a part of the rule.
func (r Rule) incomplete() bool {
	return r.Target.Opaque || slices.ContainsFunc(r.Matches, func(m Match) bool { return m.Opaque })
}

// String returns the rule as `iptables -S` prints it. Parts that the backend
// does not understand stand in brackets.
func (r Rule) String() string {
	b := []byte("-A " + r.Chain)
	b = r.Source.append(b, "-s")
	b = r.Destination.append(b, "-d")
	b = r.In.append(b, "-i")
	b = r.Out.append(b, "-o")
	b = r.Protocol.append(b, "-p")
	for _, m := range r.Matches {
		b = append(append(b, ' '), m.String()...)
	}
	if t := r.Target.String(); t != "" {
		b = append(append(b, ' '), t...)
	}
	return printable(string(b))
}

// printable writes control characters, which could forge a line of a report, as in
// Go. The kernel allows them in comments and in names of chains.
func printable(s string) string {
	if !strings.ContainsFunc(s, unicode.IsControl) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unicode.IsControl(r) {
			fmt.Fprintf(&b, `\x%02x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func (a Address) append(b []byte, option string) []byte {
	if a == (Address{}) {
		return b
	}
	return Condition{a.Prefix.String(), a.Not}.append(b, option)
}

func (c Condition) append(b []byte, option string) []byte {
	if c == (Condition{}) {
		return b
	}
	if c.Not {
		b = append(b, " !"...)
	}
	return append(append(append(append(b, ' '), option...), ' '), c.Value...)
}

// String returns the match in iptables' syntax.
func (m Match) String() string {
	switch {
	case m.Opaque:
		return "[" + m.Args + "]"
	case m.Name == "comment":
		return "-m comment --comment " + quote(m.Args)
	case m.Args == "":
		return "-m " + m.Name
	}
	return "-m " + m.Name + " " + m.Args
}

// String returns the target in iptables' syntax, or "" for none.
func (t Target) String() string {
	if t == (Target{}) {
		return ""
	}
	s := "-j " + t.Name
	if t.Goto {
		s = "-g " + t.Name
	}
	switch {
	case t.Opaque:
		s += " [" + t.Args + "]"
	case t.Args != "":
		s += " " + t.Args
	}
	return s
}

// quote writes a string as iptables-save does: bare where it holds nothing but
// letters, digits, '-' and '_', else in double quotes with \ before ", ' and \.
func quote(s string) string {
	bare := s != ""
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(s) {
		switch {
		case c == '"', c == '\'', c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
			bare = false
		default:
			b.WriteByte(c)
			bare = bare && (c == '-' || c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z')
		}
	}
	if bare {
		return s
	}
	b.WriteByte('"')
	return b.String()
}
