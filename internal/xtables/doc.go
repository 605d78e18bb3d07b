// Package xtables decodes the data of iptables' matches and targets into the
// text that iptables-save (1.8.9) writes for them. The kernel gives out the same
// bytes in both of its packet filters: in the entries of a legacy table, and in
// the match and target expressions by which nf_tables runs iptables' extensions.
//
// What the package does not know, or not all of, it returns as opaque: a rule
// must never look simpler than it is.
package xtables

import (
	"encoding/binary"
	"fmt"

	"github.com/unflannel/unflannel"
)

// host is the byte order of the kernel's structures; what travels in packets
// (addresses, some ports) is big-endian in them all the same.
var host = binary.NativeEndian

// Match decodes the data of a match. A match that is not understood in full is
// returned opaque. Those that are understood are the same in both families.
func Match(_ unflannel.Family, name string, revision uint8, data []byte) unflannel.Match {
	if args, ok := matchArgs(name, revision, data); ok {
		return unflannel.Match{Name: args.name, Args: args.text}
	}
	return unflannel.Match{Name: name, Args: fmt.Sprintf("match %s revision %d", name, revision), Opaque: true}
}

// Target decodes the data of a target other than the verdicts. A target that is
// not understood in full is returned opaque.
func Target(family unflannel.Family, name string, revision uint8, data []byte) unflannel.Target {
	if args, ok := targetArgs(family, name, revision, data); ok {
		return unflannel.Target{Name: name, Args: args}
	}
	return unflannel.Target{Name: name, Args: fmt.Sprintf("target %s revision %d", name, revision), Opaque: true}
}

// options are a match's options, under the name that iptables-save gives the
// match: it is not always the kernel's.
type options struct{ name, text string }

func matchArgs(name string, revision uint8, data []byte) (options, bool) {
	type extension struct {
		name     string
		revision uint8
	}
	var text string
	var ok bool
	switch (extension{name, revision}) {
	case extension{"comment", 0}:
		text, ok = comment(data)
	case extension{"mark", 1}:
		text, ok = mark(data)
	case extension{"tcp", 0}:
		text, ok = tcp(data)
	case extension{"udp", 0}:
		text, ok = udp(data)
	case extension{"multiport", 1}:
		text, ok = multiport(data)
	case extension{"addrtype", 1}:
		text, ok = addrtype(data)
	case extension{"conntrack", 1}, extension{"conntrack", 2}, extension{"conntrack", 3}:
		return conntrack(revision, data)
	}
	return options{name, text}, ok
}

func targetArgs(family unflannel.Family, name string, revision uint8, data []byte) (string, bool) {
	switch {
	case name == "MASQUERADE" && revision == 0 && family == unflannel.IP:
		return masquerade4(data)
	case name == "MASQUERADE" && revision == 0 && family == unflannel.IP6:
		return masquerade6(data)
	case name == "MARK" && revision == 2:
		return setMark(data)
	}
	return "", false
}

// sized reports whether data holds a structure of size bytes and no more than the
// padding to 8 that the kernel and iptables put behind it.
func sized(data []byte, size int) bool {
	return size <= len(data) && len(data) <= (size+7)&^7
}
