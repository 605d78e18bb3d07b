package netnstest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

var native = binary.NativeEndian

var errLegacyFormat = errors.New("malformed table")

// hookNames are the built-in chains by netfilter's number of their hook.
var hookNames = [...]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// targetHeadSize is the size of struct xt_entry_target, which is its own size in
// 2 bytes, its name in 29, and its revision.
const targetHeadSize = 32

// legacyChain is a chain; its last entry is its end, not a rule: the policy of a
// built-in chain, the return of any other.
type legacyChain struct {
	name    string
	builtin bool
	entries []legacyEntry
}

type legacyEntry struct {
	offset, next uint32
	counters     string
	match        []byte
	target       []byte
}

func (e legacyEntry) targetName() string { return cutNUL(e.target[2:31]) }

// verdict returns the verdict of a standard target.
func (e legacyEntry) verdict() (v int32, ok bool) {
	if e.targetName() != "" || len(e.target) < targetHeadSize+4 {
		return 0, false
	}
	return int32(native.Uint32(e.target[targetHeadSize:])), true
}

// decode turns a table's entries into lines: for each chain one of its own, then
// its rules.
func (f legacyFamily) decode(table string, info, blob []byte) (Dump, error) {
	hooks := map[uint32]string{} // by offset of the chain
	for valid := native.Uint32(info[32:]); valid != 0; valid &= valid - 1 {
		h := bits.TrailingZeros32(valid)
		if h >= len(hookNames) {
			return nil, fmt.Errorf("%w: hook %d", errLegacyFormat, h)
		}
		hooks[native.Uint32(info[36+4*h:])] = hookNames[h]
	}

	chains, err := f.chains(blob, hooks)
	if err != nil {
		return nil, err
	}
	starts := map[uint32]string{} // by offset of the first entry, where jumps lead
	for _, c := range chains {
		if len(c.entries) == 0 {
			return nil, fmt.Errorf("%w: chain %s has no end", errLegacyFormat, c.name)
		}
		starts[c.entries[0].offset] = c.name
	}

	var d Dump
	prefix := "legacy " + f.name + " " + table + " "
	for _, c := range chains {
		end := c.entries[len(c.entries)-1]
		key := prefix + "chain " + c.name
		if c.builtin {
			key += " policy " + verdictName(end, starts)
		}
		d = append(d, Line{Key: key, Counters: end.counters})
		for _, e := range c.entries[:len(c.entries)-1] {
			l := Line{Key: prefix + c.name, Counters: e.counters, Data: e.match}
			if to := verdictName(e, starts); to != "" {
				l.Key += " -> " + to
			}
			if _, standard := e.verdict(); !standard {
				l.Data = append(l.Data, e.target...)
			}
			d = append(d, l)
		}
	}
	return d, nil
}

// chains divides the entries among the chains. A built-in chain begins where its
// hook does, any other at an ERROR target with its name, and a last ERROR target
// ends the table.
func (f legacyFamily) chains(blob []byte, hooks map[uint32]string) ([]legacyChain, error) {
	var chains []legacyChain
	for off := uint32(0); int(off) < len(blob); {
		e, err := f.entryAt(blob, off)
		if err != nil {
			return nil, err
		}
		name, hook := hooks[off]
		switch {
		case hook:
			chains = append(chains, legacyChain{name: name, builtin: true})
		case e.targetName() == "ERROR":
			if int(e.next) < len(blob) {
				chains = append(chains, legacyChain{name: cutNUL(e.target[targetHeadSize:])})
			}
			off = e.next
			continue
		case len(chains) == 0:
			return nil, fmt.Errorf("%w: a rule before the first chain", errLegacyFormat)
		}
		c := &chains[len(chains)-1]
		c.entries = append(c.entries, e)
		off = e.next
	}
	return chains, nil
}

// entryAt decodes the struct ipt_entry at an offset.
func (f legacyFamily) entryAt(blob []byte, off uint32) (legacyEntry, error) {
	b := blob[off:]
	if len(b) < f.entry {
		return legacyEntry{}, fmt.Errorf("%w: cut off at %d", errLegacyFormat, off)
	}
	// After the match part come nfcache, the two offsets and comefrom; of these
	// only the offsets mean anything, and not to a reader of the rule.
	target, next := int(native.Uint16(b[f.match+4:])), int(native.Uint16(b[f.match+6:]))
	if target < f.entry || next < target+targetHeadSize || next > len(b) {
		return legacyEntry{}, fmt.Errorf("%w: offsets %d, %d of the entry at %d", errLegacyFormat, target, next, off)
	}
	counters := b[f.entry-16:]
	match := append([]byte(nil), b[:f.match]...)
	return legacyEntry{
		offset:   off,
		next:     off + uint32(next),
		counters: fmt.Sprintf("[%d:%d]", native.Uint64(counters), native.Uint64(counters[8:])),
		match:    append(match, b[f.entry:target]...),
		target:   b[target:next],
	}, nil
}

// verdictName returns the name of the entry's target or of the chain it jumps
// to, and "" if the packet just goes on to the next rule.
func verdictName(e legacyEntry, starts map[uint32]string) string {
	v, standard := e.verdict()
	switch {
	case !standard:
		return e.targetName()
	case v >= 0:
		if uint32(v) == e.next {
			return ""
		}
		if name, ok := starts[uint32(v)]; ok {
			return name
		}
		return fmt.Sprintf("offset %d", v)
	case v == -1:
		return "DROP"
	case v == -2:
		return "ACCEPT"
	case v == -4:
		return "QUEUE"
	case v == -5:
		return "RETURN"
	}
	return fmt.Sprintf("verdict %d", v)
}

func cutNUL(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}
