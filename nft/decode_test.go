package nft

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/netnstest"
)

// decoded reads a chain of a table and returns its rules as the decoder writes them.
func decoded(t *testing.T, ns *netnstest.NS, b *Backend, family unflannel.Family, table, chain string) []unflannel.Rule {
	t.Helper()
	var s *unflannel.Snapshot
	var err error
	ns.Do(func() {
		s, err = b.Read(context.Background(), []unflannel.Query{{Family: family, Table: table, Chains: []string{chain}}})
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Tables) != 1 || len(s.Tables[0].Chains) != 1 {
		t.Fatalf("no chain %s in table %s %s", chain, family, table)
	}
	return s.Tables[0].Chains[0].Rules
}

// iptablesRules are rules in iptables' syntax, by family and table. After "=>"
// stands what the decoder makes of a rule that it does not understand in full.
var iptablesRules = map[unflannel.Family]map[string]string{
	unflannel.IP: {
		"filter": `
-s 10.244.0.0/16 -d 10.244.0.0/16 -j ACCEPT
! -s 10.244.0.0/16 ! -d 224.0.0.0/4 -j ACCEPT
-s 10.0.0.1/32 ! -d 10.0.0.0/8 -i eth0 -o eth1 -p tcp -j DROP
-s 10.0.0.5/255.0.0.255 -j DROP => [expression cmp] -j DROP
-p icmp -j ACCEPT
-p icmp -m icmp --icmp-type 8 -j ACCEPT => -p icmp [match icmp revision 0] -j ACCEPT
-s 10.96.0.10/32 -p udp -m udp --dport 53 -m comment --comment "kube-system/kube-dns:dns cluster IP" -j ACCEPT
-j REJECT --reject-with icmp-port-unreachable => -j REJECT [target REJECT revision 0]
-m iprange --src-range 10.0.0.1-10.0.0.9 -j ACCEPT => [match iprange revision 1] -j ACCEPT
-f -j DROP => [expression cmp] -j DROP
`,
		"nat": `
-s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
-p tcp -j DNAT --to-destination 10.244.1.2:80 => -p tcp -j DNAT [target DNAT revision 2]
-j SNAT --to-source 192.0.2.1 => -j SNAT [target SNAT revision 0]
`,
	},
	unflannel.IP6: {
		"filter": `
-s fd00:10:244::/56 -d fd00:10:244::/56 -j ACCEPT
! -s fd00:10:244::/56 ! -d ff00::/8 -j ACCEPT
-s 2001:db8::1/128 ! -d fe80::/10 -i eth0 -o eth1 -p tcp -j DROP
-p ipv6-icmp -j ACCEPT
-j REJECT --reject-with icmp6-port-unreachable => -j REJECT [target REJECT revision 0]
`,
		"nat": `
-s fd00:10:244::/56 ! -d ff00::/8 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
`,
	},
}

// commonRules are the same in both families.
var commonRules = map[string]string{
	"filter": `
-i eth0 -j ACCEPT
! -i eth0 -j ACCEPT
-o flannel.1 -j ACCEPT
-i cali+ -j ACCEPT
! -o cali+ -j ACCEPT
-i cali+ -o veth+ -j DROP
-i fifteenbytes-ok -j DROP
! -i fourteenbytes+ -j DROP
-p tcp -j ACCEPT
! -p tcp -j ACCEPT
-p udp -j ACCEPT
-p sctp -j ACCEPT
-p gre -j ACCEPT => -p 47 -j ACCEPT
-p esp -j ACCEPT
-p ah -j ACCEPT
-p ipencap -j ACCEPT => -p 4 -j ACCEPT
-p udplite -j ACCEPT
-p 253 -j ACCEPT
-p tcp -m tcp --dport 80 -j ACCEPT
-p tcp -m tcp --sport 80 -j ACCEPT
-p tcp -m tcp ! --dport 80 -j ACCEPT
-p tcp -m tcp --sport 1:1023 --dport 80 -j ACCEPT
-p tcp -m tcp --sport 1024:65535 ! --dport 6443:6444 -j ACCEPT
-p tcp -m tcp --dport 0:1023 -j ACCEPT => -p tcp [expression cmp] -j ACCEPT
-p tcp -m tcp --dport 0 -j ACCEPT
-p tcp -m tcp --dport 65535 -j ACCEPT
-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j ACCEPT => -p tcp [expression cmp] -j ACCEPT
-p tcp -m tcp --dport 80 --tcp-flags SYN,RST SYN -j ACCEPT => -p tcp [expression cmp] -m tcp --dport 80 -j ACCEPT
-p tcp -m tcp --tcp-option 5 -j ACCEPT
-p udp -m udp --dport 8472 -j ACCEPT
-p udp -m udp ! --sport 53 --dport 1024:65535 -j ACCEPT
-p tcp -m multiport --dports 80,443,8000:8080 -j ACCEPT
-p sctp -m sctp --dport 80 -j ACCEPT => -p sctp [match sctp revision 0] -j ACCEPT
-m mark --mark 0x1 -j ACCEPT
-m mark ! --mark 0x4000/0x4000 -j RETURN
-m mark --mark 0x0/0xffff -j RETURN
-m comment --comment plain -j ACCEPT
-m comment --comment "two words" -j ACCEPT
-m comment --comment "a \"quoted\" word" -j ACCEPT
-m comment --comment "a \'quote\'" -j ACCEPT
-m comment --comment "a back\\slash" -j ACCEPT
-m comment --comment "tabs, [brackets] and -j DROP" -j ACCEPT
-m comment --comment one -m comment --comment two -j ACCEPT
-m comment --comment äöü -j ACCEPT
-m comment --comment "` + longComment + `" -j ACCEPT
-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-m conntrack ! --ctstate NEW -j DROP
-m addrtype --dst-type LOCAL -j ACCEPT
-m limit --limit 5/min -j ACCEPT => [expression limit] -j ACCEPT
-m statistic --mode random --probability 0.50000000000 -j ACCEPT => [match statistic revision 0] -j ACCEPT
-m physdev --physdev-is-bridged -j ACCEPT => [match physdev revision 0] -j ACCEPT
-j DROP
-j RETURN
-j OTHER
-g OTHER
-i eth0 -g OTHER
-p tcp -m tcp --dport 80 -m comment --comment "count only"
-j MARK --set-xmark 0x4000/0x4000
-j LOG --log-prefix "flannel: " => -j LOG [target LOG revision 0]
-j NFQUEUE --queue-num 1 => -j NFQUEUE [target NFQUEUE revision 3]
`,
	"nat": `
-j MASQUERADE
-j MASQUERADE --random
-j MASQUERADE --random-fully
-p tcp -j MASQUERADE --to-ports 1024-65535
-p udp -j MASQUERADE --to-ports 500
-p tcp -j MASQUERADE --to-ports 1024-65535 --random
-p tcp -j MASQUERADE --to-ports 1024-65535 --random-fully
-o eth0 -m mark --mark 0x4000/0x4000 -j MASQUERADE
`,
}

var longComment = strings.Repeat("0123456789abcde ", 15) + "0123456789abcde"

// withPrefixes are rules with every length of prefix, as source and destination,
// and neither.
func withPrefixes(addr string) string {
	var b strings.Builder
	a := netip.MustParseAddr(addr)
	for bits := 1; bits <= a.BitLen(); bits++ {
		p, err := a.Prefix(bits)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "-s %s -j ACCEPT\n-d %s -j ACCEPT\n! -s %s ! -d %s -j ACCEPT\n", p, p, p, p)
	}
	return b.String()
}

