package legacy

import (
	"encoding/binary"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/netnstest"
)

// record writes testdata/tables anew, from this machine's kernel.
var record = flag.Bool("record", false, "record tables of the kernel")

// recorded are the tables in testdata/tables: files with the ipt_getinfo and the
// entries of a little-endian kernel, beside them what they say.
var recorded = []struct {
	unflannel.Family
	table, save string
}{
	{unflannel.IP, "nat", "testdata/everything.v4.save"},
	{unflannel.IP, "filter", "testdata/everything.v4.save"},
	{unflannel.IP, "mangle", "testdata/everything.v4.save"},
	{unflannel.IP6, "nat", "testdata/everything.v6.save"},
	{unflannel.IP6, "filter", "testdata/everything.v6.save"},
	{unflannel.IP, "nat", "../testdata/rulesets/flannel-v0.28.9-iptables-busy-node.v4.save"},
	{unflannel.IP6, "filter", "../testdata/rulesets/flannel-v0.28.9-iptables-busy-node.v6.save"},
}

// recording is the file of a recorded table, without its extension.
func recording(family unflannel.Family, table, save string) string {
	name, _, _ := strings.Cut(filepath.Base(save), ".v")
	if i := strings.Index(name, "busy"); i >= 0 {
		name = name[i:]
	}
	return fmt.Sprintf("testdata/tables/%s-%s-%s", name, family, table)
}

