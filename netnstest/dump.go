package netnstest

import (
	"bytes"
	"encoding/hex"
	"strings"
)

// Dump is all that a namespace's packet filters hold, one line for each thing,
// in the kernel's order where order matters.
type Dump []Line

// Line is one table, chain, rule, set, element, object or flowtable.
type Line struct {
	// Key says what it is. In nf_tables:
	//
	//	rule ip nat POSTROUTING handle 7
	//
	// and in legacy, where things have no handles:
	//
	//	legacy ip nat POSTROUTING -> MASQUERADE
	//	legacy ip nat chain POSTROUTING policy ACCEPT
	//
	// A legacy rule's place is that of its line; its number would change with the
	// rules before it.
	Key string

	// Counters are legacy's, as in iptables-save: a rule's, or a chain's for the
	// packets that reached its end. Those of nf_tables are in Data.
	Counters string

	// Data is the rest: of nf_tables its netlink attributes, of a legacy rule what
	// it matches and its target's options.
	Data []byte
}

// String returns the line with its data in hexadecimal.
func (l Line) String() string {
	s := l.Key
	if l.Counters != "" {
		s += " " + l.Counters
	}
	if len(l.Data) > 0 {
		s += " " + hex.EncodeToString(l.Data)
	}
	return s
}

// Contains reports whether the line has the text in its key or in its data:
// a chain's name, a rule's comment.
func (l Line) Contains(text string) bool {
	return strings.Contains(l.Key, text) || bytes.Contains(l.Data, []byte(text))
}

func (l Line) equal(o Line) bool {
	return l.Key == o.Key && l.Counters == o.Counters && bytes.Equal(l.Data, o.Data)
}

// String returns the lines, each with a newline.
func (d Dump) String() string {
	var b strings.Builder
	for _, l := range d {
		b.WriteString(l.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// Without returns a copy that lacks the lines for which f returns true.
func (d Dump) Without(f func(Line) bool) Dump {
	var out Dump
	for _, l := range d {
		if !f(l) {
			out = append(out, l)
		}
	}
	return out
}

// WithoutLegacyPolicyCounters returns a copy without the counters of legacy
// chains' ends. iptables-legacy sets those of a whole table to zero whenever it
// changes something in it, whoever asks for it; rules keep theirs.
func (d Dump) WithoutLegacyPolicyCounters() Dump {
	out := append(Dump(nil), d...)
	for i, l := range out {
		if f := strings.Fields(l.Key); len(f) > 3 && f[0] == "legacy" && f[3] == "chain" {
			out[i].Counters = ""
		}
	}
	return out
}

// Dump reads everything in the namespace's packet filters from the kernel,
// handles and counters included, without any program and without changing
// anything. Equal dumps mean that nobody's ruleset was touched. Left out is what
// changes by itself or with things that are somebody else's: the use counts of
// nf_tables and the number of a set's elements, a rule's NFTA_RULE_POSITION, the
// time left to an element, padding, and in legacy all offsets (jumps have their
// chain's name instead).
//
// It covers nf_tables, all families, and iptables-legacy's IPv4 and IPv6; it does
// not cover legacy arptables and ebtables. What the kernel lacks is empty.
func (ns *NS) Dump() Dump {
	ns.t.Helper()
	var d Dump
	var err error
	ns.Do(func() {
		if d, err = dumpNFT(); err != nil {
			return
		}
		var legacy Dump
		legacy, err = dumpLegacy()
		d = append(d, legacy...)
	})
	if err != nil {
		ns.t.Fatalf("dump the ruleset: %v", err)
	}
	return d
}
