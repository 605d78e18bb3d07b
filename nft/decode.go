package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/internal/xtables"
)

// decodeRule turns a rule's attributes into iptables' terms. iptables-nft writes
// one rule in many ways (by version: a prefix as a short load or under a mask,
// ports natively or as a match of xtables, the counter first or last), and nft
// writes more: the expressions are run over registers that hold what was loaded
// instead of a packet's bytes.
func decodeRule(family unflannel.Family, attrs []byte) (unflannel.Rule, error) {
	d := decoder{family: family, registers: map[uint32]operand{}}
	var userdata []byte
	a := attributes{rest: attrs}
	for a.next() {
		switch a.typ {
		case unix.NFTA_RULE_HANDLE:
			d.rule.Handle = be64(a.data)
		case unix.NFTA_RULE_USERDATA:
			userdata = a.data
		}
	}
	// A rule without a handle could not be deleted alone.
	if a.bad || d.rule.Handle == 0 {
		return d.rule, errMalformed
	}
	if err := eachExpr(attrs, d.expression); err != nil {
		return d.rule, err
	}
	if comment := nativeComment(userdata); comment != "" {
		d.opaque("comment", "comment %q", comment)
	}
	return d.rule, nil
}

type decoder struct {
	family    unflannel.Family
	rule      unflannel.Rule
	registers map[uint32]operand
}

// operand is what a register, and those behind it, hold.
type operand struct {
	source source
	words  uint32 // how many registers of 4 bytes
	key    uint32 // of meta; the offset of a payload
	length int    // of a payload load
	mask   []byte // nil: the whole value
	value  []byte // of an immediate
}

type source int

const (
	sourceUnknown source = iota // shown as opaque where it was loaded
	sourceMeta
	sourceNetwork   // payload, from the network header
	sourceTransport // payload, from the transport header
	sourceImmediate
)

func (d *decoder) opaque(name, format string, args ...any) {
	d.rule.Matches = append(d.rule.Matches, unflannel.Match{Name: name, Args: fmt.Sprintf(format, args...), Opaque: true})
}

func (d *decoder) unknown(expression string) { d.opaque(expression, "expression %s", expression) }

// load puts an operand of a size in bytes into registers. What overlaps with it is gone.
func (d *decoder) load(register uint32, size int, o operand) {
	o.words = uint32(size+unix.NFT_REG32_SIZE-1) / unix.NFT_REG32_SIZE
	for r, old := range d.registers {
		if r < register+o.words && register < r+old.words {
			delete(d.registers, r)
		}
	}
	d.registers[register] = o
}

// expression runs one expression.
func (d *decoder) expression(name, data []byte) error {
	var e expr
	if err := e.parse(data); err != nil {
		return err
	}
	if d.rule.Target != (unflannel.Target{}) && string(name) != "counter" {
		d.opaque(string(name), "then expression %s", name) // it is never reached
		return nil
	}
	switch string(name) {
	case "counter":
		d.rule.Counted = true
		d.rule.Bytes, d.rule.Packets = be64(e.attr(unix.NFTA_COUNTER_BYTES)), be64(e.attr(unix.NFTA_COUNTER_PACKETS))
	case "payload":
		d.payload(e)
	case "meta":
		d.meta(e)
	case "bitwise":
		d.bitwise(e)
	case "cmp":
		d.cmp(e)
	case "range":
		d.portRange(e)
	case "immediate":
		return d.immediate(e)
	case "match":
		d.rule.Matches = append(d.rule.Matches, xtables.Match(d.family, string(cstring(e.attr(unix.NFTA_MATCH_NAME))),
			uint8(be32(e.attr(unix.NFTA_MATCH_REV))), e.attr(unix.NFTA_MATCH_INFO)))
	case "target":
		d.rule.Target = xtables.Target(d.family, string(cstring(e.attr(unix.NFTA_TARGET_NAME))),
			uint8(be32(e.attr(unix.NFTA_TARGET_REV))), e.attr(unix.NFTA_TARGET_INFO))
	case "masq":
		d.masquerade(e)
	default:
		d.unknown(string(name))
	}
	return nil
}

// expr holds an expression's attributes by type. nf_tables' expressions that are
// decoded here have no more than eight.
type expr [9][]byte

func (e *expr) parse(data []byte) error {
	a := attributes{rest: data}
	for a.next() {
		if int(a.typ) < len(e) {
			e[a.typ] = a.data
		}
	}
	return a.err()
}

