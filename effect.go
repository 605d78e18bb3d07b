package unflannel

import (
	"fmt"
	"net/netip"
)

// effect says in an operator's words what a rule does to traffic.
func effect(family Family, r Rule) string {
	s, network := shapeOf(family, r)
	switch s {
	case markReturn:
		return "leaves what kube-proxy masquerades to kube-proxy"
	case insideReturn:
		return fmt.Sprintf("keeps traffic within %s from later rules", network)
	case fromLeaseReturn, toLeaseReturn, intoLeaseReturn, notLeaseReturn:
		return fmt.Sprintf("keeps %s from later rules", traffic(r))
	case insideMasquerade:
		return fmt.Sprintf("masquerades pod traffic of %s to other nodes and beyond", network)
	case outsideMasquerade:
		return fmt.Sprintf("masquerades traffic from outside to the pods of %s", network)
	}
	switch r.Target.Name {
	case "":
		return ""
	case "ACCEPT":
		return "accepts " + traffic(r) + " before any later rule"
	case "RETURN":
		return "keeps " + traffic(r) + " from later rules"
	case "MASQUERADE":
		return "masquerades " + traffic(r)
	}
	if r.Target.Chain {
		return "sends " + traffic(r) + " through " + r.Target.Name
	}
	return ""
}

// traffic names the packets that a rule matches.
func traffic(r Rule) string {
	some := "all"
	if r.In != (Condition{}) || r.Out != (Condition{}) || r.Protocol != (Condition{}) || !onlyComments(r) {
		some = "some"
	}
	src, dst := r.Source, r.Destination
	switch {
	case src == (Address{}) && dst == (Address{}):
		return some + " traffic"
	case dst == (Address{}):
		return some + " traffic from " + addresses(src)
	case src == (Address{}):
		return some + " traffic to " + addresses(dst)
	}
	return some + " traffic from " + addresses(src) + " to " + addresses(dst)
}

func addresses(a Address) string {
	if a.Not {
		return "outside " + a.Prefix.String()
	}
	return a.Prefix.String()
}

// networks are the cluster networks that a rule tells of.
func networks(family Family, r Rule) []netip.Prefix {
	if _, network := shapeOf(family, r); network.IsValid() {
		return []netip.Prefix{network}
	}
	return nil
}
