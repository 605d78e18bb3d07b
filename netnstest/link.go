package netnstest

import "net/netip"

// link joins two namespaces with a veth pair, of which each gets one end. The ends
// have no addresses yet, link-local ones included, and are down.
func link(a *NS, nameA, macA string, b *NS, nameB, macB string) {
	a.t.Helper()
	a.ip("link add " + nameA + " address " + macA + " type veth peer name " + nameB + " address " + macB + " netns " + b.Path)
	a.ip("link set " + nameA + " addrgenmode none")
	b.ip("link set " + nameB + " addrgenmode none")
}

// up gives a device its addresses and brings it up.
func (ns *NS) up(device string, addresses ...netip.Prefix) {
	ns.t.Helper()
	for _, a := range addresses {
		flags := ""
		if a.Addr().Is6() {
			flags = " nodad" // nobody else has it: there is nothing to wait for
		}
		ns.ip("address add " + a.String() + " dev " + device + flags)
	}
	ns.ip("link set " + device + " up")
}

// host is the prefix that holds one address only.
func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
