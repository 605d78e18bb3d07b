package xtables

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/unflannel/unflannel"
)

// data puts a structure together: numbers in this machine's byte order, strings and
// byte slices as they are.
func data(fields ...any) []byte {
	var b []byte
	for _, f := range fields {
		switch f := f.(type) {
		case string:
			b = append(b, f...)
		case []byte:
			b = append(b, f...)
		case byte:
			b = append(b, f)
		case uint16:
			b = host.AppendUint16(b, f)
		case uint32:
			b = host.AppendUint32(b, f)
		default:
			panic(fmt.Sprintf("field of type %T", f))
		}
	}
	return b
}

func zeros(n int) []byte { return make([]byte, n) }

func port(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }

type (
	u8  = byte
	u16 = uint16
	u32 = uint32
)

func commentData(text string) []byte { return append([]byte(text), make([]byte, 256-len(text))...) }

func multiportData(which, invert byte, ranges []byte, ports ...uint16) []byte {
	b := data(which, u8(len(ports)))
	for i := range 15 {
		n := u16(0)
		if i < len(ports) {
			n = ports[i]
		}
		b = append(b, data(n)...)
	}
	return append(append(append(b, ranges...), zeros(15-len(ranges))...), invert)
}

func conntrackData(revision byte, flags, inverted, states uint16) []byte {
	b := data(zeros(146), flags, inverted)
	switch revision {
	case 1:
		return data(b, u8(states), u8(0))
	case 2:
		return data(b, states, u16(0), zeros(2))
	}
	return data(b, states, u16(0), zeros(10))
}

