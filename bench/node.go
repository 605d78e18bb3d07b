package main

import (
	"bytes"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel/netnstest"
)

// node is a namespace with the rules of others, in which one way is measured: some
// ways leave things behind that would change what the others find.
type node struct {
	*netnstest.NS
	t       netnstest.TB
	variant string
	base    netnstest.Dump // with the rules of others alone
}

func (b *bench) newNode(t netnstest.TB, variant, rules string) *node {
	t.Helper()
	n := &node{NS: netnstest.New(t), t: t, variant: variant}
	n.Restore(variant, "ip", rules)
	n.Restore(variant, "ip6", others(0))
	n.base = n.Dump()
	return n
}

// flannelRules are the places of the leftovers in both families, and how many rules
// of Flannel's are there.
var flannelRules = []struct {
	table, chain string
	rules        int
}{
	{"nat", "POSTROUTING", 1},
	{"nat", "FLANNEL-POSTRTG", 6},
	{"filter", "FORWARD", 1},
	{"filter", "FLANNEL-FWD", 2},
}

// putBack brings the leftovers, and nothing else, and looks whether they are there.
func (b *bench) putBack(n *node) {
	n.t.Helper()
	for family, text := range b.leftovers {
		n.Append(n.variant, family, text)
	}
	want, got := 0, 0
	var err error
	for _, place := range flannelRules {
		want += len(b.leftovers) * place.rules
	}
	if n.variant == "nft" {
		// Chain by chain: a dump of everything takes long.
		n.Do(func() { got, err = countRules() })
	} else {
		got = len(n.Dump().Without(func(l netnstest.Line) bool { return !isFlannels(l) })) - 2*len(b.leftovers) // chains
	}
	if err != nil || got != want {
		n.t.Fatalf("put back the leftovers: %d rules are there instead of %d: %v", got, want, err)
	}
}

// countRules counts Flannel's rules in nf_tables.
func countRules() (n int, err error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for _, family := range []byte{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6} {
		for _, place := range flannelRules {
			attrs, err := netlink.MarshalAttributes([]netlink.Attribute{
				{Type: unix.NFTA_RULE_TABLE, Data: append([]byte(place.table), 0)},
				{Type: unix.NFTA_RULE_CHAIN, Data: append([]byte(place.chain), 0)},
			})
			if err != nil {
				return 0, err
			}
			rules, err := c.Execute(netlink.Message{
				Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE, Flags: netlink.Request | netlink.Dump},
				Data:   append([]byte{family, unix.NFNETLINK_V0, 0, 0}, attrs...),
			})
			if err != nil {
				return 0, err
			}
			for _, r := range rules {
				if bytes.Contains(r.Data, []byte("FLANNEL-")) {
					n++
				}
			}
		}
	}
	return n, nil
}
