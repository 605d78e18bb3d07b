package netnstest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The attributes that golang.org/x/sys/unix has no names for.
const (
	nftaTableHandle     = 4
	nftaTablePad        = 5
	nftaSetPad          = 14
	nftaSetHandle       = 16
	nftaSetCount        = 20
	nftaSetElemKeyEnd   = 10
	nftaObjHandle       = 6
	nftaObjPad          = 7
	nftaFlowtableTable  = 1
	nftaFlowtableName   = 2
	nftaFlowtableUse    = 4
	nftaFlowtableHandle = 5
	nftaFlowtablePad    = 6
)

// nftKind is a kind of object of nf_tables.
type nftKind struct {
	name string
	get  uint16   // the request that dumps it
	path []uint16 // the attributes with its table's name, …, its own
	// handle is the attribute with its handle.
	handle uint16
	// drop are the attributes that change although nobody touches the object: how
	// often it is used, which depends on rules that may be somebody else's; a
	// rule's position, which is the handle of the rule before it; the number of a
	// set's elements, which have lines of their own; padding, which depends on
	// where in the message an attribute happens to stand.
	drop []uint16
}

var (
	nftTable = nftKind{"table", unix.NFT_MSG_GETTABLE,
		[]uint16{unix.NFTA_TABLE_NAME}, nftaTableHandle,
		[]uint16{unix.NFTA_TABLE_USE, nftaTablePad}}
	nftChain = nftKind{"chain", unix.NFT_MSG_GETCHAIN,
		[]uint16{unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME}, unix.NFTA_CHAIN_HANDLE,
		[]uint16{unix.NFTA_CHAIN_USE, unix.NFTA_CHAIN_PAD}}
	nftRule = nftKind{"rule", unix.NFT_MSG_GETRULE,
		[]uint16{unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN}, unix.NFTA_RULE_HANDLE,
		[]uint16{unix.NFTA_RULE_POSITION, unix.NFTA_RULE_PAD}}
	nftSet = nftKind{"set", unix.NFT_MSG_GETSET,
		[]uint16{unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME}, nftaSetHandle,
		[]uint16{nftaSetCount, nftaSetPad}}
	nftObject = nftKind{"object", unix.NFT_MSG_GETOBJ,
		[]uint16{unix.NFTA_OBJ_TABLE, unix.NFTA_OBJ_NAME}, nftaObjHandle,
		[]uint16{unix.NFTA_OBJ_USE, nftaObjPad}}
	nftFlowtable = nftKind{"flowtable", unix.NFT_MSG_GETFLOWTABLE,
		[]uint16{nftaFlowtableTable, nftaFlowtableName}, nftaFlowtableHandle,
		[]uint16{nftaFlowtableUse, nftaFlowtablePad}}
)

// nftObj is an object as the kernel dumped it.
type nftObj struct {
	kind   *nftKind
	family byte
	path   []string
	handle uint64
	attrs  []byte
}

func (o nftObj) line() Line {
	key := o.kind.name + " " + familyName(o.family)
	for _, p := range o.path {
		key += " " + p
	}
	return Line{Key: fmt.Sprintf("%s handle %d", key, o.handle), Data: o.attrs}
}

// familyName returns nft's name for a family.
func familyName(f byte) string {
	switch f {
	case unix.NFPROTO_INET:
		return "inet"
	case unix.NFPROTO_IPV4:
		return "ip"
	case unix.NFPROTO_ARP:
		return "arp"
	case unix.NFPROTO_NETDEV:
		return "netdev"
	case unix.NFPROTO_BRIDGE:
		return "bridge"
	case unix.NFPROTO_IPV6:
		return "ip6"
	}
	return fmt.Sprintf("family%d", f)
}

// dumpNFT reads all of nf_tables in the calling thread's namespace. It returns
// nothing if the kernel has no nf_tables.
func dumpNFT() (Dump, error) {
	// A kernel page is mdlayher/netlink's default, and lets the kernel start each
	// long dump over and over.
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{MessageBufferSize: 32768})
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer c.Close()
	r := nftReader{c}

	before, err := r.generation()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil
	}
	for range 20 {
		if err != nil {
			return nil, fmt.Errorf("read the generation of nf_tables: %w", err)
		}
		// Many requests make one picture only if nobody wrote in between.
		d, dumpErr := r.all()
		var after []byte
		if after, err = r.generation(); err == nil && bytes.Equal(before, after) {
			return d, dumpErr
		}
		before = after
	}
	return nil, errors.New("nf_tables changes all the time")
}

type nftReader struct{ c *netlink.Conn }

// all reads everything once.
func (r nftReader) all() (Dump, error) {
	var d Dump
	for _, k := range []*nftKind{&nftTable, &nftChain, &nftSet, &nftObject, &nftFlowtable} {
		objs, err := r.dump(k, unix.NFPROTO_UNSPEC)
		if err != nil {
			return nil, err
		}
		for _, o := range objs {
			d = append(d, o.line())
			var more Dump
			switch k {
			case &nftChain:
				more, err = r.rules(o)
			case &nftSet:
				more, err = r.elements(o)
			}
			if err != nil {
				return nil, err
			}
			d = append(d, more...)
		}
	}
	return d, nil
}

// rules reads a chain's rules in their order. Chain by chain, because the cost
// of dumping a table grows with the square of its rules.
func (r nftReader) rules(chain nftObj) (Dump, error) {
	objs, err := r.dump(&nftRule, chain.family, chain.path...)
	if err != nil {
		return nil, err
	}
	var d Dump
	for _, o := range objs {
		d = append(d, o.line())
	}
	return d, nil
}

