package main

import (
	_ "embed"
	"regexp"
	"strings"

	"github.com/unflannel/unflannel/netnstest"
)

// flannelSave is what a real flanneld v0.22.3 wrote; so did all versions since
// v0.21.2. It is a copy of the file in testdata/rulesets.
//
//go:embed flannel.save
var flannelSave string

// ownSave are rules of others on such a node, in short: they have to stay.
const ownSave = `*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:KUBE-FORWARD - [0:0]
:FLANNEL-FWD-LOG - [0:0]
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -m comment --comment "an operator's own chain" -j FLANNEL-FWD-LOG
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-POSTROUTING - [0:0]
:cali-POSTROUTING - [0:0]
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A POSTROUTING -m comment --comment "Calico: pods to the outside" -j cali-POSTROUTING
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MASQUERADE
-A cali-POSTROUTING -s 10.244.0.0/16 ! -d 10.244.0.0/16 -j MASQUERADE
COMMIT
`

// saved returns the ruleset as iptables-save prints it, a line each, headed by its
// table, without counters and comments.
func saved(node *netnstest.NS, variant string) []string {
	counters := regexp.MustCompile(` \[\d+:\d+\]$`)
	var lines []string
	table := ""
	for line := range strings.Lines(node.MustRun("", "iptables-"+variant+"-save")) {
		line = counters.ReplaceAllString(strings.TrimRight(line, "\n"), "")
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case strings.HasPrefix(line, ":"), strings.HasPrefix(line, "-"):
			lines = append(lines, table+": "+line)
		}
	}
	return lines
}

// ofFlannel are the lines with the names of Flannel's chains. FLANNEL-FWD-LOG is
// somebody else's.
var ofFlannel = regexp.MustCompile(`\bFLANNEL-(POSTRTG|FWD)( |$)`)

// split takes Flannel's lines out of a ruleset.
func split(lines []string) (flannel, others []string) {
	for _, line := range lines {
		if ofFlannel.MatchString(line) {
			flannel = append(flannel, line)
		} else {
			others = append(others, line)
		}
	}
	return flannel, others
}