// saveOf is a table in iptables-save's form with rules in a chain, and what stands
// after "=>".
func saveOf(table, chain, rules string) (save string, want []string) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n:%s - [0:0]\n:OTHER - [0:0]\n", table, chain)
	for line := range strings.Lines(rules) {
		rule, opaque, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " => ")
		if rule != "" {
			fmt.Fprintf(&b, "[%d:%d] -A %s %s\n", len(want)+1, len(want)*100, chain, rule)
			want = append(want, opaque)
		}
	}
	return b.String() + "COMMIT\n", want
}

// TestDecodeIPTables compares the decoder with what iptables-save writes of the
// same rule.
func TestDecodeIPTables(t *testing.T) {
	t.Parallel()
	for family, prefixes := range map[unflannel.Family]string{
		unflannel.IP: withPrefixes("213.171.205.155"), unflannel.IP6: withPrefixes("d5ab:cd9b:d5ab:cd9b:d5ab:cd9b:d5ab:cd9b"),
	} {
		for _, table := range []string{"filter", "nat"} {
			t.Run(string(family)+"/"+table, func(t *testing.T) {
				t.Parallel()
				ns := netnstest.New(t)
				rules := iptablesRules[family][table] + commonRules[table]
				if table == "filter" {
					rules += prefixes
				}
				save, want := saveOf(table, "TEST", rules)
				ns.Restore("nft", string(family), save)

				program := map[unflannel.Family]string{unflannel.IP: "iptables-nft-save", unflannel.IP6: "ip6tables-nft-save"}[family]
				saved := ns.MustRun("", program, "-t", table)
				var lines []string
				for line := range strings.Lines(saved) {
					if strings.HasPrefix(line, "-A TEST ") {
						lines = append(lines, strings.TrimSuffix(line, "\n"))
					}
				}
				got := decoded(t, ns, New(), family, table, "TEST")
				if len(lines) != len(want) || len(got) != len(want) {
					t.Fatalf("%d rules were loaded, %s shows %d, the decoder %d", len(want), program, len(lines), len(got))
				}
				for i, r := range got {
					line := strings.TrimSuffix(lines[i], " ") // of iptables 1.8.7
					// Older versions write some of these rules so that they can be told.
					if want[i] != "" && r.String() != line {
						line = "-A TEST " + want[i]
					}
					if r.String() != line {
						t.Errorf("the rule  %s\nis shown as %s", line, r)
					}
					// ip6tables-nft-restore 1.8.9 does not set counters.
					if !r.Counted || family == unflannel.IP && (r.Packets != uint64(i+1) || r.Bytes != uint64(i*100)) {
						t.Errorf("counter of %s: %v %d %d", r, r.Counted, r.Packets, r.Bytes)
					}
					if r.Position != i+1 || r.Handle == 0 {
						t.Errorf("position %d and handle %d of rule %d", r.Position, r.Handle, i+1)
					}
				}
			})
		}
	}
}