// elements reads a set's elements. The kernel returns those of a hash in an
// order that may change when it makes room; they are sorted here.
func (r nftReader) elements(set nftObj) (Dump, error) {
	req := []netlink.Attribute{
		{Type: unix.NFTA_SET_ELEM_LIST_TABLE, Data: cstring(set.path[0])},
		{Type: unix.NFTA_SET_ELEM_LIST_SET, Data: cstring(set.path[1])},
	}
	msgs, err := r.request(unix.NFT_MSG_GETSETELEM, netlink.Dump, set.family, req)
	if err != nil {
		return nil, fmt.Errorf("dump the elements of set %s: %w", set.path[1], err)
	}
	prefix := "element " + familyName(set.family) + " " + set.path[0] + " " + set.path[1]
	var d Dump
	for _, m := range msgs {
		list, err := attributes(m.Data[4:])
		if err != nil {
			return nil, err
		}
		elems, err := attributes(find(list, unix.NFTA_SET_ELEM_LIST_ELEMENTS))
		if err != nil {
			return nil, err
		}
		for _, e := range elems {
			l, err := element(prefix, e.Data)
			if err != nil {
				return nil, err
			}
			d = append(d, l)
		}
	}
	slices.SortFunc(d, func(a, b Line) int {
		if c := bytes.Compare([]byte(a.Key), []byte(b.Key)); c != 0 {
			return c
		}
		return bytes.Compare(a.Data, b.Data)
	})
	return d, nil
}

func element(prefix string, data []byte) (Line, error) {
	attrs, err := attributes(data)
	if err != nil {
		return Line{}, err
	}
	key := prefix + " default" // a map's catch-all has no key
	if k, err := attributes(find(attrs, unix.NFTA_SET_ELEM_KEY)); err == nil && len(k) > 0 {
		key = fmt.Sprintf("%s %x", prefix, k[0].Data)
	}
	if k, err := attributes(find(attrs, nftaSetElemKeyEnd)); err == nil && len(k) > 0 {
		key += fmt.Sprintf("-%x", k[0].Data)
	}
	// The clock alone changes the time that an element has left.
	kept, err := without(attrs, []uint16{unix.NFTA_SET_ELEM_EXPIRATION, unix.NFTA_SET_ELEM_PAD})
	return Line{Key: key, Data: kept}, err
}

// dump asks for all objects of a kind, or of those with the given path.
func (r nftReader) dump(k *nftKind, family byte, path ...string) ([]nftObj, error) {
	var req []netlink.Attribute
	for i, p := range path {
		req = append(req, netlink.Attribute{Type: k.path[i], Data: cstring(p)})
	}
	msgs, err := r.request(k.get, netlink.Dump, family, req)
	if err != nil {
		return nil, fmt.Errorf("dump %ss: %w", k.name, err)
	}
	var objs []nftObj
	for _, m := range msgs {
		attrs, err := attributes(m.Data[4:])
		if err != nil {
			return nil, fmt.Errorf("decode a %s: %w", k.name, err)
		}
		o := nftObj{kind: k, family: m.Data[0]}
		for _, t := range k.path {
			o.path = append(o.path, string(bytes.TrimRight(find(attrs, t), "\x00")))
		}
		if h := find(attrs, k.handle); len(h) == 8 {
			o.handle = binary.BigEndian.Uint64(h)
		}
		if o.attrs, err = without(attrs, k.drop); err != nil {
			return nil, fmt.Errorf("encode a %s: %w", k.name, err)
		}
		objs = append(objs, o)
	}
	return objs, nil
}

// generation returns the number of the ruleset's last change, as a message.
func (r nftReader) generation() ([]byte, error) {
	msgs, err := r.request(unix.NFT_MSG_GETGEN, 0, unix.NFPROTO_UNSPEC, nil)
	if err != nil {
		return nil, err
	}
	if len(msgs) != 1 {
		return nil, fmt.Errorf("%d answers", len(msgs))
	}
	attrs, err := attributes(msgs[0].Data[4:])
	return find(attrs, unix.NFTA_GEN_ID), err
}

func (r nftReader) request(typ uint16, flags netlink.HeaderFlags, family byte, attrs []netlink.Attribute) ([]netlink.Message, error) {
	body, err := netlink.MarshalAttributes(attrs)
	if err != nil {
		return nil, err
	}
	if err := r.c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return nil, err
	}
	msgs, err := r.c.Execute(netlink.Message{
		Header: netlink.Header{
			Type:  netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | typ),
			Flags: netlink.Request | flags,
		},
		Data: append([]byte{family, unix.NFNETLINK_V0, 0, 0}, body...), // struct nfgenmsg
	})
	if err != nil {
		return nil, err
	}
	for _, m := range msgs {
		if len(m.Data) < 4 {
			return nil, errors.New("short message")
		}
	}
	return msgs, nil
}

// attributes decodes a list of attributes; the flags of their types are cleared.
func attributes(b []byte) ([]netlink.Attribute, error) {
	attrs, err := netlink.UnmarshalAttributes(b)
	for i := range attrs {
		attrs[i].Type &^= netlink.Nested | netlink.NetByteOrder
	}
	return attrs, err
}

// without encodes the attributes that are not to be dropped.
func without(attrs []netlink.Attribute, drop []uint16) ([]byte, error) {
	var kept []netlink.Attribute
	for _, a := range attrs {
		if !slices.Contains(drop, a.Type) {
			kept = append(kept, a)
		}
	}
	return netlink.MarshalAttributes(kept)
}

// find returns the data of the first attribute of a type, or nil.
func find(attrs []netlink.Attribute, typ uint16) []byte {
	for _, a := range attrs {
		if a.Type == typ {
			return a.Data
		}
	}
	return nil
}

func cstring(s string) []byte { return append([]byte(s), 0) }
