package netnstest

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func dumpOf(keys string) Dump {
	var d Dump
	for _, k := range keys {
		d = append(d, Line{Key: string(k)})
	}
	return d
}

func TestDiff(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ want, got, diff string }{
		{"", "", ""},
		{"abc", "abc", ""},
		{"", "a", "@@|+ a|"},
		{"a", "", "@@|- a|"},
		{"abcdefg", "abcxefg", "@@|  b|  c|- d|+ x|  e|  f|"},
		{"abcdefgh", "bcdefghi", "@@|- a|  b|  c|@@|  g|  h|+ i|"},
		{"abcde", "xbcdey", "@@|- a|+ x|  b|  c|  d|  e|+ y|"},
	} {
		got := strings.ReplaceAll(Diff(dumpOf(tt.want), dumpOf(tt.got)), "\n", "|")
		if got != tt.diff {
			t.Errorf("Diff(%q, %q) = %q, want %q", tt.want, tt.got, got, tt.diff)
		}
	}
}

func TestDiffSeesEachField(t *testing.T) {
	t.Parallel()
	l := Line{Key: "k", Counters: "[1:2]", Data: []byte{3}}
	for _, o := range []Line{
		{Key: "x", Counters: "[1:2]", Data: []byte{3}},
		{Key: "k", Counters: "[1:3]", Data: []byte{3}},
		{Key: "k", Counters: "[1:2]", Data: []byte{4}},
	} {
		if Diff(Dump{l}, Dump{o}) == "" {
			t.Errorf("no difference between %s and %s", l, o)
		}
	}
}

// The edits, applied to one dump, must make the other.
func TestCompareRandom(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	random := func() string {
		b := make([]byte, r.IntN(12))
		for i := range b {
			b[i] = "abc"[r.IntN(3)]
		}
		return string(b)
	}
	for range 5000 {
		a, b := random(), random()
		var from, to strings.Builder
		for _, e := range compare(dumpOf(a), dumpOf(b)) {
			if e.op != '+' {
				from.WriteString(e.line.Key)
			}
			if e.op != '-' {
				to.WriteString(e.line.Key)
			}
		}
		if from.String() != a || to.String() != b {
			t.Fatalf("compare(%q, %q) makes %q and %q", a, b, &from, &to)
		}
	}
}

func TestDiffOfLongDumps(t *testing.T) {
	t.Parallel()
	long := dumpOf(strings.Repeat("abcdefghij", 10_000))
	other := append(dumpOf("x"), long[:len(long)-1]...)
	if d := Diff(long, other); strings.Count(d, "\n") > 20 {
		t.Errorf("two changes at the ends make %d lines", strings.Count(d, "\n"))
	}
	if d := Diff(long, dumpOf(strings.Repeat("z", 3*diffMax))); d == "" {
		t.Error("no difference")
	}
}
