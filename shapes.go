package unflannel

import (
	"net/netip"
	"slices"
	"strings"
)

// shape is the form of a rule that some version of Flannel wrote. N is the cluster
// network, L the node's part of it (its lease).
type shape int

const (
	otherShape        shape = iota // none of Flannel's
	markReturn                     // -m mark --mark 0x4000/0x4000 -j RETURN
	insideReturn                   // -s N -d N -j RETURN
	fromLeaseReturn                // -s L -d N -j RETURN
	toLeaseReturn                  // -s N -d L -j RETURN
	intoLeaseReturn                // ! -s N -d L -j RETURN
	notLeaseReturn                 // ! -s L -d N -j RETURN (nftables mode)
	insideMasquerade               // -s N ! -d 224.0.0.0/4 -j MASQUERADE (IPv6: ff00::/8)
	outsideMasquerade              // ! -s N -d N -j MASQUERADE
	acceptFrom                     // -s N -j ACCEPT
	acceptTo                       // -d N -j ACCEPT
	anyNetwork                     // one of the above with N = ::/0, of v0.24.3 with IPv6 off
)

var multicast = map[Family]netip.Prefix{
	IP:  netip.MustParsePrefix("224.0.0.0/4"),
	IP6: netip.MustParsePrefix("ff00::/8"),
}

const randomFully = "--random-fully"

// shapeOf tells the shape of a rule, whatever its comments, and the cluster
// network that the rule is about. A rule with any further condition has none.
func shapeOf(family Family, r Rule) (shape, netip.Prefix) {
	none := netip.Prefix{}
	src, dst := r.Source, r.Destination
	if r.In != (Condition{}) || r.Out != (Condition{}) || r.Protocol != (Condition{}) || r.Target.Opaque {
		return otherShape, none
	}
	if !onlyComments(r) {
		if slices.ContainsFunc(r.Matches, isMasqueradeMark) && r.Target == (Target{Name: "RETURN"}) && src == (Address{}) && dst == (Address{}) {
			return markReturn, none
		}
		return otherShape, none
	}
	from, to := src.Prefix, dst.Prefix
	switch r.Target {
	case Target{Name: "RETURN"}:
		switch {
		case !from.IsValid() || !to.IsValid() || dst.Not:
		case src.Not && within(to, from):
			return intoLeaseReturn, from
		case src.Not && within(from, to):
			return notLeaseReturn, to
		case src.Not:
		case from == to:
			return insideReturn, from
		case within(from, to):
			return fromLeaseReturn, to
		case within(to, from):
			return toLeaseReturn, from
		}
	case Target{Name: "MASQUERADE"}, Target{Name: "MASQUERADE", Args: randomFully}:
		switch {
		case !from.IsValid() || !to.IsValid():
		case !src.Not && dst.Not && to == multicast[family]:
			return insideMasquerade, from
		case src.Not && !dst.Not && from == to:
			return outsideMasquerade, from
		}
	case Target{Name: "ACCEPT"}:
		switch {
		case src.Not || dst.Not:
		case from.IsValid() && !to.IsValid():
			return acceptFrom, from
		case to.IsValid() && !from.IsValid():
			return acceptTo, to
		}
	}
	if family == IP6 && slices.Contains(anyNetworkRules, Rule{Source: src, Destination: dst, Target: r.Target}.String()) {
		return anyNetwork, none
	}
	return otherShape, none
}

// anyNetworkRules are what v0.24.3 writes for ::/0, chain and comments left out.
var anyNetworkRules = []string{
	"-A  -j RETURN", "-A  ! -s ::/0 -j RETURN", "-A  -j ACCEPT", "-A  ! -d ff00::/8 -j MASQUERADE", "-A  ! -s ::/0 -j MASQUERADE",
	"-A  ! -d ff00::/8 -j MASQUERADE --random-fully", "-A  ! -s ::/0 -j MASQUERADE --random-fully",
}

// isMasqueradeMark reports whether a match is on kube-proxy's mark for what is to
// be masqueraded. Flannel's nftables mode leaves out the mask.
func isMasqueradeMark(m Match) bool {
	return m.Name == "mark" && (m.Args == "--mark 0x4000/0x4000" || m.Args == "--mark 0x4000")
}