// nativeRules are rules in nft's syntax, with what the decoder makes of them: where
// nft's newer versions write a rule in another way, one "or" the other.
var nativeRules = map[unflannel.Family][][2]string{
	unflannel.IP: {
		// As Flannel's nftables mode writes them.
		{"ip saddr 10.244.0.0/16 ip daddr 10.244.1.0/24 return", "-s 10.244.0.0/16 -d 10.244.1.0/24 -j RETURN"},
		{"ip saddr 10.244.0.0/16 ip daddr != 224.0.0.0/4 masquerade fully-random", "-s 10.244.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE --random-fully"},
		{"ip saddr != 10.244.0.0/16 ip daddr 10.244.0.0/16 masquerade fully-random", "! -s 10.244.0.0/16 -d 10.244.0.0/16 -j MASQUERADE --random-fully"},
		{"meta mark 0x4000 return", "-m mark --mark 0x4000 -j RETURN"},
		{"ip saddr 10.244.0.0/16 accept", "-s 10.244.0.0/16 -j ACCEPT"},

		{"ip saddr 10.0.0.1 accept", "-s 10.0.0.1/32 -j ACCEPT"},
		{"ip saddr != 10.0.0.0/9 accept", "! -s 10.0.0.0/9 -j ACCEPT"},
		{"ip saddr 10.0.0.0/8 drop", "-s 10.0.0.0/8 -j DROP"},
		{"ip saddr 10.1.2.0/24 drop", "-s 10.1.2.0/24 -j DROP"},
		{"ip saddr & 255.0.0.255 == 10.0.0.5 drop", "[expression cmp] -j DROP"},
		{"ip saddr 10.0.0.1-10.0.0.9 accept", "[expression cmp] [expression cmp] -j ACCEPT or [expression range] -j ACCEPT"},
		{"ip saddr { 10.0.0.1, 10.0.0.2 } accept", "[expression lookup] -j ACCEPT"},
		{"ip saddr > 10.0.0.1 accept", "[expression cmp] -j ACCEPT"},
		{"ip protocol tcp accept", "-p tcp -j ACCEPT"},
		{"ip protocol != tcp accept", "! -p tcp -j ACCEPT"},
		{"ip ttl 1 drop", "[expression cmp] -j DROP"},
		{"ip saddr 10.244.0.0/16 ip saddr 10.244.1.0/24 accept", "-s 10.244.0.0/16 [expression cmp] -j ACCEPT"},
		{"ip daddr vmap { 10.0.0.1 : jump OTHER, 10.0.0.2 : drop }", "[expression lookup]"},
		{"ip daddr set 10.0.0.1 accept", "[expression payload] -j ACCEPT"},
		{"ip protocol tcp masquerade to :1024-65535", "-p tcp -j MASQUERADE --to-ports 1024-65535"},
		{"ct original ip saddr 10.0.0.0/8 accept", "[expression ct] [expression cmp] -j ACCEPT"},
		{"reject", "[expression reject]"},
		{"snat to 192.0.2.1", "[expression nat]"},
		{"dup to 192.0.2.1", "[expression dup]"},
	},
	unflannel.IP6: {
		{"ip6 saddr fd00:10:244::/56 ip6 daddr fd00:10:244:1::/64 return", "-s fd00:10:244::/56 -d fd00:10:244:1::/64 -j RETURN"},
		{"ip6 saddr fd00:10:244::/56 ip6 daddr != ff00::/8 masquerade fully-random", "-s fd00:10:244::/56 ! -d ff00::/8 -j MASQUERADE --random-fully"},
		{"ip6 saddr 2001:db8::1 accept", "-s 2001:db8::1/128 -j ACCEPT"},
		{"ip6 nexthdr udp accept", "-p udp -j ACCEPT"},
		{"ip6 hoplimit 1 drop", "[expression cmp] -j DROP"},
		{"exthdr frag exists drop", "[expression exthdr] [expression cmp] -j DROP"},
	},
}

