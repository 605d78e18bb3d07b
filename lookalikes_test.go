package unflannel_test

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/unflannel/unflannel"
)

// lookAlike is a rule that is not Flannel's, for all that it looks like.
type lookAlike struct {
	whose string
	table string // "nat" or "filter"
	rule  string // as iptables-save prints it
	// mentioned: the report lists it as not touched, since it names Flannel.
	mentioned bool
}

// Those with a case's name in brackets stand in that case of testdata/cases.
var lookAlikes = []lookAlike{
	{whose: "libvirt's multicast (centos7-libvirt-docker)", table: "nat", rule: "-A POSTROUTING -s 192.168.122.0/24 -d 224.0.0.0/24 -j RETURN"},
	{whose: "libvirt's masquerade (centos7-libvirt-docker)", table: "nat", rule: "-A POSTROUTING -s 192.168.122.0/24 ! -d 192.168.122.0/24 -j MASQUERADE"},
	{whose: "libvirt's masquerade of TCP (centos7-libvirt-docker)", table: "nat", rule: "-A POSTROUTING -s 192.168.122.0/24 ! -d 192.168.122.0/24 -p tcp -j MASQUERADE --to-ports 1024-65535"},
	{whose: "Docker's masquerade (chainless-no-comment)", table: "nat", rule: "-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE"},
	{whose: "Docker's masquerade of Flannel's network", table: "nat", rule: "-A POSTROUTING -s 10.244.0.0/16 ! -o docker0 -j MASQUERADE"},
	{whose: "a VPN's masquerade (chainless-no-comment)", table: "nat", rule: "-A POSTROUTING -s 10.8.0.0/24 -o eth0 -j MASQUERADE"},
	{whose: "an operator's masquerade with an interface (chainless-duplicates-out-of-order)", table: "nat", rule: "-A POSTROUTING -s 198.51.100.0/24 ! -d 224.0.0.0/4 -o eth1 -j MASQUERADE"},
	{whose: "an operator's masquerade with an interface, of Flannel's network", table: "nat", rule: "-A POSTROUTING -s 10.244.0.0/16 ! -d 224.0.0.0/4 -o eth1 -j MASQUERADE"},
	{whose: "a comment that only contains Flannel's (kubespray-two-generations)", table: "nat", rule: `-A POSTROUTING -s 203.0.113.0/24 -m comment --comment "not flanneld masq" -j MASQUERADE`, mentioned: true},
	{whose: "the service network's accept (chainless-no-comment)", table: "filter", rule: "-A FORWARD -s 10.43.0.0/16 -j ACCEPT"},
	{whose: "an accept of another network (chains-without-comments)", table: "filter", rule: "-A FORWARD -s 10.50.0.0/16 -j ACCEPT"},
	{whose: "an accept of the pod network in Docker's chain (chainless-no-comment)", table: "filter", rule: "-A DOCKER-USER -s 10.244.0.0/16 -j ACCEPT"},
	{whose: "an operator's comment (nothing-to-do)", table: "filter", rule: `-A FORWARD -m comment --comment "no flannel here" -j ACCEPT`, mentioned: true},
	{whose: "kube-router's accept of a pod (k3s-kube-router-dual-stack)", table: "filter", rule: `-A DOCKER-USER -d 10.244.0.9/32 -m comment --comment "rule to permit the traffic" -m addrtype --src-type LOCAL -j ACCEPT`},
	{whose: "kube-proxy's masquerade (kubeadm-plain)", table: "nat", rule: `-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully`},
	{whose: "kube-proxy's mark (kubeadm-plain)", table: "nat", rule: "-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN"},
	{whose: "a CNI plugin's masquerade (k3s-kube-router-dual-stack)", table: "nat", rule: "-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE"},
	{whose: "Weave's masquerades", table: "nat", rule: "-A WEAVE ! -s 10.244.0.0/16 -d 10.244.0.0/16 -j MASQUERADE"},
	{whose: "Calico's masquerade (calico-migrated-vxlan)", table: "nat", rule: `-A KUBE-POSTROUTING -o vxlan.calico -m comment --comment "cali:e9dnSgSVNmIcpVhP" -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL -j MASQUERADE --random-fully`},

	{whose: "Flannel's comment in another chain", table: "nat", rule: `-A KUBE-POSTROUTING -s 10.244.0.0/16 -d 10.244.0.0/16 -m comment --comment "flanneld masq" -j RETURN`},
	{whose: "Flannel's comment in another built-in chain", table: "nat", rule: `-A OUTPUT -s 10.244.0.0/16 -d 10.244.0.0/16 -m comment --comment "flanneld masq" -j RETURN`},
	{whose: "Flannel's comment in INPUT", table: "filter", rule: `-A INPUT -s 10.244.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT`},
	{whose: "Flannel's masquerading comment on a forwarding rule", table: "filter", rule: `-A FORWARD -s 10.244.0.0/16 -m comment --comment "flanneld masq" -j ACCEPT`, mentioned: true},
	{whose: "Flannel's comment with another target", table: "filter", rule: `-A FORWARD -s 10.244.0.0/16 -m comment --comment "flanneld forward" -j DROP`, mentioned: true},
	{whose: "Flannel's comment and a port", table: "filter", rule: `-A FORWARD -s 10.244.0.0/16 -p tcp -m tcp --dport 80 -m comment --comment "flanneld forward" -j ACCEPT`, mentioned: true},
	{whose: "Flannel's comment and an interface", table: "filter", rule: `-A FORWARD -s 10.244.0.0/16 -i eth0 -m comment --comment "flanneld forward" -j ACCEPT`, mentioned: true},
	{whose: "Flannel's comment twice", table: "filter", rule: `-A FORWARD -s 10.244.0.0/16 -m comment --comment "flanneld forward" -m comment --comment "flanneld forward" -j ACCEPT`, mentioned: true},
	{whose: "Flannel's comment on both addresses", table: "filter", rule: `-A FORWARD -s 10.244.0.0/16 -d 10.244.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT`, mentioned: true},
	{whose: "Flannel's comment in capitals", table: "filter", rule: `-A FORWARD -s 10.244.0.0/16 -m comment --comment "Flanneld forward" -j ACCEPT`, mentioned: true},
	{whose: "Flannel's comment and more", table: "filter", rule: `-A FORWARD -s 10.244.0.0/16 -m comment --comment "flanneld forward " -j ACCEPT`, mentioned: true},
	{whose: "flannel masq on a rule that has flanneld masq", table: "nat", rule: `-A POSTROUTING -s 10.244.0.0/16 -d 10.244.0.0/16 -m comment --comment "flannel masq" -j RETURN`, mentioned: true},
	{whose: "flannel masq without --random-fully", table: "nat", rule: `-A POSTROUTING -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment "flannel masq" -j MASQUERADE`, mentioned: true},
	{whose: "flanneld masq with a port range", table: "nat", rule: `-A POSTROUTING -s 10.244.0.0/16 ! -d 224.0.0.0/4 -p tcp -m comment --comment "flanneld masq" -j MASQUERADE --to-ports 1024-65535`, mentioned: true},
	{whose: "flanneld masq on a source NAT", table: "nat", rule: `-A POSTROUTING -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment "flanneld masq" -j SNAT --to-source 192.0.2.1`, mentioned: true},
	{whose: "another multicast network", table: "nat", rule: "-A POSTROUTING -s 10.244.0.0/16 ! -d 224.0.0.0/8 -j MASQUERADE"},
	{whose: "a part of Flannel's network", table: "nat", rule: "-A POSTROUTING -s 10.244.0.0/17 -d 10.244.0.0/17 -j RETURN"},
	{whose: "more than Flannel's network", table: "filter", rule: "-A FORWARD -s 10.240.0.0/12 -j ACCEPT"},
	{whose: "one pod", table: "filter", rule: "-A FORWARD -d 10.244.0.5/32 -j ACCEPT"},
	{whose: "a drop of Flannel's network", table: "filter", rule: "-A FORWARD -s 10.244.0.0/16 -j DROP"},
	{whose: "an interface of Flannel's", table: "filter", rule: "-A FORWARD -i flannel.1 -j ACCEPT", mentioned: true},
	{whose: "an interface of Flannel's, by its beginning", table: "filter", rule: "-A FORWARD ! -o flannel+ -j LOG", mentioned: true},
	{whose: "a chain of a like name", table: "filter", rule: "-A FORWARD -j FLANNEL-FORWARD", mentioned: true},
	{whose: "a chain of a longer name", table: "filter", rule: "-A FORWARD -j FLANNEL-FWD-LOG", mentioned: true},
	{whose: "a rule in a chain of a longer name", table: "filter", rule: "-A FLANNEL-FWD-LOG -s 10.244.0.0/16 -j ACCEPT"},
	{whose: "the filter chain's name in nat", table: "nat", rule: "-A POSTROUTING -j FLANNEL-FWD", mentioned: true},
	{whose: "a chain FLANNEL of other content", table: "nat", rule: "-A FLANNEL -d 10.244.0.0/16 -j LOG"},
	{whose: "a jump to a chain FLANNEL of other content", table: "nat", rule: "-A POSTROUTING -s 10.244.0.0/16 -j FLANNEL", mentioned: true},
}

