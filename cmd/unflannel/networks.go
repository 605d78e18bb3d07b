package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/unflannel/unflannel/internal/file"
)

// parseNetwork reads a network in CIDR notation, which has to name the network
// itself and not an address in it.
func parseNetwork(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a network such as 10.244.0.0/16 or fd00:10:244::/56", s)
	}
	if p.Masked() != p {
		return netip.Prefix{}, fmt.Errorf("%s has bits beyond its prefix: the network is %s", s, p.Masked())
	}
	if p.Bits() == 0 {
		return netip.Prefix{}, fmt.Errorf("%s is every address, not a cluster's network", s)
	}
	return p, nil
}

// readSubnetEnv reads the cluster's networks from the file that Flannel leaves for
// its CNI plugin.
func readSubnetEnv(path string) ([]netip.Prefix, error) {
	text, err := file.Read(path)
	if err != nil {
		return nil, err
	}
	return parseSubnetEnv(string(text))
}

// parseSubnetEnv takes the lines FLANNEL_NETWORK and FLANNEL_IPV6_NETWORK. Versions
// that know several networks write them with commas.
func parseSubnetEnv(text string) ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || name != "FLANNEL_NETWORK" && name != "FLANNEL_IPV6_NETWORK" {
			continue
		}
		for network := range strings.SplitSeq(value, ",") {
			if network == "" { // a family that is switched off
				continue
			}
			p, err := parseNetwork(network)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			networks = append(networks, p)
		}
	}
	if len(networks) == 0 {
		return nil, errors.New("no FLANNEL_NETWORK and no FLANNEL_IPV6_NETWORK in it")
	}
	return networks, nil
}
