package unflannel_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/conntrack"
	"github.com/unflannel/unflannel/legacy"
	"github.com/unflannel/unflannel/nft"
)

// entry is an entry of the connection tracking table, made by the program conntrack.
type entry struct {
	what  string
	make  string // options of conntrack -I
	ended bool   // whether --flush-conntrack ends it
}

// The pod network is 10.244.0.0/16, this node's tunnel 10.244.77.0 and its own
// address 192.0.2.1.
var entries = []entry{
	{"UDP between pods, masqueraded", "-p udp -s 10.244.77.5 -d 10.244.88.9 --sport 5000 --dport 53 --src-nat 10.244.77.0", true},
	{"TCP between pods, masqueraded", "-p tcp -s 10.244.77.5 -d 10.244.88.9 --sport 5001 --dport 80 --state ESTABLISHED --src-nat 10.244.77.0", true},
	{"ICMP between pods, masqueraded", "-p icmp -s 10.244.77.5 -d 10.244.88.9 --icmp-type 8 --icmp-code 0 --icmp-id 7 --src-nat 10.244.77.0", true},
	{"between pods, masqueraded to the node's address", "-p udp -s 10.244.77.5 -d 10.244.88.9 --sport 5002 --dport 53 --src-nat 192.0.2.1", true},
	{"IPv6 between pods, masqueraded", "-p udp -s fd00:10:244:77::5 -d fd00:10:244:88::9 --sport 5003 --dport 53 --src-nat fd00:10:244:77::", true},

	{"between pods, as it should be", "-p udp -s 10.244.77.6 -d 10.244.88.9 --sport 5010 --dport 53", false},
	{"between pods, only the port translated", "-p udp -s 10.244.77.6 -d 10.244.88.9 --sport 5011 --dport 53 --src-nat 10.244.77.6:6011", false},
	{"pod to the outside", "-p tcp -s 10.244.77.5 -d 198.51.100.7 --sport 5012 --dport 443 --state ESTABLISHED --src-nat 192.0.2.1", false},
	{"outside to a pod", "-p tcp -s 198.51.100.7 -d 10.244.77.5 --sport 5013 --dport 80 --state ESTABLISHED --src-nat 192.0.2.1", false},
	{"kube-proxy's service", "-p udp -s 10.244.77.5 -d 10.96.0.10 --sport 5014 --dport 53 --dst-nat 10.244.88.9", false},
	{"kube-proxy's service, masqueraded", "-p udp -s 10.244.77.5 -d 10.96.0.10 --sport 5015 --dport 53 --dst-nat 10.244.88.9 --src-nat 10.244.77.0", false},
	{"kube-proxy's node port", "-p tcp -s 198.51.100.7 -d 192.0.2.1 --sport 5016 --dport 30080 --state ESTABLISHED --dst-nat 10.244.88.9 --src-nat 192.0.2.1", false},
	{"translated within the pod network", "-p udp -s 10.244.77.5 -d 10.244.88.8 --sport 5017 --dport 53 --dst-nat 10.244.88.9 --src-nat 10.244.77.0", false},
	{"the host's own", "-p tcp -s 192.0.2.1 -d 198.51.100.7 --sport 5018 --dport 443 --state ESTABLISHED", false},
	{"the host's to a pod, as it should be", "-p tcp -s 10.244.77.0 -d 10.244.88.9 --sport 5019 --dport 80 --state ESTABLISHED", false},
	{"another network's, masqueraded", "-p udp -s 10.9.0.5 -d 10.9.1.9 --sport 5020 --dport 53 --src-nat 10.9.0.1", false},
	{"IPv6 pod to the outside", "-p udp -s fd00:10:244:77::5 -d 2001:db8::7 --sport 5021 --dport 53 --src-nat 2001:db8::1", false},
}