func (e *expr) attr(typ int) []byte { return e[typ] }

// data is the value in a nested data attribute.
func (e *expr) data(typ int) []byte {
	for a := (attributes{rest: e[typ]}); a.next(); {
		if a.typ == unix.NFTA_DATA_VALUE {
			return a.data
		}
	}
	return nil
}

// register is a register's number in the kernel's second numbering, of 4 bytes
// each; the first numbers those of 16 bytes.
func (e *expr) register(typ int) uint32 {
	r := be32(e[typ])
	if r >= unix.NFT_REG_1 && r <= unix.NFT_REG_4 {
		return unix.NFT_REG32_00 + (r-unix.NFT_REG_1)*(unix.NFT_REG_SIZE/unix.NFT_REG32_SIZE)
	}
	return r
}

func (d *decoder) payload(e expr) {
	if e.attr(unix.NFTA_PAYLOAD_DREG) == nil {
		d.unknown("payload") // it writes to the packet
		return
	}
	o := operand{key: be32(e.attr(unix.NFTA_PAYLOAD_OFFSET)), length: int(be32(e.attr(unix.NFTA_PAYLOAD_LEN)))}
	switch be32(e.attr(unix.NFTA_PAYLOAD_BASE)) {
	case unix.NFT_PAYLOAD_NETWORK_HEADER:
		o.source = sourceNetwork
	case unix.NFT_PAYLOAD_TRANSPORT_HEADER:
		o.source = sourceTransport
	default:
		d.unknown("payload")
	}
	d.load(e.register(unix.NFTA_PAYLOAD_DREG), o.length, o)
}

func (d *decoder) meta(e expr) {
	if e.attr(unix.NFTA_META_DREG) == nil {
		d.unknown("meta") // it writes to the packet's metadata
		return
	}
	o, size := operand{source: sourceMeta, key: be32(e.attr(unix.NFTA_META_KEY))}, unix.NFT_REG32_SIZE
	if o.key == unix.NFT_META_IIFNAME || o.key == unix.NFT_META_OIFNAME {
		size = unix.IFNAMSIZ
	}
	d.load(e.register(unix.NFTA_META_DREG), size, o)
}

func (d *decoder) bitwise(e expr) {
	o := d.registers[e.register(unix.NFTA_BITWISE_SREG)]
	mask := e.data(unix.NFTA_BITWISE_MASK)
	const op = 6 // NFTA_BITWISE_OP: shifts are of no use to an address or a mark
	if o.mask != nil || mask == nil || !zero(e.data(unix.NFTA_BITWISE_XOR)) || be32(e.attr(op)) != 0 {
		if o.source != sourceUnknown {
			d.unknown("bitwise")
		}
		o = operand{}
	}
	o.mask = mask
	d.load(e.register(unix.NFTA_BITWISE_DREG), int(be32(e.attr(unix.NFTA_BITWISE_LEN))), o)
}

// cmp compares what a register holds with a value.
func (d *decoder) cmp(e expr) {
	o := d.registers[e.register(unix.NFTA_CMP_SREG)]
	value := e.data(unix.NFTA_CMP_DATA)
	op := be32(e.attr(unix.NFTA_CMP_OP))
	not := op == unix.NFT_CMP_NEQ
	if op != unix.NFT_CMP_EQ && !not || len(value) == 0 || !d.compare(o, value, not) {
		d.unknown("cmp")
	}
}

// compare adds the condition that an operand is, or is not, a value. It reports
// whether it understands the condition.
func (d *decoder) compare(o operand, value []byte, not bool) bool {
	r := &d.rule
	switch o.source {
	case sourceNetwork:
		if source, dst, size := d.addressOffsets(); o.key == source || o.key == dst {
			prefix, ok := prefixOf(o, value, size)
			at := &r.Source
			if o.key == dst {
				at = &r.Destination
			}
			if !ok || *at != (unflannel.Address{}) {
				return false
			}
			*at = unflannel.Address{Prefix: prefix, Not: not}
			return true
		}
		if o.key == d.protocolOffset() && o.length == 1 && o.mask == nil && len(value) == 1 {
			return d.protocol(value[0], not)
		}
	case sourceTransport:
		if o.length == 2 && o.mask == nil && len(value) == 2 {
			return d.port(o.key, fmt.Sprint(binary.BigEndian.Uint16(value)), not)
		}
	case sourceMeta:
		switch o.key {
		case unix.NFT_META_IIFNAME:
			return o.mask == nil && setName(&r.In, value, not)
		case unix.NFT_META_OIFNAME:
			return o.mask == nil && setName(&r.Out, value, not)
		case unix.NFT_META_L4PROTO:
			return o.mask == nil && len(value) == 1 && d.protocol(value[0], not)
		case unix.NFT_META_MARK:
			return d.mark(o.mask, value, not)
		}
	}
	return false
}