// nativeCommonRules are the same in both families.
var nativeCommonRules = [][2]string{
	{"accept", "-j ACCEPT"},
	{"drop", "-j DROP"},
	{"return", "-j RETURN"},
	{"continue", "[verdict -1]"},
	{"jump OTHER", "-j OTHER"},
	{"goto OTHER", "-g OTHER"},
	{"counter", ""},
	{"counter accept", "-j ACCEPT"},
	{"iifname eth0 counter accept", "-i eth0 -j ACCEPT"},
	{"counter iifname eth0 accept", "-i eth0 -j ACCEPT"},
	{"iifname != eth0 accept", "! -i eth0 -j ACCEPT"},
	{`oifname "veth*" drop`, "-o veth+ -j DROP"},
	{`iifname "a" oifname "b" drop`, "-i a -o b -j DROP"},
	{`iifname { "a", "b" } drop`, "[expression lookup] -j DROP"},
	{"iif lo accept", "[expression cmp] -j ACCEPT"},
	{"meta l4proto tcp accept", "-p tcp -j ACCEPT"},
	{"meta l4proto != udp accept", "! -p udp -j ACCEPT"},
	{"tcp dport 80 accept", "-p tcp -m tcp --dport 80 -j ACCEPT"},
	{"tcp dport != 80 accept", "-p tcp -m tcp ! --dport 80 -j ACCEPT"},
	{"tcp dport 80-90 accept", "-p tcp [expression cmp] [expression cmp] -j ACCEPT or -p tcp -m tcp --dport 80:90 -j ACCEPT"},
	{"tcp dport != 80-90 accept", "-p tcp -m tcp ! --dport 80:90 -j ACCEPT"},
	{"udp sport 53 udp dport 1024-65535 accept", "-p udp -m udp --sport 53 [expression cmp] [expression cmp] -j ACCEPT or -p udp -m udp --sport 53 --dport 1024:65535 -j ACCEPT"},
	{"tcp flags syn accept", "-p tcp [expression cmp] -j ACCEPT"},
	{"th dport 53 accept", "[expression cmp] -j ACCEPT"},
	{"meta mark 0x4000 accept", "-m mark --mark 0x4000 -j ACCEPT"},
	{"meta mark != 0x4000 accept", "-m mark ! --mark 0x4000 -j ACCEPT"},
	{"meta mark and 0x4000 == 0x4000 accept", "-m mark --mark 0x4000/0x4000 -j ACCEPT"},
	{"meta mark and 0x4000 != 0 accept", "-m mark ! --mark 0x0/0x4000 -j ACCEPT"},
	{"meta mark set 0x4000 accept", "[expression meta] -j ACCEPT"},
	{"meta mark set meta mark or 0x4000", "[expression bitwise] [expression meta]"},
	{"meta length 60 accept", "[expression cmp] -j ACCEPT"},
	{"ct state established,related accept", "[expression ct] [expression cmp] -j ACCEPT"},
	{"limit rate 5/minute accept", "[expression limit] -j ACCEPT"},
	{"masquerade", "-j MASQUERADE"},
	{"masquerade random", "-j MASQUERADE --random"},
	{"masquerade fully-random", "-j MASQUERADE --random-fully"},
	{"masquerade random,persistent", "-j MASQUERADE [flags 0xc]"},
	{"meta l4proto tcp masquerade to :500", "-p tcp -j MASQUERADE --to-ports 500"},
	{"counter masquerade comment \"flanneld masq\"", `[comment "flanneld masq"] -j MASQUERADE`},
	{`log prefix "x" accept`, "[expression log] -j ACCEPT"},
	{"notrack", "[expression notrack]"},
	{"fib daddr type local accept", "[expression fib] [expression cmp] -j ACCEPT"},
	{`accept comment "mine"`, `[comment "mine"] -j ACCEPT`},
}

