package unflannel_test

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/conntrack"
	"github.com/unflannel/unflannel/netnstest"
)

// TestStreamRecovers: a UDP stream that Flannel's rules masqueraded stays so after
// the rules are gone, and recovers when its connection is ended.
func TestStreamRecovers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		backend, family, file string
		network               netip.Prefix
	}{
		{"nft", "ip", "flannel-v0.22.3-iptables.v4.save", clusterIPv4},
		{"legacy", "ip", "flannel-v0.22.3-iptables.v4.save", clusterIPv4},
		{"nft", "ip6", "flannel-v0.22.3-iptables.v6.save", clusterIPv6},
	} {
		t.Run(tc.backend+"/"+tc.family, func(t *testing.T) {
			t.Parallel()
			f := netnstest.NewFault(t, tc.family)
			leftovers, err := os.ReadFile("testdata/rulesets/" + tc.file)
			if err != nil {
				t.Fatal(err)
			}
			f.Sender.Restore(tc.backend, tc.family, string(leftovers))
			// Without any other rule that needs it, the kernel stops tracking
			// connections with Flannel's last rule. No node is without.
			f.Sender.LoadNFT("table inet node { chain forward { type filter hook forward priority 0; ct state established counter; }; }")
			sender := node{f.Sender, t}
			s := newStream(t, f)
			want := func(when string, want netip.Addr) {
				t.Helper()
				if seen := s.seenFrom(t); seen != want {
					t.Errorf("%s the server sees %s, want %s", when, seen, want)
				}
			}
			want("before clean", f.TunnelAddr)
			if r := sender.clean(unflannel.Options{}); r.Outcome != unflannel.NothingLeft {
				t.Fatal(r.Summary)
			}
			want("after clean alone", f.TunnelAddr)
			r := sender.clean(unflannel.Options{Connections: conntrack.New(), Networks: []netip.Prefix{tc.network}})
			if len(r.Connections) != 1 || r.Connections[0].Rewritten.Addr() != f.TunnelAddr {
				t.Errorf("ended %+v", r.Connections)
			}
			want("after its connection was ended", f.ClientAddr)
		})
	}
}

// stream is a UDP socket of the client's pod that goes on sending to a server in
// the other pod, which answers with the address that it sees.
type stream struct{ client net.Conn }

func newStream(t *testing.T, f *netnstest.Fault) stream {
	t.Helper()
	var server net.PacketConn
	var client net.Conn
	var err error
	f.Server.Do(func() { server, err = net.ListenPacket("udp", netip.AddrPortFrom(f.ServerAddr, 5353).String()) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		buf := make([]byte, 64)
		for {
			_, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			addr := from.(*net.UDPAddr).AddrPort().Addr()
			if _, err := server.WriteTo([]byte(addr.String()), from); err != nil {
				return
			}
		}
	}()
	f.Client.Do(func() { client, err = net.Dial("udp", netip.AddrPortFrom(f.ServerAddr, 5353).String()) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return stream{client}
}

// seenFrom sends until an answer comes, and returns the address in it.
func (s stream) seenFrom(t *testing.T) netip.Addr {
	t.Helper()
	buf := make([]byte, 64)
	for range 20 {
		if _, err := s.client.Write([]byte("from where?")); err != nil {
			t.Fatal(err)
		}
		s.client.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		if n, err := s.client.Read(buf); err == nil {
			addr, err := netip.ParseAddr(string(buf[:n]))
			if err != nil {
				t.Fatal(err)
			}
			return addr
		}
	}
	t.Fatal("no answer from the server")
	return netip.Addr{}
}
