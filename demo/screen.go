package main

import (
	"fmt"
	"io"
	"strings"
)

// screen is where the story is told.
type screen struct {
	w     io.Writer
	color bool
}

const (
	bold  = "1"
	red   = "31"
	green = "32"
)

func (s screen) paint(code, text string) string {
	if !s.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// say prints text as it is.
func (s screen) say(format string, args ...any) {
	fmt.Fprintf(s.w, format+"\n", args...)
}

// head prints a heading.
func (s screen) head(format string, args ...any) {
	s.say("\n%s\n", s.paint(bold, fmt.Sprintf(format, args...)))
}

// good and bad print what came of something.
func (s screen) good(format string, args ...any) {
	s.say("      %s", s.paint(green, fmt.Sprintf(format, args...)))
}

func (s screen) bad(format string, args ...any) {
	s.say("      %s", s.paint(red, fmt.Sprintf(format, args...)))
}

// command prints a command as it was typed.
func (s screen) command(text string) {
	s.say("  %s", s.paint(bold, "$ "+text))
}

// output prints what a program said. Lines are long: what stands behind a rule, and
// what else is beyond the width, goes to lines of its own.
func (s screen) output(text string) {
	for line := range strings.Lines(text) {
		line, remark, found := strings.Cut(strings.TrimRight(line, "\n"), "  # ")
		s.wrap("  ", line)
		if found {
			s.wrap("      # ", remark)
		}
	}
}

const width = 100

// wrap prints a line in pieces that fit, the later ones indented.
func (s screen) wrap(indent, line string) {
	for len(line) > width {
		i := strings.LastIndexByte(line[:width], ' ')
		if i <= 0 {
			break
		}
		s.say("%s%s", indent, line[:i])
		line, indent = line[i+1:], "        "
	}
	s.say("%s%s", indent, line)
}