// addressOffsets are where the addresses are in the network header, and their size.
func (d *decoder) addressOffsets() (source, destination uint32, size int) {
	if d.family == unflannel.IP6 {
		return 8, 24, 16
	}
	return 12, 16, 4
}

func (d *decoder) protocolOffset() uint32 {
	if d.family == unflannel.IP6 {
		return 6
	}
	return 9
}

// prefixOf is the prefix that a load, and perhaps a mask, of an address's first
// bytes is compared with: 1 to 3 bytes of an IPv4 address are loaded for a prefix
// of whole bytes.
func prefixOf(o operand, value []byte, size int) (netip.Prefix, bool) {
	if o.length > size || o.length != len(value) || o.mask != nil && len(o.mask) != len(value) {
		return netip.Prefix{}, false
	}
	bits := 8 * len(value)
	if o.mask != nil {
		n, contiguous := maskBits(o.mask)
		if !contiguous {
			return netip.Prefix{}, false
		}
		bits = n
	}
	full := make([]byte, size)
	copy(full, value)
	addr, _ := netip.AddrFromSlice(full)
	prefix := netip.PrefixFrom(addr, bits)
	return prefix, prefix.Masked() == prefix
}

func maskBits(mask []byte) (n int, contiguous bool) {
	ended := false
	for _, b := range mask {
		for bit := byte(0x80); bit != 0; bit >>= 1 {
			switch {
			case b&bit == 0:
				ended = true
			case ended:
				return 0, false
			default:
				n++
			}
		}
	}
	return n, true
}

func (d *decoder) protocol(n byte, not bool) bool {
	c := unflannel.Condition{Value: xtables.Protocol(n), Not: not}
	if d.rule.Protocol == c {
		return true // nft tests the protocol once more before each port
	}
	if d.rule.Protocol != (unflannel.Condition{}) {
		return false
	}
	d.rule.Protocol = c
	return true
}

// port adds a condition on a port: the same match as iptables' own of that protocol.
func (d *decoder) port(offset uint32, ports string, not bool) bool {
	options := map[uint32]string{0: "--sport", 2: "--dport"}
	option, ok := options[offset]
	protocol := d.rule.Protocol
	if !ok || protocol.Not || protocol.Value != "tcp" && protocol.Value != "udp" {
		return false
	}
	args := option + " " + ports
	if not {
		args = "! " + args
	}
	if n := len(d.rule.Matches); n > 0 && d.rule.Matches[n-1].Name == protocol.Value && !d.rule.Matches[n-1].Opaque {
		d.rule.Matches[n-1].Args += " " + args
		return true
	}
	d.rule.Matches = append(d.rule.Matches, unflannel.Match{Name: protocol.Value, Args: args})
	return true
}

func (d *decoder) portRange(e expr) {
	o := d.registers[e.register(unix.NFTA_RANGE_SREG)]
	from, to := e.data(unix.NFTA_RANGE_FROM_DATA), e.data(unix.NFTA_RANGE_TO_DATA)
	if o.source != sourceTransport || o.length != 2 || o.mask != nil || len(from) != 2 || len(to) != 2 ||
		!d.port(o.key, fmt.Sprintf("%d:%d", binary.BigEndian.Uint16(from), binary.BigEndian.Uint16(to)),
			be32(e.attr(unix.NFTA_RANGE_OP)) == unix.NFT_RANGE_NEQ) {
		d.unknown("range")
	}
}

// setName adds a condition on an interface's name. A comparison that covers the
// NUL is of the whole name, one that does not of its beginning.
func setName(c *unflannel.Condition, value []byte, not bool) bool {
	name := string(cstring(value))
	if *c != (unflannel.Condition{}) || name == "" {
		return false
	}
	if len(name) == len(value) {
		name += "+"
	}
	*c = unflannel.Condition{Value: name, Not: not}
	return true
}

