package legacy

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/internal/xtables"
)

// rule decodes an entry of the table; chain and position are the caller's to set.
func (t *table) rule(index []extent, at int, e entry) (unflannel.Rule, error) {
	b := t.data[at : at+e.next]
	r := unflannel.Rule{
		Counted: true,
		Packets: host.Uint64(b[t.counters:]),
		Bytes:   host.Uint64(b[t.counters+8:]),
	}
	t.decodeAddresses(&r, b)
	t.decodeInterfaces(&r, b)
	t.decodeProtocol(&r, b)
	if err := t.decodeMatches(&r, b[t.size:e.target]); err != nil {
		return r, err
	}
	target, err := t.decodeTarget(index, at, e)
	r.Target = target
	return r, err
}

// opaque keeps a condition that has no place in a Rule as a match that is shown
// and never taken for one that is understood.
func opaque(r *unflannel.Rule, name, text string) {
	r.Matches = append(r.Matches, unflannel.Match{Name: name, Args: text, Opaque: true})
}

func negated(not bool, text string) string {
	if not {
		return "! " + text
	}
	return text
}

func (t *table) decodeAddresses(r *unflannel.Rule, b []byte) {
	for _, side := range []struct {
		to            *unflannel.Address
		option        string
		address, mask int
		not           bool
	}{
		{&r.Source, "-s", t.source, t.sourceMask, b[t.inverted]&invertSource != 0},
		{&r.Destination, "-d", t.destination, t.destinationMask, b[t.inverted]&invertDestination != 0},
	} {
		address, mask := b[side.address:][:t.addressSize], b[side.mask:][:t.addressSize]
		if allZero(address) && allZero(mask) && !side.not {
			continue
		}
		a, _ := netip.AddrFromSlice(address)
		ones, bits := net.IPMask(mask).Size()
		if bits == 0 { // ones and zeros mixed
			m, _ := netip.AddrFromSlice(mask)
			opaque(r, side.option, negated(side.not, fmt.Sprintf("%s %s/%s", side.option, a, m)))
			continue
		}
		*side.to = unflannel.Address{Prefix: netip.PrefixFrom(a, ones), Not: side.not}
	}
}

func (t *table) decodeInterfaces(r *unflannel.Rule, b []byte) {
	for _, side := range []struct {
		to         *unflannel.Condition
		option     string
		name, mask int
		not        bool
	}{
		{&r.In, "-i", t.in, t.inMask, b[t.inverted]&invertIn != 0},
		{&r.Out, "-o", t.out, t.outMask, b[t.inverted]&invertOut != 0},
	} {
		name, mask := b[side.name:][:interfaceSize], b[side.mask:][:interfaceSize]
		text, ok := interfaceName(name, mask)
		switch {
		case !ok:
			opaque(r, side.option, negated(side.not, fmt.Sprintf("%s %q/%s", side.option, cString(name), hex.EncodeToString(mask))))
		case text == "+" && !side.not:
			// Any interface is no condition. Inverted it is met by none, which
			// iptables-save does not show.
		default:
			*side.to = unflannel.Condition{Value: text, Not: side.not}
		}
	}
}

// interfaceName returns what iptables was given: the kernel compares the bytes
// under the mask, which covers the NUL of a whole name and ends before it where
// any suffix will do.
func interfaceName(name, mask []byte) (string, bool) {
	covered := 0
	for covered < len(mask) && mask[covered] == 0xff {
		covered++
	}
	if !allZero(mask[covered:]) {
		return "", false
	}
	text := cString(name[:covered])
	switch {
	case len(text) == covered && covered < len(mask):
		return string(text) + "+", true
	case len(text) == 0, !allZero(name[len(text):covered]):
		return "", false
	}
	return string(text), true
}

func (t *table) decodeProtocol(r *unflannel.Rule, b []byte) {
	const knownInversions = invertIn | invertOut | invertSource | invertDestination | invertFragment | invertProtocol
	flags, inverted := b[t.flags], b[t.inverted]
	number, not := host.Uint16(b[t.protocol:]), inverted&invertProtocol != 0
	conditional := t.flagProtocol == 0 || flags&t.flagProtocol != 0
	switch {
	case number == 0 && !(not && conditional && t.flagProtocol != 0):
		// All protocols are no condition, not even inverted in IPv4.
	case number == 0 || number > 0xff || !conditional:
		opaque(r, "-p", negated(not, fmt.Sprintf("-p %d", number)))
	default:
		r.Protocol = unflannel.Condition{Value: xtables.Protocol(uint8(number)), Not: not}
	}
	if flags&t.flagFragment != 0 || inverted&invertFragment != 0 {
		opaque(r, "-f", negated(inverted&invertFragment != 0, "-f"))
	}
	if rest := flags &^ (t.flagGoto | t.flagFragment | t.flagProtocol); rest != 0 {
		opaque(r, "flags", fmt.Sprintf("flags %#x", rest))
	}
	if rest := inverted &^ knownInversions; rest != 0 {
		opaque(r, "inverted flags", fmt.Sprintf("inverted flags %#x", rest))
	}
}

var errMatches = errors.New("matches do not fill their place")

func (t *table) decodeMatches(r *unflannel.Rule, b []byte) error {
	for len(b) > 0 {
		if len(b) < extensionSize {
			return errMatches
		}
		size := int(host.Uint16(b))
		if size < extensionSize || size > len(b) {
			return errMatches
		}
		name, revision := extension(b)
		r.Matches = append(r.Matches, xtables.Match(t.family, name, revision, b[extensionSize:size]))
		b = b[size:]
	}
	return nil
}

func (t *table) decodeTarget(index []extent, at int, e entry) (unflannel.Target, error) {
	b := t.data[at+e.target:][:e.targetSize]
	verdict, standard := t.verdict(at, e)
	if !standard {
		name, revision := extension(b)
		if name == "" || name == "ERROR" {
			return unflannel.Target{}, errors.New("target without a verdict or a name")
		}
		return xtables.Target(t.family, name, revision, b[extensionSize:]), nil
	}
	switch verdict {
	case verdictDrop:
		return unflannel.Target{Name: "DROP"}, nil
	case verdictAccept:
		return unflannel.Target{Name: "ACCEPT"}, nil
	case verdictQueue:
		return unflannel.Target{Name: "QUEUE"}, nil
	case verdictReturn:
		return unflannel.Target{Name: "RETURN"}, nil
	case at + e.next:
		return unflannel.Target{}, nil
	}
	name, ok := t.chainAt(index, verdict)
	if !ok {
		return unflannel.Target{}, fmt.Errorf("verdict %d is no chain", verdict)
	}
	return unflannel.Target{Name: name, Chain: true, Goto: t.data[at+t.flags]&t.flagGoto != 0}, nil
}

// extension returns the name and revision at the head of a match or target.
func extension(b []byte) (string, uint8) {
	return string(cString(b[extensionName:extensionRevision])), b[extensionRevision]
}

func allZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }
