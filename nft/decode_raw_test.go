package nft

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel"
)

// TestDecodeRaw decodes expressions that neither iptables nor nft writes, but that the
// kernel takes from anybody: a rule is not to be shown as less than it is, or as another.
func TestDecodeRaw(t *testing.T) {
	t.Parallel()
	var (
		source = func(register uint32) message { return load(register, 12, 4) }
		both   = func(register uint32) message { return load(register, 12, 8) } // source and destination
		in     = func(register uint32) message {
			return expression("meta", message(nil).uint32(unix.NFTA_META_KEY, unix.NFT_META_IIFNAME).uint32(unix.NFTA_META_DREG, register))
		}
		is = func(register uint32, value ...byte) message {
			return expression("cmp", message(nil).uint32(unix.NFTA_CMP_SREG, register).uint32(unix.NFTA_CMP_OP, unix.NFT_CMP_EQ).
				attr(unix.NFTA_CMP_DATA, message(nil).attr(unix.NFTA_DATA_VALUE, value)))
		}
		counter = expression("counter", message(nil).uint64(unix.NFTA_COUNTER_PACKETS, 1).uint64(unix.NFTA_COUNTER_BYTES, 2))
		accept  = expression("immediate", message(nil).uint32(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT).
			attr(unix.NFTA_IMMEDIATE_DATA, message(nil).attr(unix.NFTA_DATA_VERDICT, message(nil).uint32(unix.NFTA_VERDICT_CODE, nfAccept))))
		masquerade = expression("masq", nil)
	)
	const r0 = unix.NFT_REG32_00
	name := append([]byte("eth0"), make([]byte, 12)...)
	for _, tc := range []struct {
		about       string
		expressions []message
		want        string
	}{
		{"as iptables writes it", []message{source(unix.NFT_REG_1), is(unix.NFT_REG_1, 10, 244, 1, 2), counter, accept}, "-s 10.244.1.2/32 -j ACCEPT"},
		{"both numberings of registers", []message{source(unix.NFT_REG_2), is(r0+4, 10, 244, 1, 2), accept}, "-s 10.244.1.2/32 -j ACCEPT"},
		{"a register that nothing was loaded into", []message{source(r0), is(r0+1, 10, 244, 1, 2), accept}, "[expression cmp] -j ACCEPT"},
		{"two addresses at once", []message{both(r0), is(r0, 10, 244, 1, 2, 10, 244, 1, 3), accept}, "[expression cmp] -j ACCEPT"},
		{"the second of two addresses", []message{both(r0), is(r0+1, 10, 244, 1, 2), accept}, "[expression cmp] -j ACCEPT"},
		{"a register that a longer load covers", []message{source(r0 + 1), both(r0), is(r0+1, 10, 244, 1, 2), accept}, "[expression cmp] -j ACCEPT"},
		{"a name that a load covers in part", []message{in(r0), source(r0 + 3), is(r0, name...), accept}, "[expression cmp] -j ACCEPT"},
		{"a load behind a name", []message{in(r0), source(r0 + 4), is(r0, name...), accept}, "-i eth0 -j ACCEPT"},
		{"a condition behind the verdict", []message{accept, source(r0), is(r0, 10, 244, 1, 2)}, "[then expression payload] [then expression cmp] -j ACCEPT"},
		{"two verdicts", []message{masquerade, accept}, "[then expression immediate] -j MASQUERADE"},
		{"a counter behind the verdict", []message{accept, counter}, "-j ACCEPT"},
	} {
		var list message
		for _, e := range tc.expressions {
			list = list.attr(unix.NFTA_LIST_ELEM, e)
		}
		rule, err := decodeRule(unflannel.IP, message(nil).uint64(unix.NFTA_RULE_HANDLE, 7).attr(unix.NFTA_RULE_EXPRESSIONS, list))
		if err != nil {
			t.Errorf("%s: %v", tc.about, err)
		}
		if got := rule.String(); got != "-A  "+tc.want {
			t.Errorf("%s:\n got %s\nwant -A  %s", tc.about, got, tc.want)
		}
	}
}

// expression is an expression's attributes with its name.
func expression(name string, data message) message {
	return message(nil).text(unix.NFTA_EXPR_NAME, name).attr(unix.NFTA_EXPR_DATA, data)
}

// load loads a part of the network header.
func load(register, offset, length uint32) message {
	return expression("payload", message(nil).uint32(unix.NFTA_PAYLOAD_DREG, register).
		uint32(unix.NFTA_PAYLOAD_BASE, unix.NFT_PAYLOAD_NETWORK_HEADER).
		uint32(unix.NFTA_PAYLOAD_OFFSET, offset).uint32(unix.NFTA_PAYLOAD_LEN, length))
}
