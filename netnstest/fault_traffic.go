package netnstest

import (
	"context"
	"fmt"
	"net/netip"
)

// Policy puts a network policy for the server's pod on the receiving node, behind
// what its FORWARD chain has: in the manner of Calico, by iptables of the given
// variant, "nft" or "legacy".
func (f *Fault) Policy(variant string) {
	f.Receiver.t.Helper()
	f.Receiver.Append(variant, f.Family, fmt.Sprintf(`*filter
:cali-FORWARD - [0:0]
:cali-tw-server - [0:0]
-A FORWARD -j cali-FORWARD
-A cali-FORWARD -o %[1]s -j cali-tw-server
-A cali-tw-server -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-tw-server -s %[2]s -p tcp -m tcp --dport %[3]d -j ACCEPT
-A cali-tw-server -p tcp -m tcp --dport %[4]d -j ACCEPT
-A cali-tw-server -j DROP
COMMIT
`, serverDevice, host(f.ClientAddr), PolicyPort, OpenPort))
}

// Dial connects from the client's pod to a port of the server's, and returns the
// address from which the server saw it. What is dropped on the way takes
// 1.5 seconds, and the error is then a timeout.
func (f *Fault) Dial(port uint16) (seen netip.Addr, err error) {
	f.Client.t.Helper()
	return f.Client.Dial(context.Background(), f.ServerAddr, port)
}

// sound tries until the client reaches every port of the server's. The kernel
// brings new links up in the background, and until then loses packets.
func (f *Fault) sound(t TB) {
	t.Helper()
	for _, port := range []uint16{PolicyPort, ClosedPort, OpenPort} {
		var seen netip.Addr
		var err error
		for range 5 {
			if seen, err = f.Dial(port); err == nil {
				break
			}
		}
		if err != nil || seen != f.ClientAddr {
			t.Fatalf("connection in the new topology: seen from %v, error: %v; want %v", seen, err, f.ClientAddr)
		}
	}
}
