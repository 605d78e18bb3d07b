package xtables

// Offsets in xt_conntrack_mtinfo1, 2 and 3. They begin alike: addresses and
// masks, a lifetime, protocol and ports. Then come which of them are conditions,
// which are inverted, and the mask of states, a byte in revision 1, wider later.
const (
	conntrackFlags    = 146
	conntrackInverted = 148
	conntrackStates   = 150
)

// conntrack decodes a condition on the connection's state; of conditions on
// anything else it knows nothing.
func conntrack(revision uint8, data []byte) (options, bool) {
	const byState, alias = 1, 1 << 13
	if !sized(data, [...]int{1: 152, 2: 156, 3: 164}[revision]) {
		return options{}, false
	}
	flags, inverted := host.Uint16(data[conntrackFlags:]), host.Uint16(data[conntrackInverted:])
	// The kernel ignores the alias. It is iptables' own note that the rule was
	// written with -m state, as which iptables-save shows it again.
	if flags&^alias != byState || inverted&^(byState|alias) != 0 {
		return options{}, false
	}
	mask := uint32(data[conntrackStates])
	if revision > 1 {
		mask = uint32(host.Uint16(data[conntrackStates:]))
	}
	states, ok := bits(mask, connectionStates)
	if !ok || states == "" {
		return options{}, false
	}
	o, option := options{name: "conntrack"}, "--ctstate"
	if flags&alias != 0 {
		o.name, option = "state", "--state"
	}
	var a args
	a.add(inverted&byState != 0, option, states)
	o.text = a.String()
	return o, true
}

// connectionStates are in the order of iptables-save.
var connectionStates = []bitName{
	{1 << 0, "INVALID"}, {1 << 3, "NEW"}, {1 << 2, "RELATED"}, {1 << 1, "ESTABLISHED"},
	{1 << 8, "UNTRACKED"}, {1 << 6, "SNAT"}, {1 << 7, "DNAT"},
}