func (d *decoder) mark(mask, value []byte, not bool) bool {
	if len(value) != 4 || mask != nil && len(mask) != 4 {
		return false
	}
	args := fmt.Sprintf("--mark 0x%x", binary.NativeEndian.Uint32(value))
	if mask != nil {
		args += fmt.Sprintf("/0x%x", binary.NativeEndian.Uint32(mask))
	}
	if not {
		args = "! " + args
	}
	d.rule.Matches = append(d.rule.Matches, unflannel.Match{Name: "mark", Args: args})
	return true
}

// The kernel's verdicts that golang.org/x/sys lacks (include/uapi/linux/netfilter.h).
const (
	nfDrop   = 0
	nfAccept = 1
	nfQueue  = 3
)

// verdicts are iptables' names of verdicts, by nf_tables' codes.
var verdicts = map[int32]string{
	nfDrop:          "DROP",
	nfAccept:        "ACCEPT",
	nfQueue:         "QUEUE",
	unix.NFT_RETURN: "RETURN",
}

func (d *decoder) immediate(e expr) error {
	v, ok, err := parseVerdict(e.attr(unix.NFTA_IMMEDIATE_DATA))
	if err != nil {
		return err
	}
	if !ok {
		o := operand{source: sourceImmediate, value: e.data(unix.NFTA_IMMEDIATE_DATA)}
		d.load(e.register(unix.NFTA_IMMEDIATE_DREG), len(o.value), o)
		return nil
	}
	name, known := verdicts[v.code]
	switch {
	case v.code == unix.NFT_JUMP || v.code == unix.NFT_GOTO:
		d.rule.Target = unflannel.Target{Name: string(v.chain), Chain: true, Goto: v.code == unix.NFT_GOTO}
	case known:
		d.rule.Target = unflannel.Target{Name: name}
	default:
		d.opaque("immediate", "verdict %d", v.code)
	}
	return nil
}

// The flags of nf_tables' nat expressions (enum nf_nat_range_flags in the kernel's
// include/uapi/linux/netfilter/nf_nat.h).
const (
	rangePortSpecified = 1 << 1
	rangeRandom        = 1 << 2
	rangeRandomFully   = 1 << 4
)

func (d *decoder) masquerade(e expr) {
	flags := be32(e.attr(unix.NFTA_MASQ_FLAGS))
	var args []string
	known := uint32(rangeRandom | rangeRandomFully)
	if e.attr(unix.NFTA_MASQ_REG_PROTO_MIN) != nil {
		low := d.registers[e.register(unix.NFTA_MASQ_REG_PROTO_MIN)].value
		high := low
		if e.attr(unix.NFTA_MASQ_REG_PROTO_MAX) != nil {
			high = d.registers[e.register(unix.NFTA_MASQ_REG_PROTO_MAX)].value
		}
		if len(low) < 2 || len(high) < 2 {
			d.rule.Target = unflannel.Target{Name: "MASQUERADE", Args: "to ports of a register", Opaque: true}
			return
		}
		from, to := binary.BigEndian.Uint16(low), binary.BigEndian.Uint16(high)
		ports := fmt.Sprintf("--to-ports %d", from)
		if to != from {
			ports += fmt.Sprintf("-%d", to)
		}
		args = append(args, ports)
		known |= rangePortSpecified
	}
	if flags&rangeRandom != 0 {
		args = append(args, "--random")
	}
	if flags&rangeRandomFully != 0 {
		args = append(args, "--random-fully")
	}
	if flags&^known != 0 {
		d.rule.Target = unflannel.Target{Name: "MASQUERADE", Args: fmt.Sprintf("flags 0x%x", flags), Opaque: true}
		return
	}
	d.rule.Target = unflannel.Target{Name: "MASQUERADE", Args: strings.Join(args, " ")}
}

// nativeComment is the comment that nft stores beside a rule, in its own format of
// type, length and value. iptables-nft's comments are not there but in a match.
func nativeComment(userdata []byte) string {
	const typeComment = 0
	for len(userdata) >= 2 && int(userdata[1]) <= len(userdata)-2 {
		typ, value := userdata[0], userdata[2:2+int(userdata[1])]
		if typ == typeComment {
			return string(cstring(value))
		}
		userdata = userdata[2+len(value):]
	}
	return ""
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
