package netnstest

import (
	"net/netip"
)

// The ports of a [Fault]'s server.
const (
	PolicyPort uint16 = 8080 // the policy admits the client pod, and nobody else
	ClosedPort uint16 = 7070 // the policy admits nobody
	OpenPort   uint16 = 9090 // no policy
)

// Fault is the place where the fault shows that Flannel's leftovers cause: two
// nodes that have moved from Flannel to Calico, a client's pod on one and a
// server's pod on the other.
//
//	client pod -- sending node == vxlan.calico == receiving node -- server pod
//
// It has neither leftovers nor a policy yet, and works. [NS.Restore] on Sender
// brings the leftovers, [Fault.Policy] the policy; [Fault.Dial] shows what comes
// of it.
//
// The cluster's network is that of the saved rulesets, 10.244.0.0/16, and Flannel
// had given 10.244.1.0/24 to the sending node. The pods' addresses are in blocks
// of Calico's, which lie elsewhere in the cluster's network: Flannel's rules spare
// the node's own lease only. In IPv6 it is fd00:10:244::/56 and the lease
// fd00:10:244:1::/64, and the tunnel has an underlay of IPv6, as Calico has it.
type Fault struct {
	Family string // "ip" or "ip6"

	Client, Sender, Receiver, Server *NS

	ClientAddr netip.Addr // of the client's pod
	ServerAddr netip.Addr // of the server's pod
	TunnelAddr netip.Addr // of vxlan.calico on the sending node
	// ServerBlock is the block of addresses on the receiving node.
	ServerBlock netip.Prefix
}

// serverDevice is the receiving node's end of the server pod's veth pair.
const serverDevice = "cali0server"

// NewFault makes the nodes and the pods for a family, "ip" or "ip6". It fails the
// test if the client does not reach the server.
func NewFault(t TB, family string) *Fault {
	t.Helper()
	f := &Fault{Family: family}
	sender := place{mac: "02:00:00:00:01:01", vtep: "66:00:00:00:01:01"}
	receiver := place{mac: "02:00:00:00:02:01", vtep: "66:00:00:00:02:01"}
	switch family {
	case "ip":
		sender.underlay = netip.MustParsePrefix("192.0.2.1/24")
		receiver.underlay = netip.MustParsePrefix("192.0.2.2/24")
		sender.block = netip.MustParsePrefix("10.244.77.0/26")
		receiver.block = netip.MustParsePrefix("10.244.88.0/26")
		f.ClientAddr = netip.MustParseAddr("10.244.77.5")
		f.ServerAddr = netip.MustParseAddr("10.244.88.9")
	case "ip6":
		sender.underlay = netip.MustParsePrefix("2001:db8::1/64")
		receiver.underlay = netip.MustParsePrefix("2001:db8::2/64")
		sender.block = netip.MustParsePrefix("fd00:10:244:77::/122")
		receiver.block = netip.MustParsePrefix("fd00:10:244:88::/122")
		f.ClientAddr = netip.MustParseAddr("fd00:10:244:77::5")
		f.ServerAddr = netip.MustParseAddr("fd00:10:244:88::9")
	default:
		t.Fatalf("fault: unknown family %q", family)
	}
	sender.tunnel, receiver.tunnel = sender.block.Addr(), receiver.block.Addr()
	f.TunnelAddr, f.ServerBlock = sender.tunnel, receiver.block

	f.Sender, f.Receiver = newNodes(t, sender, receiver)
	f.Client = NewPod(f.Sender, "cali0client", f.ClientAddr)
	f.Server = NewPod(f.Receiver, serverDevice, f.ServerAddr)
	f.Server.Serve(f.ServerAddr, PolicyPort, ClosedPort, OpenPort)
	f.sound(t)
	return f
}
