package main

import (
	"fmt"
	"io"
	"os"
)

// The targets, as ratios and counts that hold on any machine.
const (
	maxRead     = 64 << 10 // bytes over netlink
	maxFloor    = 1.5      // times the wall time of the floor
	minSequence = 3.0      // times faster than the four programs
	minFilter   = 100.0    // times faster than filtering the text, at filterSize rules
	filterSize  = 49_000
	maxMemory   = 16 << 10 // KiB
	maxPrograms = 2        // for each legacy table with leftovers
	tables      = 4        // with leftovers: nat and filter of both families
	maxCalls    = 400      // system calls
	maxBinary   = 4 << 20  // bytes
)

// worst is the size at which a target is missed most, or met least.
type worst struct {
	value float64
	size  int
	any   bool
}

func (x *worst) high(value float64, size int) {
	if !x.any || value > x.value {
		*x = worst{value, size, true}
	}
}

func (x *worst) low(value float64, size int) {
	if !x.any || value < x.value {
		*x = worst{value, size, true}
	}
}

// writeTargets writes which of the targets are met.
func (b *bench) writeTargets(w io.Writer, results []result) {
	var read, slower, sequenceBy, filterBy, legacySequence, legacyFilter, memory, legacyMemory, programs, legacyPrograms, calls worst
	for _, r := range results {
		if r.way != clean {
			continue
		}
		// times is how many times as long another way takes.
		times := func(way string) float64 {
			for _, o := range results {
				if o.variant == r.variant && o.size == r.size && o.way == way {
					return float64(o.wall) / float64(r.wall)
				}
			}
			return 0
		}
		if r.variant == "legacy" {
			legacyMemory.high(float64(r.memory)/1024, r.size)
			legacyPrograms.high(float64(r.programs), r.size)
			legacySequence.low(times(sequence), r.size)
			legacyFilter.low(times(filter), r.size)
			continue
		}
		memory.high(float64(r.memory)/1024, r.size)
		read.high(float64(r.netlink)/1024, r.size)
		programs.high(float64(r.children), r.size)
		calls.high(float64(r.syscalls), r.size)
		slower.high(1/times(floor), r.size)
		sequenceBy.low(times(sequence), r.size)
		if r.size >= filterSize {
			filterBy.low(times(filter), r.size)
		}
	}
	line := func(verdict string, x worst, what, format string) {
		if !x.any {
			fmt.Fprintf(w, "- not measured: %s\n", what)
			return
		}
		at := ""
		if x.size > 0 {
			at = fmt.Sprintf(" (at %s rules)", grouped(x.size))
		}
		fmt.Fprintf(w, "- %s: %s: %s%s\n", verdict, what, fmt.Sprintf(format, x.value), at)
	}
	target := func(met bool, x worst, what, format string) {
		verdict := "met"
		if !met {
			verdict = "NOT MET"
		}
		line(verdict, x, what, format)
	}
	target(read.value*1024 < maxRead, read, "clean reads under 64 KiB over netlink at every size", "%.1f KiB at most")
	target(slower.value <= maxFloor, slower, "clean takes at most 1.5 times as long as the floor at every size", "× %.2f at most")
	target(sequenceBy.value >= minSequence, sequenceBy, "3 times faster than the four programs at every size", "× %.1f at least")
	target(filterBy.value >= minFilter, filterBy, "100 times faster than save, grep, restore at 50,000 rules", "× %.0f")
	target(memory.value*1024 < maxMemory, memory, "peak memory under 16 MiB, nf_tables", "%.1f MiB at most")
	target(legacyMemory.value*1024 < maxMemory, legacyMemory, "peak memory under 16 MiB, iptables-legacy, whose tables are read whole", "%.1f MiB at most")
	target(programs.value == 0, programs, "no child process where legacy tables do not exist", "%.0f")
	target(legacyPrograms.value <= maxPrograms*tables, legacyPrograms, "at most two programs for each of four legacy tables with leftovers", "%.0f in all")
	target(calls.value < maxCalls, calls, "under 400 system calls for a whole clean in nf_tables", "%.0f at most")
	if info, err := os.Stat(b.unflannel); err == nil {
		target(info.Size() < maxBinary, worst{float64(info.Size()) / (1 << 20), 0, true}, "stripped binary under 4 MB (4,194,304 bytes)", "%.2f MiB")
	}
	const compared = "for comparison, no target"
	line(compared, legacySequence, "in iptables-legacy, times faster than the four programs", "× %.2f at least")
	line(compared, legacyFilter, "in iptables-legacy, times faster than save, grep, restore", "× %.2f at least")
}
