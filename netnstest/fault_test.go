package netnstest

import (
	"errors"
	"net"
	"testing"
)

var _ TB = (*testing.T)(nil)

// Without leftovers, the policy does what it says.
func TestFaultPolicy(t *testing.T) {
	t.Parallel()
	for _, family := range []string{"ip", "ip6"} {
		for _, variant := range []string{"nft", "legacy"} {
			t.Run(family+"/"+variant, func(t *testing.T) {
				t.Parallel()
				f := NewFault(t, family)
				f.Policy(variant)
				for _, port := range []uint16{PolicyPort, OpenPort} {
					if seen, err := f.Dial(port); err != nil || seen != f.ClientAddr {
						t.Errorf("port %d: seen from %v, error: %v; want %v", port, seen, err, f.ClientAddr)
					}
				}
				var timeout net.Error
				if seen, err := f.Dial(ClosedPort); !errors.As(err, &timeout) || !timeout.Timeout() {
					t.Errorf("closed port: seen from %v, error: %v; want a timeout", seen, err)
				}
			})
		}
	}
}
