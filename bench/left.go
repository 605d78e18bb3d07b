package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel/netnstest"
)

// left says what a way left behind or did to the rules of others: "nothing" is what
// it should be. Of a way that only looks, before has the leftovers too.
func left(before, after netnstest.Dump, looks bool) string {
	var told []string
	tell := func(n int, format string) {
		if n > 0 {
			told = append(told, fmt.Sprintf(format, grouped(n)))
		}
	}
	others := after
	if looks {
		told = append(told, "all: it only looks")
	} else {
		others = after.Without(isFlannels)
		tell(len(after)-len(others), "%s of Flannel's")
	}
	if created := tablesOf(after, before); len(created) > 0 {
		told = append(told, "new empty tables "+strings.Join(created, ", "))
		others = others.Without(func(l netnstest.Line) bool { return slices.Contains(created, tableOf(l)) })
	}
	same := func(l netnstest.Line) string { return withoutCounter(withoutHandle(l)).String() }
	lost, added := differing(before, others, same)
	anew, _ := differing(before, others, func(l netnstest.Line) string { return withoutCounter(l).String() })
	reset, _ := differing(before, others, func(l netnstest.Line) string { return withoutHandle(l).String() })
	tell(lost, "%s rules and chains of others lost or changed")
	tell(added-lost, "%s rules and chains more than before")
	tell(anew-lost, "%s rules and chains of others made anew")
	tell(reset-lost, "%s counters of others set to zero")
	if told == nil {
		return "nothing"
	}
	return strings.Join(told, "; ")
}

// isFlannels reports whether a line is of Flannel's leftovers. The rules of others
// here do not mention it.
func isFlannels(l netnstest.Line) bool { return l.Contains("FLANNEL-") || l.Contains("flanneld ") }

// differing counts the lines of one dump that the other lacks, and the other way
// round, by what key makes of a line.
func differing(before, after netnstest.Dump, key func(netnstest.Line) string) (lost, added int) {
	count := map[string]int{}
	for _, l := range before {
		count[key(l)]++
	}
	for _, l := range after {
		count[key(l)]--
	}
	for _, n := range count {
		lost += max(n, 0)
		added += max(-n, 0)
	}
	return lost, added
}

// tableOf is a legacy line's table, "legacy ip nat"; "" for one of nf_tables.
func tableOf(l netnstest.Line) string {
	if f := strings.Fields(l.Key); len(f) > 2 && f[0] == "legacy" {
		return strings.Join(f[:3], " ")
	}
	return ""
}

// tablesOf are the legacy tables of one dump that the other has not.
func tablesOf(d, not netnstest.Dump) (tables []string) {
	for _, l := range d {
		t := tableOf(l)
		if t != "" && !slices.Contains(tables, t) &&
			!slices.ContainsFunc(not, func(o netnstest.Line) bool { return tableOf(o) == t }) {
			tables = append(tables, t)
		}
	}
	return tables
}

// handleOf are the attributes with a handle, by kind of object.
var handleOf = map[string]uint16{
	"table": 4, // NFTA_TABLE_HANDLE
	"chain": unix.NFTA_CHAIN_HANDLE,
	"rule":  unix.NFTA_RULE_HANDLE,
	"set":   16, // NFTA_SET_HANDLE
}

func withoutHandle(l netnstest.Line) netnstest.Line {
	kind, _, _ := strings.Cut(l.Key, " ")
	handle, ok := handleOf[kind]
	if !ok {
		return l
	}
	l.Key, _, _ = strings.Cut(l.Key, " handle ")
	attrs, err := netlink.UnmarshalAttributes(l.Data)
	if err != nil {
		return l
	}
	attrs = slices.DeleteFunc(attrs, func(a netlink.Attribute) bool { return a.Type == handle })
	if data, err := netlink.MarshalAttributes(attrs); err == nil {
		l.Data = data
	}
	return l
}

// counterExpr is the name attribute of a counter expression; two attributes of 8
// bytes follow, in a nested one.
var counterExpr = append(binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, 12), unix.NFTA_EXPR_NAME), "counter\x00"...)

func withoutCounter(l netnstest.Line) netnstest.Line {
	l.Counters = ""
	if at := bytes.Index(l.Data, counterExpr); at >= 0 && at+40 <= len(l.Data) {
		l.Data = bytes.Clone(l.Data)
		at += len(counterExpr) + 4 // into the nested attribute
		clear(l.Data[at+4 : at+12])
		clear(l.Data[at+16 : at+24])
	}
	return l
}
