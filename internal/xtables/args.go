package xtables

import (
	"fmt"
	"strings"
)

// args collects options as they are written on a command line.
type args struct{ strings.Builder }

// add appends an option and its value, if it has one, with ! before it if not.
func (a *args) add(not bool, option, value string) {
	if a.Len() > 0 {
		a.WriteByte(' ')
	}
	if not {
		a.WriteString("! ")
	}
	a.WriteString(option)
	if value != "" {
		a.WriteByte(' ')
		a.WriteString(value)
	}
}

// addPorts appends an option for a range of ports. The whole range is no
// condition unless it is negated, which then no packet meets; iptables-save hides
// that, but such a rule is not one without the condition.
func (a *args) addPorts(not bool, option string, from, to uint16) {
	if from == 0 && to == 0xffff && !not {
		return
	}
	a.add(not, option, ports(from, to, ":"))
}

// ports writes a range of ports, or the only one.
func ports(from, to uint16, separator string) string {
	if from == to {
		return fmt.Sprint(from)
	}
	return fmt.Sprintf("%d%s%d", from, separator, to)
}

// bits writes the names of the bits that are set, in the order of names, and
// reports whether every one has a name.
func bits(value uint32, names []bitName) (string, bool) {
	var set []string
	for _, n := range names {
		if value&n.bit != 0 {
			set = append(set, n.name)
			value &^= n.bit
		}
	}
	return strings.Join(set, ","), value == 0
}

type bitName struct {
	bit  uint32
	name string
}
