package legacy

import (
	"bytes"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/internal/xtables"
)

// savedTable is a table in the text of iptables-save.
type savedTable struct {
	name     string
	policies map[string]string // of each chain; "-" of one that is not built in
	rules    []savedRule
}

// savedRule is the line of a rule, not yet taken apart.
type savedRule struct {
	chain    string
	counters string // `PACKETS:BYTES`, or ""
	line     string // `-A CHAIN …`
}

// parseSave reads what iptables-save wrote, with counters (-c) or without. It
// takes nothing that it does not know: a comment that contains a line break, for
// one, is written as it is, and what follows it must not pass for a rule.
func parseSave(text []byte) ([]*savedTable, error) {
	var tables []*savedTable
	var t *savedTable
	number := 0
	for raw := range bytes.Lines(text) {
		number++
		line := strings.TrimSuffix(string(raw), "\n")
		var err error
		switch {
		case line == "", line[0] == '#':
		case line[0] == '*' && t == nil:
			t = &savedTable{name: line[1:], policies: map[string]string{}}
		case line == "COMMIT" && t != nil:
			tables = append(tables, t)
			t = nil
		case line[0] == ':' && t != nil:
			err = t.addChain(line)
		case t != nil:
			err = t.addRule(line)
		default:
			err = fmt.Errorf("unknown line %q", line)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d of iptables-save: %w", number, err)
		}
	}
	if t != nil {
		return nil, fmt.Errorf("table %s of iptables-save has no end", t.name)
	}
	return tables, nil
}

// addChain reads `:NAME POLICY [PACKETS:BYTES]`.
func (t *savedTable) addChain(line string) error {
	fields := strings.Fields(line[1:])
	if len(fields) != 3 {
		return fmt.Errorf("unknown form of a chain: %q", line)
	}
	if _, ok := t.policies[fields[0]]; ok {
		return fmt.Errorf("chain twice: %q", line)
	}
	t.policies[fields[0]] = fields[1]
	return nil
}

// addRule reads `-A CHAIN …`, or `[PACKETS:BYTES] -A CHAIN …`.
func (t *savedTable) addRule(line string) error {
	r := savedRule{line: line}
	if strings.HasPrefix(line, "[") {
		r.counters, r.line, _ = strings.Cut(line[1:], "] ")
	}
	rest, ok := strings.CutPrefix(r.line, "-A ")
	r.chain, _, _ = strings.Cut(rest, " ")
	if _, known := t.policies[r.chain]; !ok || !known {
		return fmt.Errorf("unknown form of a rule: %q", line)
	}
	t.rules = append(t.rules, r)
	return nil
}

// parse takes a rule's line apart; the position is the caller's to set.
func (t *savedTable) parse(s savedRule) (unflannel.Rule, error) {
	r := unflannel.Rule{Chain: s.chain}
	if s.counters != "" {
		packets, count, _ := strings.Cut(s.counters, ":")
		var err1, err2 error
		r.Packets, err1 = strconv.ParseUint(packets, 10, 64)
		r.Bytes, err2 = strconv.ParseUint(count, 10, 64)
		if err1 != nil || err2 != nil {
			return r, fmt.Errorf("unknown form of counters: %q", s.counters)
		}
		r.Counted = true
	}
	tokens, err := tokenize(s.line)
	if err != nil {
		return r, err
	}
	if err := t.parseOptions(&r, tokens[2:]); err != nil {
		return r, fmt.Errorf("%w: %q", err, s.line)
	}
	return r, nil
}

// parseOptions reads what comes after the chain: iptables-save writes the
// conditions of the rule itself first, then matches, then the target.
func (t *savedTable) parseOptions(r *unflannel.Rule, tokens []token) error {
	not := false
	for len(tokens) > 0 {
		option := tokens[0].raw
		tokens = tokens[1:]
		switch option {
		case "!":
			not = true
			continue
		case "-f":
			opaque(r, "-f", negated(not, "-f"))
			not = false
			continue
		case "-s", "-d", "-i", "-o", "-p", "-m", "-j", "-g":
		default:
			return fmt.Errorf("unknown option %s", option)
		}
		if len(tokens) == 0 {
			return fmt.Errorf("option %s without a value", option)
		}
		value := tokens[0].text
		tokens = tokens[1:]
		switch option {
		case "-s":
			parseAddress(r, &r.Source, option, value, not)
		case "-d":
			parseAddress(r, &r.Destination, option, value, not)
		case "-i":
			r.In = unflannel.Condition{Value: value, Not: not}
		case "-o":
			r.Out = unflannel.Condition{Value: value, Not: not}
		case "-p":
			r.Protocol = unflannel.Condition{Value: protocolName(value), Not: not}
		case "-m":
			n := matchLength(tokens)
			m := unflannel.Match{Name: value, Args: join(tokens[:n])}
			if value == "comment" && n == 2 && tokens[0].raw == "--comment" {
				m.Args = tokens[1].text
			}
			r.Matches = append(r.Matches, m)
			tokens = tokens[n:]
		case "-j", "-g":
			_, chain := t.policies[value]
			r.Target = unflannel.Target{Name: value, Chain: chain, Goto: option == "-g", Args: join(tokens)}
			tokens = nil
		}
		not = false
	}
	return nil
}

// matchLength returns how many tokens are a match's options: all until the next
// match or the target. A comment's text can be anything, also -j.
func matchLength(tokens []token) int {
	for i := 0; i < len(tokens); i++ {
		switch tokens[i].raw {
		case "--comment":
			i++
		case "-m", "-j", "-g":
			return i
		}
	}
	return len(tokens)
}

// parseAddress keeps an address that is no prefix (its mask has gaps) as opaque.
func parseAddress(r *unflannel.Rule, to *unflannel.Address, option, value string, not bool) {
	prefix, err := netip.ParsePrefix(value)
	if err != nil {
		opaque(r, option, negated(not, option+" "+value))
		return
	}
	*to = unflannel.Address{Prefix: prefix, Not: not}
}

// protocolName makes one name of those that a protocol has in iptables and in
// different /etc/protocols.
func protocolName(value string) string {
	switch value {
	case "icmpv6":
		return "ipv6-icmp"
	case "mh", "mobility-header":
		return "ipv6-mh"
	}
	if n, err := strconv.ParseUint(value, 10, 8); err == nil {
		return xtables.Protocol(uint8(n))
	}
	return value
}

// token is a word of a line, as it was written and without its quotes.
type token struct{ raw, text string }

// tokenize splits a line as iptables-restore does: at spaces outside of double
// quotes; in these, \ takes away what a character means.
func tokenize(line string) ([]token, error) {
	var tokens []token
	for i := 0; i < len(line); {
		if line[i] == ' ' {
			i++
			continue
		}
		start, quoted := i, false
		var text strings.Builder
		for ; i < len(line) && (quoted || line[i] != ' '); i++ {
			switch {
			case line[i] == '"':
				quoted = !quoted
			case quoted && line[i] == '\\' && i+1 < len(line):
				i++
				text.WriteByte(line[i])
			default:
				text.WriteByte(line[i])
			}
		}
		if quoted {
			return nil, fmt.Errorf("quote without an end: %q", line)
		}
		tokens = append(tokens, token{line[start:i], text.String()})
	}
	return tokens, nil
}

func join(tokens []token) string {
	raw := make([]string, len(tokens))
	for i, t := range tokens {
		raw[i] = t.raw
	}
	return strings.Join(raw, " ")
}
