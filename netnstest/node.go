package netnstest

import "net/netip"

// place is what there is to know of a node, to itself and to the other.
type place struct {
	underlay netip.Prefix // its address among the nodes
	mac      string       // of its device there
	block    netip.Prefix // the addresses of its pods, which Calico chose
	tunnel   netip.Addr   // its address in the tunnel: the block's first
	vtep     string       // the MAC address of its tunnel device
}

// newNodes makes two nodes that forward packets, with an underlay between them and
// Calico's tunnel through it.
func newNodes(t TB, a, b place) (nodeA, nodeB *NS) {
	t.Helper()
	nodeA, nodeB = New(t), New(t)
	link(nodeA, "eth0", a.mac, nodeB, "eth0", b.mac)
	nodeA.join(a, b)
	nodeB.join(b, a)
	return nodeA, nodeB
}

// join gives a node its part of the underlay and the tunnel to another node.
func (ns *NS) join(own, other place) {
	ns.t.Helper()
	ns.up("eth0", own.underlay)
	if own.tunnel.Is4() {
		ns.sysctl("ipv4/ip_forward", "1")
	} else {
		ns.sysctl("ipv6/conf/all/forwarding", "1")
	}
	ns.ip(flag(own.tunnel) + "route add default via " + other.underlay.Addr().String() + " dev eth0")
	ns.tunnel(own, other)
}

// tunnel makes the device and everything that Calico's felix tells the kernel of
// another node: the node's tunnel address and MAC address, where in the underlay
// that one is, and a route to the node's block. The route is onlink, so that the
// tunnel's own address, a /32 or /128, is what a masqueraded packet gets.
func (ns *NS) tunnel(own, other place) {
	ns.t.Helper()
	device := tunnelDevice(own.tunnel)
	ns.ip("link add " + device + " address " + own.vtep + " mtu 1450 type vxlan id 4096 dev eth0" +
		" local " + own.underlay.Addr().String() + " dstport 4789 nolearning")
	ns.ip("link set " + device + " addrgenmode none")
	ns.up(device, host(own.tunnel))
	ns.MustRun("", "bridge", "fdb", "add", other.vtep, "dev", device, "dst", other.underlay.Addr().String())
	ns.ip("neighbour add " + other.tunnel.String() + " lladdr " + other.vtep + " dev " + device + " nud permanent")
	ns.ip(flag(own.tunnel) + "route add " + other.block.String() + " via " + other.tunnel.String() + " dev " + device + " onlink")
}

// tunnelDevice is the name of Calico's tunnel device, of which each family has one.
func tunnelDevice(a netip.Addr) string {
	if a.Is4() {
		return "vxlan.calico"
	}
	return "vxlan-v6.calico"
}

// flag is what ip needs to know of an address's family.
func flag(a netip.Addr) string {
	if a.Is4() {
		return ""
	}
	return "-6 "
}
