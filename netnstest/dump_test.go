package netnstest

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

func TestDumpOfNothing(t *testing.T) {
	t.Parallel()
	ns := New(t)
	if d := ns.Dump(); len(d) != 0 {
		t.Errorf("dump of a new namespace:\n%s", d)
	}
	ns.Do(func() {
		for _, f := range legacyFamilies {
			b, err := os.ReadFile("/proc/thread-self/net/" + f.file)
			if err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
			if len(b) > 0 {
				t.Errorf("the dump created the %s tables %q", f.name, b)
			}
		}
	})
}

const ruleset = `table inet t {
	set s { type ipv4_addr; elements = { 192.0.2.1, 192.0.2.7 }; }
	set i { type ipv6_addr; flags interval; elements = { 2001:db8::/64 }; }
	set fading { type ipv4_addr; flags timeout; elements = { 192.0.2.9 timeout 1h }; }
	map m { type ipv4_addr : verdict; elements = { 192.0.2.1 : jump c }; }
	counter hits { packets 3 bytes 4; }
	chain base {
		type filter hook forward priority 0; policy accept;
		ip saddr vmap @m
		ip saddr @s counter name hits
	}
	chain c {
		counter packets 1 bytes 2 comment "mine"
		drop
	}
}
`

const save = `*filter
:INPUT ACCEPT [5:6]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:OTHER - [0:0]
:MINE - [0:0]
[1:2] -A FORWARD -m comment --comment "to mine" -j MINE
[3:4] -A MINE -i eth0 -p tcp -m tcp --dport 80 -j REJECT
[0:0] -A MINE -m comment --comment "count only"
[0:0] -A MINE -g OTHER
[0:0] -A OUTPUT -p udp -m udp --dport 9
COMMIT
`

