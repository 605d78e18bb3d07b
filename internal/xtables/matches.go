package xtables

import (
	"bytes"
	"fmt"
	"strings"
)

// commentSize is XT_MAX_COMMENT_LEN.
const commentSize = 256

// comment decodes xt_comment_info, text up to a NUL. Every program that writes
// comments ends them so; without the NUL, how much is the text is anybody's guess.
func comment(data []byte) (string, bool) {
	if !sized(data, commentSize) {
		return "", false
	}
	text, _, ok := bytes.Cut(data[:commentSize], []byte{0})
	return string(text), ok
}

// mark decodes xt_mark_mtinfo1: mark, mask, inverted.
func mark(data []byte) (string, bool) {
	if !sized(data, 12) || data[8] > 1 {
		return "", false
	}
	value, mask := host.Uint32(data), host.Uint32(data[4:])
	text := fmt.Sprintf("0x%x", value)
	if mask != 0xffffffff {
		text += fmt.Sprintf("/0x%x", mask)
	}
	var a args
	a.add(data[8] != 0, "--mark", text)
	return a.String(), true
}

// Bits of xt_tcp.invflags; xt_udp has the first two.
const (
	invSourcePort = 1 << iota
	invDestinationPort
	invTCPFlags
	invTCPOption
)

// tcp decodes xt_tcp: two ranges of ports, an option's number, the mask and value
// of the flags, and which of these are inverted.
func tcp(data []byte) (string, bool) {
	const known = invSourcePort | invDestinationPort | invTCPFlags | invTCPOption
	if !sized(data, 12) {
		return "", false
	}
	option, mask, value, inv := data[8], data[9], data[10], data[11]
	if inv&^known != 0 {
		return "", false
	}
	var a args
	portRanges(&a, data, inv)
	if option != 0 || inv&invTCPOption != 0 {
		a.add(inv&invTCPOption != 0, "--tcp-option", fmt.Sprint(option))
	}
	if mask != 0 || value != 0 || inv&invTCPFlags != 0 {
		m, ok1 := tcpFlags(mask)
		v, ok2 := tcpFlags(value)
		if !ok1 || !ok2 {
			return "", false
		}
		a.add(inv&invTCPFlags != 0, "--tcp-flags", m+" "+v)
	}
	return a.String(), true
}

func tcpFlags(flags byte) (string, bool) {
	if flags == 0 {
		return "NONE", true
	}
	return bits(uint32(flags), []bitName{{1, "FIN"}, {2, "SYN"}, {4, "RST"}, {8, "PSH"}, {16, "ACK"}, {32, "URG"}})
}

// udp decodes xt_udp: two ranges of ports, and which of them are inverted.
func udp(data []byte) (string, bool) {
	if !sized(data, 10) || data[8]&^(invSourcePort|invDestinationPort) != 0 {
		return "", false
	}
	var a args
	portRanges(&a, data, data[8])
	return a.String(), true
}

func portRanges(a *args, data []byte, inv byte) {
	a.addPorts(inv&invSourcePort != 0, "--sport", host.Uint16(data), host.Uint16(data[2:]))
	a.addPorts(inv&invDestinationPort != 0, "--dport", host.Uint16(data[4:]), host.Uint16(data[6:]))
}

// multiport decodes xt_multiport_v1: which ports, how many numbers, the numbers,
// whether each begins a range that the next one ends, and inverted.
func multiport(data []byte) (string, bool) {
	const max = 15
	if !sized(data, 48) || data[0] > 2 || data[1] == 0 || data[1] > max || data[47] > 1 {
		return "", false
	}
	which, count, numbers, ranges := data[0], int(data[1]), data[2:32], data[32:47]
	var list []string
	for i := 0; i < count; i++ {
		text := fmt.Sprint(host.Uint16(numbers[2*i:]))
		if ranges[i] != 0 {
			if i++; i == count {
				return "", false
			}
			text += fmt.Sprintf(":%d", host.Uint16(numbers[2*i:]))
		}
		list = append(list, text)
	}
	var a args
	a.add(data[47] != 0, [...]string{"--sports", "--dports", "--ports"}[which], strings.Join(list, ","))
	return a.String(), true
}

// addrtype decodes xt_addrtype_info_v1: types of source and destination, and flags.
func addrtype(data []byte) (string, bool) {
	const invSource, invDestination, limitIn, limitOut = 1, 2, 4, 8
	if !sized(data, 8) {
		return "", false
	}
	flags := host.Uint32(data[4:])
	if flags&^(invSource|invDestination|limitIn|limitOut) != 0 {
		return "", false
	}
	var a args
	for _, side := range []struct {
		option string
		types  uint16
		not    bool
	}{
		{"--src-type", host.Uint16(data), flags&invSource != 0},
		{"--dst-type", host.Uint16(data[2:]), flags&invDestination != 0},
	} {
		types, ok := bits(uint32(side.types), addressTypes)
		// No type at all is no condition; inverted, iptables cannot write it.
		if !ok || side.types == 0 && side.not {
			return "", false
		}
		if types != "" {
			a.add(side.not, side.option, types)
		}
	}
	if flags&limitIn != 0 {
		a.add(false, "--limit-iface-in", "")
	}
	if flags&limitOut != 0 {
		a.add(false, "--limit-iface-out", "")
	}
	return a.String(), true
}

// addressTypes are the bits of the kernel's route types (RTN_UNICAST, …).
var addressTypes = []bitName{
	{1 << 0, "UNSPEC"}, {1 << 1, "UNICAST"}, {1 << 2, "LOCAL"}, {1 << 3, "BROADCAST"},
	{1 << 4, "ANYCAST"}, {1 << 5, "MULTICAST"}, {1 << 6, "BLACKHOLE"}, {1 << 7, "UNREACHABLE"},
	{1 << 8, "PROHIBIT"}, {1 << 9, "THROW"}, {1 << 10, "NAT"}, {1 << 11, "XRESOLVE"},
}
