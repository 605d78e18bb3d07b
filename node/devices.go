package node

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// isFlannels reports whether a name is one that Flannel gives to the devices of its
// data paths: flannel.1 and flannel-v6.1 for vxlan (the number is the VNI), flannel0
// for udp, flannel-wg and flannel-wg-v6 for WireGuard.
func isFlannels(name string) bool {
	switch name {
	case "flannel0", "flannel-wg", "flannel-wg-v6":
		return true
	}
	vni, ok := strings.CutPrefix(name, "flannel.")
	if !ok {
		vni, ok = strings.CutPrefix(name, "flannel-v6.")
	}
	return ok && vni != "" && strings.Trim(vni, "0123456789") == ""
}

// bridge is the bridge that Flannel's CNI plugin makes. Others use the name too, so
// that its address has to be in Flannel's network.
const bridge = "cni0"

// Devices warns of each device of Flannel's in the network namespace of the calling
// thread.
func Devices(networks []netip.Prefix) ([]string, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network devices: %w", err)
	}
	var warnings []string
	for _, i := range interfaces {
		switch {
		case isFlannels(i.Name):
			warnings = append(warnings, fmt.Sprintf("Flannel's device %s still exists: when Flannel is gone for good, remove it with: ip link delete %s", i.Name, i.Name))
		case i.Name == bridge:
			addrs, err := i.Addrs()
			if err != nil {
				return warnings, fmt.Errorf("list addresses of %s: %w", i.Name, err)
			}
			if slices.ContainsFunc(addrs, func(a net.Addr) bool { return isIn(a, networks) }) {
				warnings = append(warnings, fmt.Sprintf("the bridge %s of Flannel's CNI plugin still has an address of Flannel's network: "+
					"pods may still hang on it; when none does, remove it with: ip link delete %s", i.Name, i.Name))
			}
		}
	}
	return warnings, nil
}

func isIn(a net.Addr, networks []netip.Prefix) bool {
	p, err := netip.ParsePrefix(a.String())
	return err == nil && slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(p.Addr()) })
}