// Each change must be seen, and nothing else.
func TestDumpSees(t *testing.T) {
	t.Parallel()
	type change struct {
		do      [][]string // programs with their arguments
		stdin   string
		send    bool // a packet to the discard port
		removed int  // lines
		added   int
		keys    string // begins the key of each changed line
	}
	type setup struct {
		family  string
		load    func(*NS)
		lines   []string // some that must be there
		changes map[string]change
	}
	setups := map[string]setup{
		"native": {
			load: func(ns *NS) { ns.LoadNFT(ruleset) },
			lines: []string{
				"table inet t handle 1", "set inet t s handle ", "element inet t s c0000201 ", "element inet t fading c0000209 ",
				"set inet t m handle ", "element inet t m c0000201 ", "object inet t hits handle ", "chain inet t base handle ", "rule inet t c handle ",
			},
			changes: map[string]change{
				"new element":  {do: [][]string{{"nft", "add", "element", "inet", "t", "s", "{ 192.0.2.3 }"}}, added: 1, keys: "element inet t s c0000203"},
				"gone element": {do: [][]string{{"nft", "delete", "element", "inet", "t", "s", "{ 192.0.2.1 }"}}, removed: 1, keys: "element inet t s c0000201"},
				"new chain":    {do: [][]string{{"nft", "add", "chain", "inet", "t", "d"}}, added: 1, keys: "chain inet t d "},
				"new set":      {do: [][]string{{"nft", "add", "set", "inet", "t", "s2", "{ type mark; }"}}, added: 1, keys: "set inet t s2 "},
				"counters":     {do: [][]string{{"nft", "reset", "counters"}}, removed: 1, added: 1, keys: "object inet t hits "},
				// The same rule in the same place, by another handle; the use
				// counts, and the position of the rule behind it, change as well.
				"handle":       {do: [][]string{{"nft", "flush", "chain", "inet", "t", "base"}, {"nft", "-f", "-"}}, stdin: "table inet t {\n chain base {\n ip saddr vmap @m\n ip saddr @s counter name hits\n }\n}\n", removed: 2, added: 2, keys: "rule inet t base handle "},
				"first rule":   {do: [][]string{{"nft", "insert", "rule", "inet", "t", "c", "accept"}}, added: 1, keys: "rule inet t c handle "},
				"policy":       {do: [][]string{{"nft", "-f", "-"}}, stdin: "table inet t {\n chain base {\n policy drop;\n }\n}\n", removed: 1, added: 1, keys: "chain inet t base "},
				"other family": {do: [][]string{{"nft", "add", "table", "bridge", "t"}}, added: 1, keys: "table bridge t "},
			},
		},
	}
	for _, family := range []string{"ip", "ip6"} {
		tool := map[string]string{"ip": "iptables", "ip6": "ip6tables"}[family]
		nft := func(args ...string) []string { return append([]string{tool + "-nft"}, args...) }
		old := func(args ...string) []string { return append([]string{tool + "-legacy", "-w", "60"}, args...) }
		setups["nft "+family] = setup{
			family: family,
			load:   func(ns *NS) { ns.Restore("nft", family, save) },
			lines:  []string{"chain " + family + " filter FORWARD handle ", "rule " + family + " filter MINE handle "},
			changes: map[string]change{
				// The rule's, and those that iptables-nft gives base chains.
				"counter":   {send: true, removed: 3, added: 3},
				"handle":    {do: [][]string{nft("-D", "MINE", "2"), nft("-I", "MINE", "2", "-m", "comment", "--comment", "count only")}, removed: 1, added: 1, keys: "rule " + family + " filter MINE handle "},
				"new chain": {do: [][]string{nft("-N", "NEW")}, added: 1, keys: "chain " + family + " filter NEW handle "},
				"gone rule": {do: [][]string{nft("-D", "MINE", "1")}, removed: 1, keys: "rule " + family + " filter MINE handle "},
			},
		}
		prefix := "legacy " + family + " filter "
		setups["legacy "+family] = setup{
			family: family,
			load:   func(ns *NS) { ns.Restore("legacy", family, save) },
			lines: []string{
				prefix + "chain FORWARD policy DROP [0:0]", prefix + "FORWARD -> MINE [1:2] ", prefix + "chain MINE [0:0]",
				prefix + "MINE -> REJECT [3:4] ", prefix + "MINE [0:0] ", prefix + "MINE -> OTHER [0:0] ",
			},
			changes: map[string]change{
				"counter":   {send: true, removed: 1, added: 1, keys: prefix + "OUTPUT ["},
				"zero":      {do: [][]string{old("-Z", "MINE", "1")}, removed: 1, added: 1, keys: prefix + "MINE -> REJECT"},
				"new chain": {do: [][]string{old("-N", "NEW")}, added: 1, keys: prefix + "chain NEW"},
				"gone rule": {do: [][]string{old("-D", "MINE", "1")}, removed: 1, keys: prefix + "MINE -> REJECT"},
				"order":     {do: [][]string{old("-D", "MINE", "1"), old("-A", "MINE", "-i", "eth0", "-p", "tcp", "--dport", "80", "-j", "REJECT", "-c", "3", "4")}, removed: 1, added: 1, keys: prefix + "MINE -> REJECT"},
				"match":     {do: [][]string{old("-R", "MINE", "3", "-i", "eth1", "-g", "OTHER")}, removed: 1, added: 1, keys: prefix + "MINE -> OTHER"},
				"options":   {do: [][]string{old("-R", "MINE", "1", "-i", "eth0", "-p", "tcp", "--dport", "80", "-j", "REJECT", "--reject-with", "tcp-reset", "-c", "3", "4")}, removed: 1, added: 1, keys: prefix + "MINE -> REJECT"},
				"policy":    {do: [][]string{old("-P", "OUTPUT", "DROP")}, removed: 1, added: 1, keys: prefix + "chain OUTPUT policy "},
				"new table": {do: [][]string{old("-t", "raw", "-A", "OUTPUT", "-j", "ACCEPT")}, added: 3, keys: "legacy " + family + " raw "},
			},
		}
	}
	for name, s := range setups {
		t.Run(name, func(t *testing.T) {
			for name, c := range s.changes {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					ns := New(t)
					s.load(ns)
					before := ns.Dump()
					if d := Diff(before, ns.Dump()); d != "" {
						t.Fatalf("two dumps without a change between them:\n%s", d)
					}
					for _, l := range s.lines {
						if !strings.Contains("\n"+before.String(), "\n"+l) {
							t.Errorf("no line %q in the dump:\n%s", l, before)
						}
					}
					if c.send {
						ns.Do(func() { discard(t, s.family) })
					}
					for _, program := range c.do {
						ns.MustRun(c.stdin, program[0], program[1:]...)
					}
					diff := Diff(before.WithoutLegacyPolicyCounters(), ns.Dump().WithoutLegacyPolicyCounters())
					removed, added := 0, 0
					for l := range strings.Lines(diff) {
						switch {
						case strings.HasPrefix(l, "- "+c.keys):
							removed++
						case strings.HasPrefix(l, "+ "+c.keys):
							added++
						case l[0] == '-' || l[0] == '+':
							t.Errorf("other line: %s", l)
						}
					}
					if removed != c.removed || added != c.added {
						t.Errorf("%d lines removed, %d added, want %d and %d:\n%s", removed, added, c.removed, c.added, diff)
					}
				})
			}
		})
	}
}

