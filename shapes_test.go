package unflannel_test

import (
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/netnstest"
)

// shape is a ruleset that Flannel's chains can be found in.
type shape struct {
	name     string
	backends string // "nft legacy", or one of them
	save     string // what iptables-restore loads
	nft      string // what nft loads after that
	// gone tells which lines clean takes away; nil for all that names the two chains.
	gone func(netnstest.Line) bool
	// left are parts of the reasons of what stays, one for each finding that has a
	// reason; with any, something is left after clean.
	left []string
}

const (
	natSave    = "*nat\n:PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [5:300]\n"
	filterSave = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [7:420]\n:OUTPUT ACCEPT [0:0]\n"
)

var shapes = []shape{
	{
		name: "jumps from user chains", backends: "nft legacy",
		save: filterSave + `:FLANNEL-FWD - [0:0]
:OPS - [0:0]
:OPS-DEEP - [0:0]
[1:60] -A FORWARD -j OPS
[2:120] -A OPS -j OPS-DEEP
[3:180] -A OPS-DEEP -j FLANNEL-FWD
[4:240] -A OPS-DEEP -s 192.0.2.0/24 -j DROP
[5:300] -A OPS -j FLANNEL-FWD
[6:360] -A FLANNEL-FWD -s 10.244.0.0/16 -j ACCEPT
COMMIT
`,
	}, {
		name: "goto", backends: "nft legacy",
		save: filterSave + `:FLANNEL-FWD - [0:0]
:OPS - [0:0]
:OPS-END - [0:0]
[1:60] -A FORWARD -j OPS
[2:120] -A FORWARD -g FLANNEL-FWD
[3:180] -A OPS -p tcp -g FLANNEL-FWD
[4:240] -A OPS -g OPS-END
[5:300] -A OPS-END -j RETURN
[6:360] -A FLANNEL-FWD -j ACCEPT
COMMIT
`,
	}, {
		name: "jumps with other matches", backends: "nft legacy",
		save: filterSave + `:FLANNEL-FWD - [0:0]
[1:60] -A FORWARD -s 10.1.0.0/16 ! -d 10.2.0.0/15 -i eth+ ! -o eth1 -p tcp -m tcp --dport 80:443 -m comment --comment "flanneld forward" -j FLANNEL-FWD
[2:60] -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j FLANNEL-FWD
[3:60] -A FORWARD -m addrtype --dst-type LOCAL -m limit --limit 5/sec -j FLANNEL-FWD
[4:60] -A FORWARD -m statistic --mode random --probability 0.5 -j FLANNEL-FWD
[5:60] -A FORWARD -s 10.1.0.0/16 -j ACCEPT
COMMIT
`,
	}, {
		name: "three copies", backends: "nft legacy",
		save: natSave + `:FLANNEL-POSTRTG - [0:0]
:KUBE-POSTROUTING - [0:0]
[1:60] -A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
[2:60] -A POSTROUTING -j KUBE-POSTROUTING
[3:60] -A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
[4:60] -A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
[5:60] -A KUBE-POSTROUTING -j MASQUERADE
[6:60] -A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE
[6:60] -A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE
COMMIT
`,
	}, {
		name: "quoted comments that look like jumps", backends: "nft legacy",
		save: filterSave + `:FLANNEL-FWD - [0:0]
[1:60] -A FORWARD -m comment --comment "x\" -j FLANNEL-FWD" -j ACCEPT
[2:60] -A FORWARD -m comment --comment "-A FLANNEL-FWD -j FLANNEL-FWD" -j ACCEPT
[3:60] -A FORWARD -m comment --comment "it\'s \\ \"flanneld forward\"" -j FLANNEL-FWD
[4:60] -A FLANNEL-FWD -m comment --comment "-j ACCEPT" -j RETURN
COMMIT
`,
		gone: func(l netnstest.Line) bool {
			return ofOwnChains(l) && !l.Contains(`-j FLANNEL-FWD`)
		},
	}, {
		name: "near names", backends: "nft legacy",
		save: filterSave + `:FLANNEL-FWD - [0:0]
:FLANNEL-FWD-LOG - [0:0]
:FLANNEL-FORWARD - [0:0]
:flannel-fwd - [0:0]
:FLANNEL-POSTRTG - [0:0]
[1:60] -A FORWARD -j FLANNEL-FWD-LOG
[2:60] -A FORWARD -j FLANNEL-FORWARD
[3:60] -A FORWARD -j flannel-fwd
[4:60] -A FORWARD -j FLANNEL-FWD
[5:60] -A FORWARD -j FLANNEL-POSTRTG
[6:60] -A FLANNEL-FWD -j FLANNEL-FWD-LOG
[7:60] -A FLANNEL-FWD-LOG -j LOG
COMMIT
`,
		gone: func(l netnstest.Line) bool { // FLANNEL-POSTRTG in filter is not Flannel's
			switch {
			case l.Contains("FLANNEL-POSTRTG"):
				return false
			case l.Contains(" FLANNEL-FWD "), strings.HasSuffix(l.Key, " FLANNEL-FWD"):
				return true
			}
			return l.Contains("FLANNEL-FWD\x00")
		},
	}, {
		name: "two empty chains that nothing jumps to", backends: "nft legacy",
		save: natSave + ":FLANNEL-POSTRTG - [0:0]\nCOMMIT\n" + filterSave + ":FLANNEL-FWD - [0:0]\n:OPS - [0:0]\nCOMMIT\n",
	}, {
		name: "jump to an empty chain", backends: "nft legacy",
		save: natSave + ":FLANNEL-POSTRTG - [0:0]\n[3:180] -A POSTROUTING -j FLANNEL-POSTRTG\nCOMMIT\n",
	}, {
		name: "full chain that nothing jumps to", backends: "nft legacy",
		save: filterSave + ":FLANNEL-FWD - [0:0]\n[3:180] -A FLANNEL-FWD -s 10.244.0.0/16 -j ACCEPT\nCOMMIT\n",
	}, {
		name: "no flannel", backends: "nft legacy",
		save: natSave + "[1:60] -A POSTROUTING -s 10.244.0.0/16 -j MASQUERADE\nCOMMIT\n",
	}, {
		name: "native rules in the same tables", backends: "nft",
		save: natSave + `:FLANNEL-POSTRTG - [0:0]
[1:60] -A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
[2:60] -A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE
COMMIT
` + filterSave + ":FLANNEL-FWD - [0:0]\n[1:60] -A FORWARD -j FLANNEL-FWD\n[2:60] -A FLANNEL-FWD -j ACCEPT\nCOMMIT\n",
		nft: `
table ip nat {
	set blocked { type ipv4_addr; flags interval, timeout; elements = { 192.0.2.0/24, 198.51.100.1 timeout 1h } }
	map ports { type inet_service : ipv4_addr; elements = { 80 : 10.0.0.1, 443 : 10.0.0.2 } }
	chain ops { ip saddr @blocked counter packets 9 bytes 540 drop; }
	chain POSTROUTING {
		ip saddr @blocked counter packets 4 bytes 240 accept
		tcp dport vmap { 22 : accept, 23 : jump ops }
		tcp dport { 25, 587 } counter accept comment "flanneld masq"
		ct original ip saddr 10.9.0.0/16 ct state new counter packets 3 bytes 180 masquerade
	}
}
table ip filter {
	chain FORWARD {
		fib daddr type local counter accept
		ct original ip daddr 10.9.0.0/16 meta mark set 0x1 ct mark set 0x2
		ct state vmap { established : accept, invalid : drop }
		limit rate 10/second log prefix "flannel " counter
		ip saddr . tcp dport { 10.0.0.1 . 80, 10.0.0.2 . 443 } goto FLANNEL-FWD
		meta iifname "cni*" meta oifname != "eth0" udp dport 4000-5000 udp length 100 jump FLANNEL-FWD
	}
}`,
		gone: func(l netnstest.Line) bool { // the set of the rule that goes to FLANNEL-FWD goes with it
			return ofOwnChains(l) || l.Contains(" ip filter __set0 ")
		},
	}, {
		name: "goto from a native chain", backends: "nft",
		save: filterSave + ":FLANNEL-FWD - [0:0]\n[2:60] -A FLANNEL-FWD -j ACCEPT\nCOMMIT\n",
		nft: `
table ip filter {
	chain my/ops_chain.1 { ip daddr 10.0.0.0/8 goto FLANNEL-FWD; counter accept; }
	chain early { type filter hook prerouting priority -300; policy accept; jump my/ops_chain.1; jump FLANNEL-FWD; }
}`,
	}, {
		name: "named verdict map", backends: "nft",
		save: filterSave + ":FLANNEL-FWD - [0:0]\n[1:60] -A FORWARD -j FLANNEL-FWD\n[2:60] -A FLANNEL-FWD -j ACCEPT\nCOMMIT\n",
		nft: `
table ip filter {
	map pods { type ipv4_addr : verdict; flags interval; elements = { 10.244.0.0/16 : jump FLANNEL-FWD, 10.245.0.0/16 : accept } }
	chain FORWARD { ip saddr vmap @pods; }
}`,
		gone: func(l netnstest.Line) bool { // emptied, and the map and the chain stay
			return ofOwnChains(l) && strings.HasPrefix(l.Key, "rule ")
		},
		left: []string{"the verdict map pods has an element that refers to it"},
	}, {
		name: "anonymous verdict map", backends: "nft",
		save: natSave + ":FLANNEL-POSTRTG - [0:0]\n[1:60] -A POSTROUTING -j FLANNEL-POSTRTG\n[2:60] -A FLANNEL-POSTRTG -j RETURN\nCOMMIT\n",
		nft: `
table ip nat {
	chain ops { ip protocol vmap { tcp : goto FLANNEL-POSTRTG, udp : jump FLANNEL-POSTRTG } ; }
}`,
		gone: func(l netnstest.Line) bool {
			return ofOwnChains(l) && strings.HasPrefix(l.Key, "rule ")
		},
		left: []string{"in a rule of chain ops refers to it"},
	}, {
		name: "base chains of that name", backends: "nft",
		nft: `
table ip filter {
	chain FLANNEL-FWD { type filter hook forward priority 10; policy accept; ip saddr 10.244.0.0/16 counter packets 8 bytes 480 accept; }
}
table ip6 nat {
	chain FLANNEL-POSTRTG { type nat hook postrouting priority 100; policy accept; }
}`,
		gone: func(netnstest.Line) bool { return false },
		left: []string{"it has the hook forward", "it has the hook postrouting"},
	}, {
		name: "a jump from a base chain of that name", backends: "nft",
		nft: `
table ip nat {
	chain FLANNEL {
		ip daddr 10.244.0.0/16 counter packets 3 bytes 180 accept
		ip daddr != 224.0.0.0/4 counter packets 4 bytes 240 masquerade
	}
	chain FLANNEL-POSTRTG {
		type nat hook postrouting priority 100; policy accept;
		ip saddr 10.244.0.0/16 counter packets 1 bytes 60 jump FLANNEL
		ip saddr 10.244.0.0/16 counter packets 2 bytes 120 accept
	}
}`,
		gone: func(l netnstest.Line) bool { return l.Contains("FLANNEL\x00") },
		left: []string{"it has the hook postrouting"},
	}, {
		name: "dormant table", backends: "nft",
		nft: `
table ip filter {
	flags dormant
	chain FLANNEL-FWD { counter packets 1 bytes 60 accept; }
	chain FORWARD { type filter hook forward priority 0; policy drop; counter jump FLANNEL-FWD; ct state new accept; }
}`,
	}, {
		name: "both families and an unrelated family", backends: "nft",
		nft: `
table ip filter { chain FLANNEL-FWD { accept; }; chain FORWARD { type filter hook forward priority 0; jump FLANNEL-FWD; }; }
table ip6 filter { chain FLANNEL-FWD { accept; }; chain FORWARD { type filter hook forward priority 0; jump FLANNEL-FWD; }; }
table inet filter { chain FLANNEL-FWD { accept; }; chain FORWARD { type filter hook forward priority 0; jump FLANNEL-FWD; }; }
table ip other { chain FLANNEL-FWD { accept; }; chain FORWARD { type filter hook forward priority 0; jump FLANNEL-FWD; }; }
table bridge filter { chain FLANNEL-FWD { accept; }; }`,
		gone: func(l netnstest.Line) bool {
			return ofOwnChains(l) && (l.Contains(" ip filter ") || l.Contains(" ip6 filter "))
		},
	},
	{
		name: "two networks in one chain", backends: "nft legacy",
		save: natSave + `:FLANNEL-POSTRTG - [0:0]
-A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
-A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment "flanneld masq" -j MASQUERADE
-A FLANNEL-POSTRTG -s 10.10.0.0/16 ! -d 224.0.0.0/4 -m comment --comment "flanneld masq" -j MASQUERADE
COMMIT
`,
	}, {
		name: "the chain of v0.3.1 beside that of v0.28.9, with a lone masquerade of v0.5.5", backends: "nft legacy",
		save: natSave + `:FLANNEL - [0:0]
:FLANNEL-POSTRTG - [0:0]
[1:60] -A POSTROUTING -s 10.244.0.0/16 -j FLANNEL
[2:60] -A POSTROUTING -o eth1 -j FLANNEL
[3:60] -A POSTROUTING ! -s 10.244.0.0/16 -d 10.244.0.0/16 -j MASQUERADE
[4:60] -A POSTROUTING ! -s 10.9.0.0/16 -d 10.9.0.0/16 -j MASQUERADE
[5:60] -A POSTROUTING -j FLANNEL-POSTRTG
[6:60] -A FLANNEL -d 10.244.0.0/16 -j ACCEPT
[7:60] -A FLANNEL -d 10.244.0.0/16 -j ACCEPT
[8:60] -A FLANNEL ! -d 224.0.0.0/4 -j MASQUERADE
COMMIT
`,
		gone: func(l netnstest.Line) bool { // all but the masquerade of a network that nothing proves
			return allRules(l) && !l.Contains("\x0a\x09\x00\x00") && !l.Contains("\x0a\x09\x00") && !l.Contains("\x0a\x09")
		},
	}, {
		name: "nftables mode, half removed", backends: "nft",
		nft: `
table ip flannel-ipv4 { comment "rules for flannel-ipv4"; chain forward { type filter hook forward priority 0; policy accept; ip saddr 10.244.0.0/16 accept; }; }
table ip6 flannel-ipv6 { }`,
		gone: func(l netnstest.Line) bool { return true },
	}, {
		name: "nftables mode with more in its table", backends: "nft",
		nft: `
table ip flannel-ipv4 {
	set pods { type ipv4_addr; elements = { 10.244.1.2 } }
	chain postrtg { type nat hook postrouting priority 100; policy accept; ip saddr 10.244.0.0/16 ip daddr != 224.0.0.0/4 masquerade; }
	chain more { ip saddr @pods accept; }
	chain forward { type filter hook forward priority 0; policy accept; jump more; }
}`,
		gone: func(l netnstest.Line) bool { return true },
	}, {
		name: "tables of like names, and of the name in other families", backends: "nft",
		nft: `
table inet flannel-ipv4 { chain forward { type filter hook forward priority 0; policy accept; counter accept; }; }
table ip6 flannel-ipv4 { chain forward { type filter hook forward priority 0; policy accept; counter accept; }; }
table ip flannel-ipv6 { chain forward { type filter hook forward priority 0; policy accept; counter accept; }; }
table ip my-flannel-ipv4 { chain postrtg { type nat hook postrouting priority 100; policy accept; masquerade; }; }
table ip flannel-ipv44 { }
table bridge flannel-ipv4 { }`,
		gone: func(l netnstest.Line) bool { return false },
	},
}

