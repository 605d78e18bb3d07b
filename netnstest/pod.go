package netnstest

import "net/netip"

// Calico gives the node's end of every pod's veth pair this MAC address, and with
// it the same IPv6 link-local address.
const (
	workloadMAC = "ee:ee:ee:ee:ee:ee"
	podMAC      = "02:00:00:00:00:02"
)

// The pods' gateways. Nobody has the IPv4 one: the node answers for it by proxy
// ARP. The IPv6 one is the link-local address of the node's end.
var (
	gatewayIPv4 = netip.MustParseAddr("169.254.1.1")
	gatewayIPv6 = netip.MustParseAddr("fe80::ecee:eeff:feee:eeee")
)

// NewPod makes a pod on a node as Calico does: a namespace with one veth pair to
// the node, where its end has the given name, the pod's address as a /32 or /128,
// and a route to it on the node. The node needs a default route: without one, the
// kernel gives no proxy ARP for an address that it does not know.
func NewPod(node *NS, device string, address netip.Addr) *NS {
	node.t.Helper()
	pod := New(node.t)
	link(node, device, workloadMAC, pod, "eth0", podMAC)
	pod.up("eth0", host(address))
	if address.Is4() {
		node.up(device)
		node.sysctl("ipv4/conf/"+device+"/proxy_arp", "1")
		node.sysctl("ipv4/neigh/"+device+"/proxy_delay", "0")
		pod.ip("route add " + gatewayIPv4.String() + " dev eth0 scope link")
		pod.ip("route add default via " + gatewayIPv4.String() + " dev eth0")
		node.ip("route add " + address.String() + " dev " + device + " scope link")
		return pod
	}
	node.up(device, netip.PrefixFrom(gatewayIPv6, 64))
	// A neighbour that the pod has not resolved yet needs a link-local source.
	pod.up("eth0", netip.MustParsePrefix("fe80::2/64"))
	pod.ip("-6 route add default via " + gatewayIPv6.String() + " dev eth0")
	node.ip("-6 route add " + address.String() + " dev " + device)
	return pod
}