var matchTests = []struct {
	name     string
	revision byte
	data     []byte
	want     string // the match's String, "" for opaque
}{
	{"comment", 0, commentData("flanneld masq"), `-m comment --comment "flanneld masq"`},
	{"comment", 0, commentData(""), `-m comment --comment ""`},
	{"comment", 0, append(commentData("x")[:2], []byte("left over")...), ""},
	{"comment", 0, slices.Repeat([]byte("x"), 256), ""},
	{"comment", 1, commentData("x"), ""},

	{"mark", 1, data(u32(0x4000), u32(0x4000), u8(0), zeros(3)), "-m mark --mark 0x4000/0x4000"},
	{"mark", 1, data(u32(1), u32(0xffffffff), u8(1), zeros(7)), "-m mark ! --mark 0x1"},
	{"mark", 1, data(u32(1), u32(1), u8(2), zeros(3)), ""},
	{"mark", 1, data(u32(1), u32(1)), ""},
	{"mark", 1, data(u32(1), u32(1), zeros(12)), ""},
	{"mark", 0, data(u32(1), u32(1), u8(0), zeros(3)), ""},

	{"tcp", 0, data(u16(0), u16(0xffff), u16(80), u16(80), u8(0), u8(0), u8(0), u8(0), zeros(4)), "-m tcp --dport 80"},
	{"tcp", 0, data(u16(1), u16(2), u16(0), u16(0xffff), u8(0), u8(0x17), u8(2), u8(1)), "-m tcp ! --sport 1:2 --tcp-flags FIN,SYN,RST,ACK SYN"},
	{"tcp", 0, data(u16(0), u16(0xffff), u16(0), u16(0xffff), u8(3), u8(1), u8(0), u8(12)), "-m tcp ! --tcp-option 3 ! --tcp-flags FIN NONE"},
	{"tcp", 0, data(u16(0), u16(0xffff), u16(0), u16(0xffff), zeros(4)), "-m tcp"},
	{"tcp", 0, data(u16(0), u16(0xffff), u16(0), u16(0xffff), u8(0), u8(0), u8(0), u8(2)), "-m tcp ! --dport 0:65535"},
	{"tcp", 0, data(u16(0), u16(0xffff), u16(0), u16(0xffff), u8(0), u8(0x40), u8(0), u8(0)), ""},
	{"tcp", 0, data(u16(0), u16(0xffff), u16(0), u16(0xffff), u8(0), u8(0), u8(0), u8(16)), ""},

	{"udp", 0, data(u16(53), u16(53), u16(0), u16(0xffff), u8(0), zeros(7)), "-m udp --sport 53"},
	{"udp", 0, data(u16(0), u16(0xffff), u16(5), u16(65535), u8(2), zeros(1)), "-m udp ! --dport 5:65535"},
	{"udp", 0, data(u16(0), u16(0xffff), u16(5), u16(65535), u8(4), zeros(1)), ""},

	{"multiport", 1, multiportData(0, 0, nil, 80, 443), "-m multiport --sports 80,443"},
	{"multiport", 1, multiportData(1, 0, []byte{1}, 80, 90, 443), "-m multiport --dports 80:90,443"},
	{"multiport", 1, multiportData(2, 1, []byte{0, 1}, 1, 2, 3), "-m multiport ! --ports 1,2:3"},
	{"multiport", 1, multiportData(3, 0, nil, 80), ""},
	{"multiport", 1, multiportData(0, 2, nil, 80), ""},
	{"multiport", 1, multiportData(0, 0, nil), ""},
	{"multiport", 1, multiportData(0, 0, []byte{0, 1}, 1, 2), ""},
	{"multiport", 1, data(u8(0), u8(16), zeros(46)), ""},

	{"addrtype", 1, data(u16(0), u16(4), u32(0)), "-m addrtype --dst-type LOCAL"},
	{"addrtype", 1, data(u16(6), u16(4), u32(1|4)), "-m addrtype ! --src-type UNICAST,LOCAL --dst-type LOCAL --limit-iface-in"},
	{"addrtype", 1, data(u16(0), u16(1<<11), u32(2|8)), "-m addrtype ! --dst-type XRESOLVE --limit-iface-out"},
	{"addrtype", 1, data(u16(0), u16(4), u32(16)), ""},
	{"addrtype", 1, data(u16(0), u16(4), u32(1)), ""},
	{"addrtype", 1, data(u16(0), u16(1<<12), u32(0)), ""},

	{"conntrack", 1, conntrackData(1, 1, 0, 6), "-m conntrack --ctstate RELATED,ESTABLISHED"},
	{"conntrack", 2, conntrackData(2, 1, 1, 1<<8|1), "-m conntrack ! --ctstate INVALID,UNTRACKED"},
	{"conntrack", 3, conntrackData(3, 1, 0, 8|1<<6|1<<7), "-m conntrack --ctstate NEW,SNAT,DNAT"},
	{"conntrack", 3, conntrackData(3, 1|1<<13, 0, 8), "-m state --state NEW"},
	{"conntrack", 3, conntrackData(3, 1|2, 0, 8), ""},
	{"conntrack", 3, conntrackData(3, 0, 0, 8), ""},
	{"conntrack", 3, conntrackData(3, 1, 0, 0), ""},
	{"conntrack", 3, conntrackData(3, 1, 4, 8), ""},
	{"conntrack", 3, conntrackData(3, 1, 0, 1<<5), ""},
	{"conntrack", 4, conntrackData(3, 1, 0, 8), ""},
	{"conntrack", 2, conntrackData(3, 1, 0, 8), ""},

	{"statistic", 0, zeros(24), ""},
	{"", 0, nil, ""},
}

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, test := range matchTests {
		for _, family := range []unflannel.Family{unflannel.IP, unflannel.IP6} {
			m := Match(family, test.name, test.revision, test.data)
			want, opaque := test.want, test.want == ""
			if opaque {
				want = fmt.Sprintf("[match %s revision %d]", test.name, test.revision)
			}
			if m.String() != want || m.Opaque != opaque {
				t.Errorf("have %s, want %s", m, want)
			}
		}
	}
}

// Whatever is missing of a structure, it is not guessed.
func TestMatchShort(t *testing.T) {
	t.Parallel()
	for _, test := range matchTests {
		if test.want == "" {
			continue
		}
		for n := range len(test.data) {
			if m := Match(unflannel.IP, test.name, test.revision, test.data[:n]); !m.Opaque && m.String() != test.want {
				t.Errorf("%d bytes of %s: %s", n, test.want, m)
			}
		}
	}
}

func nat4(n, flags uint32, from, to uint16) []byte {
	return data(n, flags, zeros(8), port(from), port(to))
}

func nat6(flags uint32, from, to uint16) []byte {
	return data(flags, zeros(32), port(from), port(to))
}