func TestShapes(t *testing.T) {
	t.Parallel()
	for _, s := range shapes {
		for _, backend := range strings.Fields(s.backends) {
			t.Run(s.name+"/"+backend, func(t *testing.T) {
				t.Parallel()
				n := newNode(t)
				if s.save != "" {
					n.Restore(backend, "ip", s.save)
				}
				if s.nft != "" {
					n.LoadNFT(s.nft)
				}
				gone, outcome := s.gone, unflannel.NothingLeft
				if gone == nil {
					gone = ofOwnChains
				}
				if len(s.left) > 0 {
					outcome = unflannel.Left
				}
				check, clean := n.cleanedOf(unflannel.Options{}, outcome, gone)
				for _, report := range []*unflannel.Report{check, clean} {
					var reasons []string
					for _, f := range report.Findings {
						if f.Reason != "" {
							reasons = append(reasons, f.Reason)
						}
					}
					if len(reasons) != len(s.left) {
						t.Fatalf("%s gives the reasons %q, want %q", report.Verb, reasons, s.left)
					}
					for i := range reasons {
						if !strings.Contains(reasons[i], s.left[i]) {
							t.Errorf("%s gives the reason %q, want %q in it", report.Verb, reasons[i], s.left[i])
						}
					}
				}
			})
		}
	}
}

