package unflannel_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/netnstest"
)

// leftovers returns a file of what a real flanneld wrote.
func leftovers(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/rulesets/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// ofFamily is the end of the names of the saved rulesets of a family.
var ofFamily = map[string]string{"ip": ".v4.save", "ip6": ".v6.save"}

// seen fails the test unless the server is reached and sees the wanted address.
func seen(t *testing.T, when string, f *netnstest.Fault, port uint16, want netip.Addr) {
	t.Helper()
	if got, err := f.Dial(port); err != nil || got != want {
		t.Errorf("%s, port %d: seen from %v, error: %v; want %v", when, port, got, err, want)
	}
}

// dropped fails the test unless the connection times out.
func dropped(t *testing.T, when string, f *netnstest.Fault, port uint16) {
	t.Helper()
	var timeout net.Error
	if got, err := f.Dial(port); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%s, port %d: seen from %v, error: %v; want a timeout", when, port, got, err)
	}
}

// TestTraffic: the fault as it was reported. The sending node masquerades, so that
// the policy of the receiving one does not know the client's pod any more.
func TestTraffic(t *testing.T) {
	t.Parallel()
	for _, family := range []string{"ip", "ip6"} {
		for name, backends := range map[string][]string{
			"nft":    {"nft"},
			"legacy": {"legacy"},
			"mixed":  {"legacy", "nft"},
		} {
			t.Run(family+"/"+name, func(t *testing.T) {
				t.Parallel()
				f := netnstest.NewFault(t, family)
				f.Policy(backends[0])
				for _, backend := range backends {
					f.Sender.Restore(backend, family, leftovers(t, "flannel-v0.22.3-iptables"+ofFamily[family]))
				}
				dropped(t, "before clean", f, netnstest.PolicyPort)
				seen(t, "before clean", f, netnstest.OpenPort, f.TunnelAddr)

				node{f.Sender, t}.clean(unflannel.Options{})

				seen(t, "after clean", f, netnstest.PolicyPort, f.ClientAddr)
				seen(t, "after clean", f, netnstest.OpenPort, f.ClientAddr)
			})
		}
	}
}

// TestTrafficPolicy: where Calico appends its chains (Canal does), Flannel's rules
// on the receiving node accept before any policy is asked.
func TestTrafficPolicy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		ruleset  string
		families string
		networks []netip.Prefix
	}{
		{ruleset: "flannel-v0.20.0-iptables", families: "ip ip6"},
		{ruleset: "flannel-v0.22.3-iptables", families: "ip ip6"},
		// The bare pair, and no comment: the network has to be given.
		{ruleset: "flannel-v0.9.1-iptables", families: "ip", networks: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}},
	} {
		for _, family := range strings.Fields(tt.families) {
			for _, backend := range []string{"nft", "legacy"} {
				t.Run(tt.ruleset+"/"+family+"/"+backend, func(t *testing.T) {
					t.Parallel()
					f := netnstest.NewFault(t, family)
					// Canal's pods have addresses of the node's lease.
					text := strings.NewReplacer(
						"10.244.1.0/24", f.ServerBlock.String(),
						"fd00:10:244:1::/64", f.ServerBlock.String(),
					).Replace(leftovers(t, tt.ruleset+ofFamily[family]))
					f.Receiver.Restore(backend, family, text)
					f.Policy(backend)
					seen(t, "before clean", f, netnstest.ClosedPort, f.ClientAddr)

					node{f.Receiver, t}.clean(unflannel.Options{Networks: tt.networks})

					dropped(t, "after clean", f, netnstest.ClosedPort)
					seen(t, "after clean", f, netnstest.PolicyPort, f.ClientAddr)
					seen(t, "after clean", f, netnstest.OpenPort, f.ClientAddr)
				})
			}
		}
	}
}