func TestRecord(t *testing.T) {
	if !*record {
		t.Skip("expected: only with -record")
	}
	if err := os.MkdirAll("testdata/tables", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, r := range recorded {
		ns := netnstest.New(t)
		ns.Restore("legacy", string(r.Family), readFile(t, r.save))
		var raw *table
		var err error
		ns.Do(func() { raw, err = kernelTable(t.Context(), r.Family, r.table) })
		if err != nil {
			t.Fatal(err)
		}
		name := recording(r.Family, r.table, r.save)
		if err := os.WriteFile(name+".bin", append(raw.info(), raw.data...), 0o644); err != nil {
			t.Fatal(err)
		}
		text, err := describe(raw)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name+".txt", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// info is the ipt_getinfo that the kernel would give of a table.
func (t *table) info() []byte {
	b := make([]byte, infoSize)
	host.PutUint32(b[32:], t.valid)
	for i := range hookNames {
		host.PutUint32(b[36+4*i:], t.entry[i])
		host.PutUint32(b[56+4*i:], t.underflow[i])
	}
	host.PutUint32(b[76:], t.entries)
	host.PutUint32(b[80:], uint32(len(t.data)))
	return b
}

// describe writes down all chains of a table with all that is known of them.
func describe(t *table) (string, error) {
	index, err := t.index()
	if err != nil {
		return "", err
	}
	var names []string
	for _, x := range index {
		names = append(names, t.nameOf(x))
	}
	chains, err := t.chains(names)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, c := range chains {
		fmt.Fprintln(&b, strings.TrimSpace(strings.Join([]string{"chain", c.Name, c.Hook, c.Policy}, " ")))
		for _, r := range c.Rules {
			fmt.Fprintf(&b, "  %d [%d:%d] %s\n", r.Position, r.Packets, r.Bytes, r)
		}
		for _, r := range c.References {
			fmt.Fprintf(&b, "  from %s %d\n", r.Chain, r.Position)
		}
	}
	return b.String(), nil
}

func TestRecordedTables(t *testing.T) {
	t.Parallel()
	if host.Uint16([]byte{1, 0}) != binary.LittleEndian.Uint16([]byte{1, 0}) {
		t.Skip("expected: the recordings are of a little-endian kernel, this one is not")
	}
	for _, r := range recorded {
		name := recording(r.Family, r.table, r.save)
		data := []byte(readFile(t, name+".bin"))
		i := parseInfo(data)
		have, err := describe(&table{layout: layouts[r.Family], hooks: i.hooks, entries: i.entries, data: data[infoSize:]})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if want := readFile(t, name+".txt"); have != want {
			t.Errorf("%s: have\n%s\nwant\n%s", name, have, want)
		}
	}
}

// builder puts a table together as the kernel does, in this machine's byte order.
type builder struct {
	table
	starts map[string]int // of chains
}

func newBuilder(family unflannel.Family) *builder {
	return &builder{table: table{layout: layouts[family]}, starts: map[string]int{}}
}

// add appends an entry with a target and returns its offset.
func (b *builder) add(target []byte, change ...func(entry []byte)) int {
	e := make([]byte, b.size+len(target))
	host.PutUint16(e[b.targetOffset:], uint16(b.size))
	host.PutUint16(e[b.nextOffset:], uint16(len(e)))
	copy(e[b.size:], target)
	for _, c := range change {
		c(e)
	}
	at := len(b.data)
	b.data = append(b.data, e...)
	b.entries++
	return at
}

// base begins a built-in chain.
func (b *builder) base(hook int) {
	b.valid |= 1 << hook
	b.entry[hook] = uint32(len(b.data))
	b.starts[hookNames[hook]] = len(b.data)
}

// policy ends a built-in chain.
func (b *builder) policy(hook, verdict int) {
	b.underflow[hook] = uint32(b.add(standard(verdict)))
}

// chain begins a chain.
func (b *builder) chain(name string) {
	b.add(extensionBytes("ERROR", 0, append([]byte(name), make([]byte, 32-len(name))...)))
	b.starts[name] = len(b.data)
}

func (b *builder) end() { b.chain("ERROR") }

func extensionBytes(name string, revision byte, data []byte) []byte {
	e := make([]byte, extensionSize, extensionSize+len(data))
	host.PutUint16(e, uint16(extensionSize+len(data)))
	copy(e[extensionName:], name)
	e[extensionRevision] = revision
	return append(e, data...)
}

func standard(verdict int) []byte {
	data := make([]byte, 8)
	host.PutUint32(data, uint32(int32(verdict)))
	return extensionBytes("", 0, data)
}

// small is a table with a chain, a rule that goes to it, and one that falls through.
func small(family unflannel.Family) *builder {
	b := newBuilder(family)
	b.base(2)
	// The chain comes after this chain: two rules and the policy, then its head.
	rule := b.size + len(standard(0))
	head := b.size + extensionSize + 32
	first := 3*rule + head
	b.add(standard(first), func(e []byte) {
		e[b.flags] |= b.flagGoto
		copy(e[b.in:], "eth")
		copy(e[b.inMask:], "\xff\xff\xff")
		host.PutUint64(e[b.counters:], 5)
		host.PutUint64(e[b.counters+8:], 300)
	})
	b.add(standard(2*rule), func(e []byte) {
		copy(e[b.out:], "eth0")
		copy(e[b.outMask:], "\xff\xff\xff\xff\xff")
		e[b.inverted] |= invertOut | invertSource
		address := netip.MustParseAddr("192.0.2.0").AsSlice()
		if b.addressSize == 16 {
			address = netip.MustParseAddr("2001:db8::").AsSlice()
		}
		copy(e[b.source:], address)
		copy(e[b.sourceMask:], "\xff\xff\xff")
	})
	b.policy(2, verdictDrop)
	b.chain("FLANNEL-FWD")
	b.add(standard(verdictAccept), func(e []byte) {
		host.PutUint16(e[b.protocol:], 17)
		e[b.flags] |= b.flagProtocol
	})
	b.add(standard(verdictReturn))
	b.end()
	return b
}

// A table in this machine's byte order, whichever that is.
func TestWalk(t *testing.T) {
	t.Parallel()
	for family, source := range map[unflannel.Family]string{unflannel.IP: "192.0.2.0/24", unflannel.IP6: "2001:db8::/24"} {
		b := small(family)
		have, err := describe(&b.table)
		if err != nil {
			t.Fatal(err)
		}
		want := `chain FORWARD forward DROP
  1 [5:300] -A FORWARD -i eth+ -g FLANNEL-FWD
  2 [0:0] -A FORWARD ! -s ` + source + ` ! -o eth0
chain FLANNEL-FWD
  1 [0:0] -A FLANNEL-FWD -p udp -j ACCEPT
  from FORWARD 1
`
		if have != want {
			t.Errorf("have\n%s\nwant\n%s", have, want)
		}
	}
}

// What does not hold together is an error.
func TestWalkRefuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*builder){
		"empty":                func(b *builder) { b.data = nil },
		"cut in an entry":      func(b *builder) { b.data = b.data[:len(b.data)-8] },
		"cut between entries":  func(b *builder) { b.data = b.data[:b.starts["FLANNEL-FWD"]] },
		"wrong count":          func(b *builder) { b.entries++ },
		"hook nowhere":         func(b *builder) { b.valid |= 1 },
		"hook inside an entry": func(b *builder) { b.entry[2] += 8 },
		"policy elsewhere":     func(b *builder) { b.underflow[2]-- },
		"no end of chain": func(b *builder) {
			b.data = slices.Delete(b.data, b.starts["FLANNEL-FWD"]+b.size+40, len(b.data))
			b.entries -= 2
			b.end()
		},
		"entry of no length":     func(b *builder) { host.PutUint16(b.data[b.nextOffset:], 0) },
		"target before the end":  func(b *builder) { host.PutUint16(b.data[b.targetOffset:], 8) },
		"target after the end":   func(b *builder) { host.PutUint16(b.data[b.targetOffset:], 0xffff) },
		"target of no length":    func(b *builder) { host.PutUint16(b.data[b.size:], 0) },
		"target too long":        func(b *builder) { host.PutUint16(b.data[b.size:], 4000) },
		"jump into a rule":       func(b *builder) { host.PutUint32(b.data[b.size+extensionSize:], 8) },
		"jump out of the table":  func(b *builder) { host.PutUint32(b.data[b.size+extensionSize:], 1<<30) },
		"unknown verdict":        func(b *builder) { host.PutUint32(b.data[b.size+extensionSize:], ^uint32(9)) },
		"chain without a name":   func(b *builder) { b.data[b.starts["FLANNEL-FWD"]-32] = 0 },
		"name without an end":    func(b *builder) { copy(b.data[b.starts["FLANNEL-FWD"]-32:], strings.Repeat("x", 32)) },
		"target without verdict": func(b *builder) { host.PutUint16(b.data[b.size:], extensionSize) },
	} {
		for _, family := range families {
			b := small(family.Family)
			change(b)
			if text, err := describe(&b.table); err == nil {
				t.Errorf("%s, %s: no error, but\n%s", name, family.Family, text)
			}
		}
	}
}

func FuzzWalk(f *testing.F) {
	for _, r := range recorded {
		data, err := os.ReadFile(recording(r.Family, r.table, r.save) + ".bin")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(r.Family == unflannel.IP6, data)
	}
	for _, family := range families {
		b := small(family.Family)
		f.Add(family.Family == unflannel.IP6, append(b.info(), b.data...))
	}
	f.Fuzz(func(t *testing.T, six bool, data []byte) {
		if len(data) < infoSize {
			return
		}
		family := unflannel.IP
		if six {
			family = unflannel.IP6
		}
		i := parseInfo(data)
		raw := &table{layout: layouts[family], hooks: i.hooks, entries: i.entries, data: data[infoSize:]}
		chains, err := raw.chains([]string{"POSTROUTING", "FORWARD", "FLANNEL-POSTRTG", "FLANNEL-FWD"})
		if err != nil {
			return
		}
		for _, c := range chains {
			for _, r := range append(c.Rules, c.References...) {
				_ = r.String()
			}
		}
		_, _ = describe(raw)
	})
}

// What a rule costs that is stepped over: nothing but its bytes.
func BenchmarkWalk(b *testing.B) {
	for _, rules := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint(rules), func(b *testing.B) {
			t := newBuilder(unflannel.IP)
			t.base(4)
			for range rules {
				t.add(standard(verdictAccept))
			}
			t.policy(4, verdictAccept)
			for i := range rules / 5 {
				t.chain(fmt.Sprintf("KUBE-SVC-%d", i))
				t.add(standard(verdictReturn))
			}
			t.chain("FLANNEL-POSTRTG")
			t.add(standard(verdictReturn))
			t.end()
			b.SetBytes(int64(len(t.data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := t.chains([]string{"FLANNEL-POSTRTG"}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
