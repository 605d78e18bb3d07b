package legacy

import (
	"fmt"
	"testing"

	"github.com/unflannel/unflannel"
)

// service is a table like that of kube-proxy on a node of a big cluster, with
// Flannel's chain and its jump in it: a chain for every fifth of so many rules, and
// comments of 256 bytes, which make most of such a table.
func service(rules int) *builder {
	b := newBuilder(unflannel.IP)
	comment, tcp := extensionBytes("comment", 0, make([]byte, 256)), extensionBytes("tcp", 0, make([]byte, 16))
	add := func(verdict int) {
		target := standard(verdict)
		matches := len(comment) + len(tcp)
		b.add(append(append(append([]byte(nil), comment...), tcp...), target...), func(e []byte) {
			host.PutUint16(e[b.targetOffset:], uint16(b.size+matches))
		})
	}
	b.base(4)
	jump := b.add(standard(verdictAccept)) // to Flannel's chain, which has no place yet
	b.policy(4, verdictAccept)
	const each = 5
	for i := range rules / each {
		b.chain(fmt.Sprintf("KUBE-SVC-%016X", i))
		for range each {
			add(verdictAccept)
		}
		b.add(standard(verdictReturn))
	}
	b.chain("FLANNEL-POSTRTG")
	for range 6 {
		add(verdictAccept)
	}
	b.add(standard(verdictReturn))
	b.end()
	host.PutUint32(b.data[jump+b.size+extensionSize:], uint32(b.starts["FLANNEL-POSTRTG"]))
	return b
}

// wantedInNAT is what unflannel asks for of a nat table.
var wantedInNAT = []string{"POSTROUTING", "FLANNEL-POSTRTG", "FLANNEL"}

// walkService finds Flannel's chain in the table.
func walkService(tb testing.TB, t *builder) {
	chains, err := t.chains(wantedInNAT)
	if err != nil || len(chains) != 2 || len(chains[1].Rules) != 6 || len(chains[1].References) != 1 {
		tb.Fatalf("chains %v, error %v", chains, err)
	}
}

// BenchmarkWalkService is the whole walk: the index, and the chains wanted.
func BenchmarkWalkService(b *testing.B) {
	for _, rules := range []int{0, 1000, 10_000, 50_000} {
		b.Run(fmt.Sprint(rules), func(b *testing.B) {
			t := service(rules)
			b.SetBytes(int64(len(t.data)))
			b.ReportAllocs()
			for b.Loop() {
				walkService(b, t)
			}
		})
	}
}

// BenchmarkIndexService is the walk's first half.
func BenchmarkIndexService(b *testing.B) {
	t := service(50_000)
	b.SetBytes(int64(len(t.data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := t.index(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestWalkAllocates: rules that are stepped over cost no memory of their own. What
// grows is the index alone, which doubles now and then.
func TestWalkAllocates(t *testing.T) {
	few, many := service(5_000), service(50_000)
	walk := func(b *builder) float64 { return testing.AllocsPerRun(5, func() { walkService(t, b) }) }
	if a, b := walk(few), walk(many); b > a+20 {
		t.Errorf("%.0f allocations with 5,000 rules, %.0f with 50,000", a, b)
	}
}
