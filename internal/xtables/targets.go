package xtables

import (
	"encoding/binary"
	"fmt"
)

// Bits of the flags of nf_nat_range and of its older forms.
const (
	natPorts       = 1 << 1 // NF_NAT_RANGE_PROTO_SPECIFIED
	natRandom      = 1 << 2 // NF_NAT_RANGE_PROTO_RANDOM
	natRandomFully = 1 << 4 // NF_NAT_RANGE_PROTO_RANDOM_FULLY
)

// masquerade4 decodes nf_nat_ipv4_multi_range_compat: the number of ranges, which
// must be one; flags, two addresses (unused here), two ports.
func masquerade4(data []byte) (string, bool) {
	if !sized(data, 20) || host.Uint32(data) != 1 {
		return "", false
	}
	return masquerade(host.Uint32(data[4:]), data[16:20])
}

// masquerade6 decodes nf_nat_range: flags, two addresses (unused here), two ports.
func masquerade6(data []byte) (string, bool) {
	if !sized(data, 40) {
		return "", false
	}
	return masquerade(host.Uint32(data), data[36:40])
}

func masquerade(flags uint32, minmax []byte) (string, bool) {
	if flags&^(natPorts|natRandom|natRandomFully) != 0 {
		return "", false
	}
	var a args
	if flags&natPorts != 0 {
		a.add(false, "--to-ports", ports(binary.BigEndian.Uint16(minmax), binary.BigEndian.Uint16(minmax[2:]), "-"))
	}
	if flags&natRandom != 0 {
		a.add(false, "--random", "")
	}
	if flags&natRandomFully != 0 {
		a.add(false, "--random-fully", "")
	}
	return a.String(), true
}

// setMark decodes xt_mark_tginfo2: mark and mask.
func setMark(data []byte) (string, bool) {
	if !sized(data, 8) {
		return "", false
	}
	return fmt.Sprintf("--set-xmark 0x%x/0x%x", host.Uint32(data), host.Uint32(data[4:])), true
}