// TestLookAlikes puts each look-alike beside everything that Flannel ever wrote
// and has that removed, its network asked for. The look-alike stays.
func TestLookAlikes(t *testing.T) {
	t.Parallel()
	for _, l := range lookAlikes {
		for _, backend := range []string{"nft", "legacy"} {
			t.Run(l.whose+"/"+backend, func(t *testing.T) {
				t.Parallel()
				n := newNode(t)
				n.Restore(backend, "ip", l.besideFlannel(t))
				_, clean := n.cleanedOf(unflannel.Options{Networks: []netip.Prefix{clusterIPv4}}, unflannel.NothingLeft, nil)
				saved := n.MustRun("", "iptables-"+backend+"-save", "-t", l.table)
				if !strings.Contains(saved, l.rule+"\n") {
					t.Errorf("it is gone:\n%s", saved)
				}
				for _, f := range clean.Findings {
					if f.Rule == l.rule {
						t.Errorf("it is reported as Flannel's: %+v", f)
					}
				}
				conditions, _, _ := strings.Cut(l.rule, " --to-source") // of SNAT the report shows no options
				conditions, _, _ = strings.Cut(conditions, " LOG")
				mentioned := false
				for _, f := range clean.NotTouched {
					mentioned = mentioned || strings.HasPrefix(f.Rule, conditions) && f.State == unflannel.StateNotTouched
				}
				if mentioned != l.mentioned {
					t.Errorf("in the list of what was not touched: %v, want %v", mentioned, l.mentioned)
				}
				if strings.Count(saved, "\n-A ") > 2 { // it, and the jump to a chain of its own
					t.Errorf("more than the look-alike is left:\n%s", saved)
				}
			})
		}
	}
}

