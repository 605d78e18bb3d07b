package nft

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel"
)

// recordedRules are the rules in the recorded answers, as messages, by chain.
func recordedRules(tb testing.TB) map[string][]message {
	all := map[string][]message{}
	for _, datagrams := range readRecording(tb, "chains").before {
		for _, b := range datagrams {
			eachMessage(b, func(m []byte) {
				h, _, err := nextMessage(m)
				if err != nil || h.typ != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWRULE {
					return
				}
				chain := string(cstring(attribute(m, unix.NFTA_RULE_CHAIN)))
				all[chain] = append(all[chain], message(bytes.Clone(m[:align(int(binary.NativeEndian.Uint32(m)))])))
			})
		}
	}
	if len(all["FLANNEL-POSTRTG"]) == 0 || len(all["POSTROUTING"]) == 0 {
		tb.Fatalf("no rules in the recording: %d chains", len(all))
	}
	return all
}

func (m message) attrs() []byte { return m[sizeofNlmsghdr+sizeofNfgenmsg:] }

// BenchmarkDecodeRule decodes rules that are Flannel's: one after the other, all of
// those that masquerade.
func BenchmarkDecodeRule(b *testing.B) {
	rules := recordedRules(b)["FLANNEL-POSTRTG"]
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if _, err := decodeRule(unflannel.IP, rules[n%len(rules)].attrs()); err != nil {
			b.Fatal(err)
		}
	}
}

// reader looks for a chain that none of the recorded rules refers to.
func reader(c *conn) *tableReader {
	return &tableReader{conn: c, family: unflannel.IP, number: families[unflannel.IP], table: "nat",
		chains: []*chainRead{{Chain: &unflannel.Chain{Name: "FLANNEL"}, use: 1}}}
}

// BenchmarkReferences looks at a rule only to see that it refers to nothing wanted.
func BenchmarkReferences(b *testing.B) {
	rules := recordedRules(b)["FLANNEL-POSTRTG"]
	r := reader(nil)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if refers, err := r.references(rules[n%len(rules)].attrs(), "KUBE-SERVICES"); err != nil || refers {
			b.Fatal(refers, err)
		}
	}
}

// dumper is a kernel that answers each request with the same rules, in datagrams of
// the size that the reader asks for.
type dumper struct{ datagrams, left [][]byte }

func (d *dumper) send([]byte) error { d.left = d.datagrams; return nil }

func (d *dumper) receive(_ context.Context, b []byte) (int, error) {
	n := copy(b, d.left[0])
	d.left = d.left[1:]
	return n, nil
}

func (d *dumper) close() {}

// dump is an answer of so many rules to the request with the number 1.
func dump(tb testing.TB, rules int) *dumper {
	d := &dumper{}
	var datagram []byte
	add := func(m message) {
		binary.NativeEndian.PutUint32(m[8:], 1)
		if len(datagram)+len(m) > dumpBuffer {
			d.datagrams, datagram = append(d.datagrams, datagram), nil
		}
		datagram = append(datagram, m...)
	}
	// A jump to the wanted chain is not among them.
	messages := append(recordedRules(tb)["FLANNEL-POSTRTG"], recordedRules(tb)["POSTROUTING"]...)
	for n := range rules {
		add(messages[n%len(messages)])
	}
	done := newMessage(unix.NLMSG_DONE, unix.NLM_F_MULTI, unix.AF_UNSPEC, 0)
	clear(done[sizeofNlmsghdr:]) // the errno 0
	add(done.number(1))
	d.datagrams = append(d.datagrams, datagram)
	return d
}

// BenchmarkChainDump reads a whole chain of somebody else's.
func BenchmarkChainDump(b *testing.B) {
	for _, rules := range []int{10, 1000, 50_000} {
		b.Run(fmt.Sprint(rules), func(b *testing.B) {
			d := dump(b, rules)
			bytes := 0
			for _, datagram := range d.datagrams {
				bytes += len(datagram)
			}
			c := newConn(d)
			r := reader(c)
			b.SetBytes(int64(bytes))
			b.ReportAllocs()
			for b.Loop() {
				readAll(b, r)
			}
		})
	}
}

func readAll(tb testing.TB, r *tableReader) {
	r.seq = 0
	if err := r.rules(context.Background(), "KUBE-SERVICES", nil); err != nil || r.chains[0].found > 0 {
		tb.Fatal(err)
	}
}

// TestAllocations: a rule that is stepped over costs no memory.
func TestAllocations(t *testing.T) {
	read := func(rules int) float64 {
		r := reader(newConn(dump(t, rules)))
		return testing.AllocsPerRun(5, func() { readAll(t, r) })
	}
	if few, many := read(10), read(5_000); many > few {
		t.Errorf("%.0f allocations with 10 rules, %.0f with 5,000", few, many)
	}
}