var targetTests = []struct {
	family   unflannel.Family
	name     string
	revision byte
	data     []byte
	want     string
}{
	{unflannel.IP, "MASQUERADE", 0, nat4(1, 0, 0, 0), "-j MASQUERADE"},
	{unflannel.IP, "MASQUERADE", 0, append(nat4(1, 16, 0, 0), zeros(4)...), "-j MASQUERADE --random-fully"},
	{unflannel.IP, "MASQUERADE", 0, nat4(1, 2|4|16, 5, 9), "-j MASQUERADE --to-ports 5-9 --random --random-fully"},
	{unflannel.IP, "MASQUERADE", 0, nat4(1, 2, 1024, 1024), "-j MASQUERADE --to-ports 1024"},
	{unflannel.IP, "MASQUERADE", 0, nat4(2, 0, 0, 0), ""},
	{unflannel.IP, "MASQUERADE", 0, nat4(1, 1, 0, 0), ""},
	{unflannel.IP, "MASQUERADE", 0, nat4(1, 8, 0, 0), ""},
	{unflannel.IP, "MASQUERADE", 0, nat6(16, 0, 0), ""},
	{unflannel.IP, "MASQUERADE", 1, nat4(1, 0, 0, 0), ""},
	{unflannel.IP, "MASQUERADE", 0, zeros(8), ""},
	{unflannel.IP6, "MASQUERADE", 0, nat6(16, 0, 0), "-j MASQUERADE --random-fully"},
	{unflannel.IP6, "MASQUERADE", 0, nat6(2|4, 1, 65535), "-j MASQUERADE --to-ports 1-65535 --random"},
	{unflannel.IP6, "MASQUERADE", 0, nat6(32, 0, 0), ""},
	{unflannel.IP6, "MASQUERADE", 0, nat4(1, 16, 0, 0), ""},
	{"bridge", "MASQUERADE", 0, nat4(1, 16, 0, 0), ""},
	{unflannel.IP, "MARK", 2, data(u32(5), u32(0xffffffff)), "-j MARK --set-xmark 0x5/0xffffffff"},
	{unflannel.IP6, "MARK", 2, data(u32(0x4000), u32(0x4000)), "-j MARK --set-xmark 0x4000/0x4000"},
	{unflannel.IP, "MARK", 2, data(u32(5)), ""},
	{unflannel.IP, "MARK", 1, data(u32(5), u32(5)), ""},
	{unflannel.IP, "LOG", 0, zeros(32), ""},
}

func TestTarget(t *testing.T) {
	t.Parallel()
	for _, test := range targetTests {
		target := Target(test.family, test.name, test.revision, test.data)
		want, opaque := test.want, test.want == ""
		if opaque {
			want = fmt.Sprintf("-j %s [target %[1]s revision %d]", test.name, test.revision)
		}
		if target.String() != want || target.Opaque != opaque || target.Chain || target.Goto {
			t.Errorf("have %s, want %s", target, want)
		}
	}
}

func TestProtocol(t *testing.T) {
	t.Parallel()
	for n, want := range map[uint8]string{0: "0", 1: "icmp", 2: "2", 6: "tcp", 17: "udp", 47: "47", 50: "esp", 51: "ah", 58: "ipv6-icmp", 132: "sctp", 135: "ipv6-mh", 136: "udplite", 255: "255"} {
		if have := Protocol(n); have != want {
			t.Errorf("protocol %d: have %s, want %s", n, have, want)
		}
	}
}

func FuzzMatch(f *testing.F) {
	for _, test := range matchTests {
		f.Add(test.name, test.revision, test.data)
	}
	f.Fuzz(func(t *testing.T, name string, revision byte, data []byte) {
		for _, family := range []unflannel.Family{unflannel.IP, unflannel.IP6} {
			if m := Match(family, name, revision, data); m.Opaque && m.Name != name {
				t.Errorf("opaque match %s of the name %s", m.Name, name)
			}
		}
	})
}

func FuzzTarget(f *testing.F) {
	for _, test := range targetTests {
		f.Add(string(test.family), test.name, test.revision, test.data)
	}
	f.Fuzz(func(t *testing.T, family, name string, revision byte, data []byte) {
		if target := Target(unflannel.Family(family), name, revision, data); target.Name != name || target.Chain {
			t.Errorf("target %+v of the name %s", target, name)
		}
	})
}
