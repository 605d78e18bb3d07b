package main

import (
	"fmt"
	"strings"
)

// A service has a rule in KUBE-SERVICES that leads to its own chain; that has one
// rule for the mark and one that chooses each endpoint; each endpoint's chain has
// two rules. kube-proxy's iptables mode writes them so.
const (
	endpoints       = 3
	rulesPerService = 2 + 3*endpoints
)

// builtIn are the chains of the tables that iptables has without anybody's doing.
// Declared from the beginning, they are not taken for something that was left.
const builtIn = `*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
`

// others returns about n rules of others in the syntax of iptables-save: the nat
// table of a node where kube-proxy serves a cluster with many services. With n 0,
// it is the tables and built-in chains alone.
func others(n int) string {
	if n == 0 {
		return builtIn + "COMMIT\n"
	}
	var chains, entry, rules strings.Builder
	packets := 0
	add := func(b *strings.Builder, format string, args ...any) {
		packets++ // a counter that is not zero, to see whether it stays
		fmt.Fprintf(b, "[%d:%d] -A ", packets, 60*packets)
		fmt.Fprintf(b, format+"\n", args...)
	}
	chains.WriteString(":KUBE-MARK-MASQ - [0:0]\n:KUBE-POSTROUTING - [0:0]\n:KUBE-SERVICES - [0:0]\n")
	add(&rules, `PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`)
	add(&rules, `OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`)
	add(&rules, `POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING`)
	add(&rules, `KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000`)
	add(&rules, `KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN`)
	add(&rules, `KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0`)
	add(&rules, `KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully`)
	for s := range (n - packets) / rulesPerService {
		name, svc := fmt.Sprintf("shop-%d/web:http", s), fmt.Sprintf("KUBE-SVC-%016X", 0x9e3779b97f4a7c15*uint64(s+1))
		ip := fmt.Sprintf("10.%d.%d.%d", 96+s>>16, s>>8&255, s&255)
		fmt.Fprintf(&chains, ":%s - [0:0]\n", svc)
		add(&entry, `KUBE-SERVICES -d %s/32 -p tcp -m comment --comment "%s cluster IP" -m tcp --dport 80 -j %s`, ip, name, svc)
		add(&rules, `%s ! -s 10.244.0.0/16 -d %s/32 -p tcp -m comment --comment "%s cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ`, svc, ip, name)
		for e := range endpoints {
			pod := fmt.Sprintf("10.244.%d.%d", (s*endpoints+e)>>8&255, (s*endpoints+e)&255)
			sep := fmt.Sprintf("KUBE-SEP-%016X", 0xc2b2ae3d27d4eb4f*uint64(s*endpoints+e+1))
			fmt.Fprintf(&chains, ":%s - [0:0]\n", sep)
			chance := ""
			if left := endpoints - e; left > 1 {
				chance = fmt.Sprintf(" -m statistic --mode random --probability %.11f", 1/float64(left))
			}
			add(&rules, `%s -m comment --comment "%s -> %s:8080"%s -j %s`, svc, name, pod, chance, sep)
			add(&rules, `%s -s %s/32 -m comment --comment "%s" -j KUBE-MARK-MASQ`, sep, pod, name)
			add(&rules, `%s -p tcp -m comment --comment "%s" -m tcp -j DNAT --to-destination %s:8080`, sep, name, pod)
		}
	}
	return builtIn + chains.String() + rules.String() + entry.String() + "COMMIT\n"
}