// discard sends a packet to the loopback address's discard port, and waits for
// it there: then all counters have seen it.
func discard(t *testing.T, family string) {
	t.Helper()
	addr := map[string]string{"ip": "127.0.0.1:9", "ip6": "[::1]:9"}[family]
	to, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	from, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	if _, err := from.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	to.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, _, err := to.ReadFrom(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

func TestDumpSeesFlowtables(t *testing.T) {
	t.Parallel()
	ns := New(t)
	_, stderr, err := ns.Run("table ip t {\n\tflowtable f { hook ingress priority 0; devices = { lo }; }\n}\n", "nft", "-f", "-")
	if err != nil && strings.Contains(stderr, "No such file or directory") {
		t.Skip("this kernel has no flowtables (CONFIG_NF_FLOW_TABLE)")
	}
	if err != nil {
		t.Fatal(stderr)
	}
	if d := ns.Dump().String(); !strings.Contains(d, "\nflowtable ip t f handle ") {
		t.Errorf("no flowtable in the dump:\n%s", d)
	}
}

func TestLegacyPolicyCounters(t *testing.T) {
	t.Parallel()
	ns := New(t)
	ns.Restore("legacy", "ip", save)
	before := ns.Dump()
	if !strings.Contains(before.String(), "legacy ip filter chain INPUT policy ACCEPT [5:6]\n") {
		t.Errorf("no policy counters in the dump:\n%s", before)
	}
	ns.MustRun("", "iptables-legacy", "-w", "60", "-N", "NEW")
	after := ns.Dump().Without(func(l Line) bool { return l.Contains("NEW") })
	if Diff(before, after) == "" {
		t.Error("the zeroed counters are not seen")
	}
	if d := Diff(before.WithoutLegacyPolicyCounters(), after.WithoutLegacyPolicyCounters()); d != "" {
		t.Errorf("other differences than the counters:\n%s", d)
	}
	if !strings.Contains(before.String(), "[5:6]") {
		t.Error("the method changed its receiver")
	}
}

func TestContains(t *testing.T) {
	t.Parallel()
	ns := New(t)
	ns.Restore("nft", "ip", save)
	ns.Restore("legacy", "ip", save)
	for _, text := range []string{"to mine", "count only"} {
		d := ns.Dump().Without(func(l Line) bool { return !l.Contains(text) })
		if len(d) != 2 {
			t.Errorf("%d lines contain %q, want one of each backend:\n%s", len(d), text, d)
		}
	}
}
