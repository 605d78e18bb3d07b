package legacy

import (
	"encoding/binary"

	"github.com/unflannel/unflannel"
)

// host is the byte order of the kernel's structures. Addresses are big-endian in
// them all the same.
var host = binary.NativeEndian

// layout says where things are in a family's entries: in ipt_entry, which begins
// with an ipt_ip, and ip6t_entry, which begins with an ip6t_ip6. Matches and
// target follow the entry.
type layout struct {
	family unflannel.Family
	size   int // of an entry without matches and target

	addressSize                 int
	source, destination         int
	sourceMask, destinationMask int

	in, out, inMask, outMask int

	protocol        int
	flags, inverted int

	// Bits of flags. IPv4's protocol is a condition if it is not 0, IPv6's only
	// with a flag.
	flagGoto, flagFragment, flagProtocol byte

	targetOffset, nextOffset int
	counters                 int
}

var layouts = map[unflannel.Family]*layout{
	unflannel.IP: {
		family: unflannel.IP, size: 112,
		addressSize: 4, source: 0, destination: 4, sourceMask: 8, destinationMask: 12,
		in: 16, out: 32, inMask: 48, outMask: 64,
		protocol: 80, flags: 82, inverted: 83,
		flagFragment: 0x01, flagGoto: 0x02,
		targetOffset: 88, nextOffset: 90, counters: 96,
	},
	unflannel.IP6: {
		family: unflannel.IP6, size: 168,
		addressSize: 16, source: 0, destination: 16, sourceMask: 32, destinationMask: 48,
		in: 64, out: 80, inMask: 96, outMask: 112,
		protocol: 128, flags: 131, inverted: 132,
		flagProtocol: 0x01, flagGoto: 0x04,
		targetOffset: 140, nextOffset: 142, counters: 152,
	},
}

// Bits of the inverted flags, the same in both families. Type of service was never
// implemented, and IPv6 has no condition on fragments.
const (
	invertIn = 1 << iota
	invertOut
	invertTOS
	invertSource
	invertDestination
	invertFragment
	invertProtocol
)

// A match or target begins with xt_entry_match, xt_entry_target: its size, a name
// ended by NUL, the revision.
const (
	extensionSize     = 32
	extensionName     = 2
	extensionRevision = 31
)

// interfaceSize is IFNAMSIZ.
const interfaceSize = 16