// besideFlannel is a ruleset with the look-alike between the rules of two
// generations of Flannel, and the chains that it needs.
func (l lookAlike) besideFlannel(t *testing.T) string {
	read := func(name string) string {
		text, err := os.ReadFile("testdata/rulesets/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var b strings.Builder
	for _, table := range []string{"filter", "nat"} {
		b.WriteString("*" + table + "\n")
		chains := ":DOCKER-USER\n:FLANNEL-FWD\n:FLANNEL-FORWARD\n:FLANNEL-FWD-LOG\n"
		if table == "nat" {
			chains = ":FLANNEL-POSTRTG\n:KUBE-POSTROUTING\n:CNI-HOSTPORT-MASQ\n:WEAVE\n"
			if strings.Contains(l.rule, "FLANNEL-FWD") {
				chains += ":FLANNEL-FWD\n"
			}
			if strings.Contains(l.rule, " FLANNEL ") || strings.HasSuffix(l.rule, " FLANNEL") {
				chains += ":FLANNEL\n"
			}
		}
		b.WriteString(strings.ReplaceAll(chains, "\n", " - [0:0]\n"))
		rules := func(name string) { b.WriteString(rulesOf(read(name), table)) }
		rules("flannel-v0.19.2-then-v0.28.9-iptables.v4.save")
		if table == l.table {
			b.WriteString("[7:420] " + l.rule + "\n")
		}
		rules("flannel-v0.13.0-iptables-new-lease.v4.save")
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// rulesOf are the rules of one table of a save file.
func rulesOf(save, table string) string {
	_, text, _ := strings.Cut(save, "*"+table+"\n")
	text, _, _ = strings.Cut(text, "COMMIT\n")
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "-A ") {
			b.WriteString(line)
		}
	}
	return b.String()
}