// TestFlushConnections: of a full table exactly the masqueraded connections between
// pods end, whether the network is read from the rules or given.
func TestFlushConnections(t *testing.T) {
	t.Parallel()
	for _, given := range []bool{false, true} {
		for _, dryRun := range []bool{true, false} {
			name := map[bool]string{false: "network from the rules", true: "network given"}[given]
			if dryRun {
				name += ", dry run"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				n := newNode(t)
				for _, e := range entries {
					n.MustRun("", "conntrack", append([]string{"-I", "-t", "600"}, strings.Fields(e.make)...)...)
				}
				o := unflannel.Options{DryRun: dryRun, Connections: conntrack.New()}
				if given {
					o.Networks = []netip.Prefix{clusterIPv4, clusterIPv6}
				} else {
					for family, file := range map[string]string{"ip": "flannel-v0.22.3-iptables.v4.save", "ip6": "flannel-v0.22.3-iptables.v6.save"} {
						text, err := os.ReadFile("testdata/rulesets/" + file)
						if err != nil {
							t.Fatal(err)
						}
						n.Restore("nft", family, string(text))
					}
				}
				report := n.clean(o)
				n.wantConnections(report, dryRun)
				if again := n.clean(o); !dryRun && len(again.Connections) != 0 {
					t.Errorf("a second run ended %v", again.Connections)
				}
			})
		}
	}
}

// wantConnections compares the report and the table with the list of entries.
func (n node) wantConnections(report *unflannel.Report, dryRun bool) {
	n.t.Helper()
	table := n.MustRun("", "conntrack", "-L", "-f", "ipv4") + n.MustRun("", "conntrack", "-L", "-f", "ipv6")
	ended := 0
	for _, e := range entries {
		if e.ended {
			ended++
		}
		want := !e.ended || dryRun
		if there := strings.Contains(table, e.tuple()); there != want {
			n.t.Errorf("%s: in the table: %v, want %v\n%s", e.what, there, want, table)
		}
	}
	if len(report.Connections) != ended {
		n.t.Errorf("%d connections are reported, want %d: %v", len(report.Connections), ended, report.Connections)
	}
	for _, c := range report.Connections {
		if c.Rewritten.Addr() == c.Source.Addr() || !c.Rewritten.IsValid() {
			n.t.Errorf("connection %+v was not rewritten", c)
		}
	}
}

// tuple is how conntrack -L prints the entry's beginning.
func (e entry) tuple() string {
	f := strings.Fields(e.make)
	value := func(option string) string {
		for i, word := range f {
			if word == option {
				return f[i+1]
			}
		}
		return ""
	}
	s := "src=" + value("-s") + " dst=" + value("-d")
	if port := value("--sport"); port != "" {
		return s + " sport=" + port
	}
	return s + " type=8"
}

// TestFlushWithoutNetwork: where nothing tells the network, nothing is ended, and
// that is said.
func TestFlushWithoutNetwork(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.MustRun("", "conntrack", append([]string{"-I", "-t", "600"}, strings.Fields(entries[0].make)...)...)
	report := n.clean(unflannel.Options{Connections: conntrack.New()})
	if len(report.Connections) != 0 || len(report.Warnings) != 1 || !strings.Contains(report.Warnings[0], "--network") {
		t.Errorf("ended %v, warned %q", report.Connections, report.Warnings)
	}
	if report.Outcome != unflannel.NothingLeft {
		t.Errorf("outcome is %s", report.Outcome)
	}
}

// TestFlushRefused: the rules are cleaned though connections cannot be ended.
func TestFlushRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.Restore("nft", "ip", natSave+":FLANNEL-POSTRTG - [0:0]\n-A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE\nCOMMIT\n")
	n.Do(func() {
		report, err := unflannel.Clean(t.Context(), unflannel.Options{Connections: refusing{}}, nft.New(), legacy.New())
		if err == nil || report.Outcome != unflannel.Left || !strings.Contains(report.Summary, "no conntrack here") {
			t.Errorf("error %v, outcome %s, summary %q", err, report.Outcome, report.Summary)
		}
	})
	if d := n.Dump(); len(d.Without(ofOwnChains)) != len(d) {
		t.Errorf("the rules were not cleaned:\n%s", d)
	}
}

// refusing is a connection tracking table that cannot be read.
type refusing struct{}

var errRefusing = &unflannel.Error{Op: "read the connection tracking table", Backend: "conntrack", Err: errors.New("no conntrack here")}

func (refusing) Rewritten(context.Context, []netip.Prefix) ([]unflannel.Connection, error) {
	return nil, errRefusing
}

func (refusing) Delete(context.Context, []netip.Prefix) ([]unflannel.Connection, error) {
	return nil, errRefusing
}