// within reports whether a is a part of b, and not all of it.
func within(a, b netip.Prefix) bool { return a.Bits() > b.Bits() && b.Contains(a.Addr()) }

func onlyComments(r Rule) bool {
	return !slices.ContainsFunc(r.Matches, func(m Match) bool { return m.Name != "comment" || m.Opaque })
}

// isMasquerading reports whether a shape is one of the four that Flannel wrote
// right into POSTROUTING.
func (s shape) isMasquerading() bool {
	return s == insideReturn || s == insideMasquerade || s == intoLeaseReturn || s == outsideMasquerade
}

// isForwarding reports whether a shape is one of the two that Flannel wrote right
// into FORWARD.
func (s shape) isForwarding() bool { return s == acceptFrom || s == acceptTo }

// commented tells the versions that wrote a rule of this shape with its only
// comment right into a built-in chain; "" if none did.
func commented(s shape, r Rule) (versions string) {
	comment, one := r.Comment()
	switch {
	case !one:
	case s.isMasquerading() && comment == "flanneld masq":
		return "v0.16.2 - v0.19.2"
	case s == insideMasquerade && comment == "flannel masq" && r.Target.Args == randomFully:
		return "v0.16.2 - v0.16.3"
	case s.isForwarding() && comment == "flanneld forward":
		return "v0.16.2 - v0.19.2"
	}
	return ""
}

// bare tells the versions that wrote a rule of this shape without any comment
// right into a built-in chain.
func bare(s shape, r Rule) (versions string) {
	switch {
	case s.isForwarding():
		return "v0.9.1 - v0.16.1"
	case s == intoLeaseReturn:
		return "v0.8.0 - v0.16.1"
	case r.Target.Args == randomFully:
		return "v0.11.0 - v0.16.1"
	}
	return "v0.5.6 - v0.16.1"
}

// inOwnChain tells the versions that wrote a rule of this shape into a chain of
// Flannel's; "" for a rule that somebody added.
func inOwnChain(s shape) (versions string) {
	switch s {
	case markReturn:
		return "v0.20.2 and later"
	case insideReturn:
		return "v0.20.0 - v0.20.2"
	case fromLeaseReturn, toLeaseReturn:
		return "v0.21.0 and later"
	case intoLeaseReturn, insideMasquerade, outsideMasquerade, acceptFrom, acceptTo:
		return versionsChain
	case anyNetwork:
		return "v0.24.3 with IPv6 switched off"
	}
	return ""
}

// oldForms are what versions wrote into the chain FLANNEL.
var oldForms = []struct {
	versions string
	rules    []string
}{
	{"v0.1.0 - v0.2.1, udp", []string{"-d {N} -j ACCEPT", "-d 224.0.0.0/4 -j ACCEPT", "! -o flannel0 -j MASQUERADE"}},
	{"v0.2.0 - v0.2.1, host-gw", []string{"-s {L} -o lo -j ACCEPT", "-s {L} ! -d {N} -j MASQUERADE"}},
	{"v0.3.0 - v0.5.5", []string{"-d {N} -j ACCEPT", "! -d 224.0.0.0/4 -j MASQUERADE"}},
}

// oldChainContent tells the versions that wrote exactly these rules, any number
// of times each, into the chain FLANNEL, and the network; "" if none did.
func oldChainContent(rules []Rule) (versions string, network netip.Prefix) {
	var lease netip.Prefix
	texts := map[string]bool{}
	for _, r := range rules {
		if to := r.Destination.Prefix; to.IsValid() && to != multicast[IP] {
			network = to
		}
		if r.Source.Prefix.IsValid() {
			lease = r.Source.Prefix
		}
		texts[strings.TrimPrefix(r.String(), "-A "+oldChain+" ")] = true
	}
	if !network.IsValid() {
		return "", network
	}
	for _, form := range oldForms {
		matching := 0
		for _, text := range form.rules {
			if texts[strings.NewReplacer("{N}", network.String(), "{L}", lease.String()).Replace(text)] {
				matching++
			}
		}
		if matching == len(form.rules) && matching == len(texts) {
			return form.versions, network
		}
	}
	return "", netip.Prefix{}
}