// TestOwnedTable: a table that another process owns can't be changed by anybody
// else. That is said, and the other tables are cleaned all the same.
func TestOwnedTable(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	owner := exec.Command("nft", "-i")
	in, err := owner.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(owner); err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(in, "table ip filter { flags owner; chain FLANNEL-FWD { accept; }; chain FORWARD { type filter hook forward priority 0; jump FLANNEL-FWD; }; }; "+
		"table ip6 flannel-ipv6 { flags owner; chain forward { type filter hook forward priority 0; accept; }; }\n")
	if err != nil {
		t.Fatal(err)
	}
	for range 200 { // until nft has read its input
		if len(n.check(unflannel.Options{}).Findings) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	n.Restore("nft", "ip", natSave+":FLANNEL-POSTRTG - [0:0]\n-A POSTROUTING -j FLANNEL-POSTRTG\nCOMMIT\n")

	_, clean := n.cleanedOf(unflannel.Options{}, unflannel.Left, func(l netnstest.Line) bool {
		return l.Contains("FLANNEL-POSTRTG")
	})
	owned := 0
	for _, f := range clean.Findings {
		if f.Table == "filter" || f.Table == "flannel-ipv6" {
			owned++
			if f.State != unflannel.StateLeft || !strings.Contains(f.Reason, "belongs to the process with netlink port") {
				t.Errorf("%s is %s with the reason %q", f.Rule, f.State, f.Reason)
			}
		}
	}
	if owned != 5 {
		t.Errorf("%d findings in the tables with an owner, want 5", owned)
	}
}

// TestNothingAppears: neither a table nor a chain comes into being by looking, and
// no legacy table by anything at all.
func TestNothingAppears(t *testing.T) {
	t.Parallel()
	for name, load := range map[string]func(node){
		"fresh namespace": func(node) {},
		"only nft": func(n node) {
			n.Restore("nft", "ip", natSave+":FLANNEL-POSTRTG - [0:0]\n-A POSTROUTING -j FLANNEL-POSTRTG\nCOMMIT\n")
		},
		"only legacy": func(n node) {
			n.Restore("legacy", "ip6", natSave+":FLANNEL-POSTRTG - [0:0]\n-A POSTROUTING -j FLANNEL-POSTRTG\nCOMMIT\n")
		},
		"only mangle": func(n node) {
			n.Restore("legacy", "ip", "*mangle\n:FORWARD ACCEPT [0:0]\n:FLANNEL-FWD - [0:0]\n-A FORWARD -j FLANNEL-FWD\nCOMMIT\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			load(n)
			n.cleanedOf(unflannel.Options{}, unflannel.NothingLeft, func(l netnstest.Line) bool {
				return ofOwnChains(l) && !l.Contains("mangle")
			})
		})
	}
}