// TestDecodeNative compares the decoder with what a rule of nft's own is in
// iptables' terms.
func TestDecodeNative(t *testing.T) {
	t.Parallel()
	for family, own := range nativeRules {
		t.Run(string(family), func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			rules := slices.Concat(own, nativeCommonRules)
			var text strings.Builder
			fmt.Fprintf(&text, "table %s nat {\nchain OTHER { }\nchain TEST {\n", family)
			for i, r := range rules {
				// One chain for each: some rules do not go with others.
				fmt.Fprintf(&text, "}\nchain TEST%d {\n%s\n", i, r[0])
			}
			text.WriteString("}\n}\n")
			ns.LoadNFT(text.String())
			for i, r := range rules {
				chain := fmt.Sprintf("TEST%d", i)
				got := decoded(t, ns, New(), family, "nat", chain)
				if len(got) != 1 {
					t.Fatalf("%d rules for %s", len(got), r[0])
				}
				rest := strings.TrimPrefix(strings.TrimPrefix(got[0].String(), "-A "+chain), " ")
				if !slices.Contains(strings.Split(r[1], " or "), rest) {
					t.Errorf("%s\nis shown as %s\n      want %s", r[0], rest, r[1])
				}
				if counted := strings.Contains(r[0], "counter"); got[0].Counted != counted {
					t.Errorf("counter of %s: %v", r[0], got[0].Counted)
				}
			}
		})
	}
}
