package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/unflannel/unflannel/netnstest"
)

// bench is what all measuring needs.
type bench struct {
	dir                      string // for files that come and go
	unflannel, floor, launch string // programs
	leftovers                map[string]string
	perf                     bool // perf counts system calls
	sizes                    []int
	runs                     int
}

func (b *bench) file(name string) string { return filepath.Join(b.dir, name) }

// result is what was measured of one way at one size.
type result struct {
	variant   string
	size      int // rules of others
	way       string
	wall, cpu time.Duration // medians
	memory    int           // KiB, median
	counts
	left string
}

// sample is one run.
type sample struct {
	wall, cpu time.Duration
	memory    int
}

// rest is a pause before each run. A commit to nf_tables is followed by a grace
// period of the kernel's RCU, for which the closing of the socket waits; how long
// it is depends on what the machine did just before.
const rest = 50 * time.Millisecond

// measure measures all ways with about so many rules of others.
func (b *bench) measure(t netnstest.TB, variant string, size int) []result {
	t.Helper()
	rules := others(size)
	// The text has a line for each rule, and its counters with it.
	size = strings.Count(rules, "] -A ")
	ways := b.ways(variant)
	nodes, results := make([]*node, len(ways)), make([]result, len(ways))
	samples := make([][]sample, len(ways))
	for i, w := range ways {
		n := b.newNode(t, variant, rules)
		r := result{variant: variant, size: size, way: w.name}
		b.putBack(n)
		before := n.base
		if w.looks {
			before = n.Dump()
		}
		b.sample(n, w) // not counted: it warms the caches
		r.left = left(before, n.Dump(), w.looks)
		r.counts = b.count(n, w, func() { b.again(n, w) })
		nodes[i], results[i] = n, r
	}
	// One after the other, so that what else the machine does meets all alike.
	for range b.runs {
		for i, w := range ways {
			b.again(nodes[i], w)
			samples[i] = append(samples[i], b.sample(nodes[i], w))
		}
	}
	for i, s := range samples {
		r := &results[i]
		r.wall = median(s, func(s sample) time.Duration { return s.wall })
		r.cpu = median(s, func(s sample) time.Duration { return s.cpu })
		r.memory = median(s, func(s sample) int { return s.memory })
	}
	return results
}

// again makes the node ready for another run.
func (b *bench) again(n *node, w way) {
	n.t.Helper()
	if !w.looks {
		b.putBack(n)
	}
}

// sample runs a way once and measures it.
func (b *bench) sample(n *node, w way) sample {
	n.t.Helper()
	time.Sleep(rest)
	b.run(n, w, b.launch, append([]string{b.file("cost")}, w.command...)...)
	text, err := os.ReadFile(b.file("cost"))
	if err != nil {
		n.t.Fatalf("measure %s: %v", w.name, err)
	}
	var wall, cpu int64
	var s sample
	if _, err := fmt.Sscan(string(text), &wall, &cpu, &s.memory); err != nil {
		n.t.Fatalf("measure %s: %q: %v", w.name, text, err)
	}
	s.wall, s.cpu = time.Duration(wall), time.Duration(cpu)*time.Microsecond
	return s
}

// run runs a program that runs a way's command, and looks at how that ended.
func (b *bench) run(n *node, w way, program string, arg ...string) {
	n.t.Helper()
	_, stderr, err := n.Run("", program, arg...)
	status := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status, err = exit.ExitCode(), nil
	}
	if err != nil || status != w.status {
		n.t.Fatalf("%s exits %d, want %d: %v\n%s", w.name, status, w.status, err, stderr)
	}
}

func median[S any, T int | time.Duration](samples []S, f func(S) T) T {
	all := make([]T, len(samples))
	for i, s := range samples {
		all[i] = f(s)
	}
	slices.Sort(all)
	n := len(all)
	if n%2 == 0 {
		return (all[n/2-1] + all[n/2]) / 2
	}
	return all[n/2]
}
