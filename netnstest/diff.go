package netnstest

import "strings"

// diffContext is the number of equal lines that a hunk shows on each side.
const diffContext = 2

// diffMax bounds the work and memory of a comparison. Dumps with more differing
// lines are as good as wholly different.
const diffMax = 2000

// edit is one line of a comparison: ' ' in both, '-' only wanted, '+' only got.
type edit struct {
	op   byte
	line Line
}

// Diff returns the lines in which two dumps differ, after - those of want and
// after + those of got, each group with some equal lines around it. It returns
// "" if there are none.
func Diff(want, got Dump) string {
	edits := compare(want, got)
	var b strings.Builder
	shown := -1 // index of the last line written
	for i, e := range edits {
		if e.op == ' ' {
			continue
		}
		from := max(i-diffContext, shown+1)
		if from > shown+1 || shown < 0 {
			b.WriteString("@@\n")
		}
		for j := from; j <= i; j++ {
			edits[j].write(&b)
		}
		shown = i
		// Equal lines after it, unless the next change shows them.
		for shown+1 < len(edits) && edits[shown+1].op == ' ' && shown < i+diffContext {
			shown++
			edits[shown].write(&b)
		}
	}
	return b.String()
}

func (e edit) write(b *strings.Builder) {
	b.WriteByte(e.op)
	b.WriteByte(' ')
	b.WriteString(e.line.String())
	b.WriteByte('\n')
}

// compare is Myers' algorithm: its cost grows with the number of differences,
// which are few, and not with the length of the dumps, which may be great.
func compare(a, b Dump) []edit {
	var trace [][]int // by number of edits, how far each diagonal got in a
	v := []int{0, 0, 0}
	for d := 0; d <= min(len(a)+len(b), diffMax); d++ {
		// v holds diagonals -d-1 … d+1 at index k+d+1.
		next := make([]int, 2*d+5)
		for k := -d; k <= d; k += 2 {
			x := v[k+d] + 1 // from diagonal k-1: a line of a is gone
			if k == -d || k != d && v[k+d] < v[k+d+2] {
				x = v[k+d+2] // from diagonal k+1: a line of b is new
			}
			for x < len(a) && x-k < len(b) && a[x].equal(b[x-k]) {
				x++
			}
			next[k+d+2] = x
			if x >= len(a) && x-k >= len(b) {
				return backtrack(a, b, append(trace, v))
			}
		}
		trace = append(trace, v)
		v = next
	}
	var all []edit
	for _, l := range a {
		all = append(all, edit{'-', l})
	}
	for _, l := range b {
		all = append(all, edit{'+', l})
	}
	return all
}

// backtrack follows the trace from the end of both dumps to their beginning.
func backtrack(a, b Dump, trace [][]int) []edit {
	var back []edit
	x, y := len(a), len(b)
	for d := len(trace) - 1; d > 0; d-- {
		v, k := trace[d], x-y
		down := k == -d || k != d && v[k+d] < v[k+d+2]
		start := v[k+d] + 1
		if down {
			start = v[k+d+2]
		}
		for x > start {
			x, y = x-1, y-1
			back = append(back, edit{' ', a[x]})
		}
		if down {
			y--
			back = append(back, edit{'+', b[y]})
		} else {
			x--
			back = append(back, edit{'-', a[x]})
		}
	}
	for x > 0 {
		x--
		back = append(back, edit{' ', a[x]})
	}
	for i, j := 0, len(back)-1; i < j; i, j = i+1, j-1 {
		back[i], back[j] = back[j], back[i]
	}
	return back
}
