package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// writeTable writes the results of one variant as a table in Markdown.
func writeTable(w io.Writer, results []result) {
	fmt.Fprintln(w, "| rules | way | wall time | | CPU time | | memory | read | system calls | processes | left |")
	fmt.Fprintln(w, "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
	for _, r := range results {
		own := find(results, r.size, clean)
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %.1f MiB | %s | %s | %d | %s |\n",
			grouped(r.size), r.way, ms(r.wall), ratio(r.wall, own.wall), ms(r.cpu), ratio(r.cpu, own.cpu),
			float64(r.memory)/1024, kib(r.netlink+r.tables), grouped(r.syscalls), r.children, r.left)
	}
}

// find returns the result of a way at a size.
func find(results []result, size int, way string) result {
	for _, r := range results {
		if r.size == size && r.way == way {
			return r
		}
	}
	return result{}
}

func ratio(d, own time.Duration) string {
	x := float64(d) / float64(own)
	if x >= 10 {
		return fmt.Sprintf("× %.0f", x)
	}
	return fmt.Sprintf("× %.2f", x)
}

func ms(d time.Duration) string {
	x := float64(d) / float64(time.Millisecond)
	switch {
	case x >= 1000:
		return fmt.Sprintf("%.2f s", x/1000)
	case x >= 100:
		return fmt.Sprintf("%.0f ms", x)
	}
	return fmt.Sprintf("%.1f ms", x)
}

func kib(n int) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
}

// grouped writes a number with commas between thousands.
func grouped(n int) string {
	s := fmt.Sprint(n)
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}
