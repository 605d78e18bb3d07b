package nft

import (
	"golang.org/x/sys/unix"
)

// eachExpr calls f for each expression of a rule with its name and its own attributes.
func eachExpr(rule []byte, f func(name, data []byte) error) error {
	a := attributes{rest: rule}
	for a.next() {
		if a.typ != unix.NFTA_RULE_EXPRESSIONS {
			continue
		}
		list := attributes{rest: a.data}
		for list.next() {
			if list.typ != unix.NFTA_LIST_ELEM {
				continue
			}
			var name, data []byte
			expr := attributes{rest: list.data}
			for expr.next() {
				switch expr.typ {
				case unix.NFTA_EXPR_NAME:
					name = cstring(expr.data)
				case unix.NFTA_EXPR_DATA:
					data = expr.data
				}
			}
			if expr.bad {
				return errMalformed
			}
			if err := f(name, data); err != nil {
				return err
			}
		}
		if list.bad {
			return errMalformed
		}
	}
	return a.err()
}

// eachElement calls f with the data of each element of a set that has any.
func eachElement(attrs []byte, f func(data []byte) error) error {
	a := attributes{rest: attrs}
	for a.next() {
		if a.typ != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			continue
		}
		list := attributes{rest: a.data}
		for list.next() {
			elem := attributes{rest: list.data}
			for elem.next() {
				if elem.typ == unix.NFTA_SET_ELEM_DATA {
					if err := f(elem.data); err != nil {
						return err
					}
				}
			}
			if elem.bad {
				return errMalformed
			}
		}
		if list.bad {
			return errMalformed
		}
	}
	return a.err()
}

// verdict is what an immediate expression or an element of a verdict map decides.
type verdict struct {
	code  int32
	chain []byte // of a jump or goto
}

// parseVerdict reads a verdict from a data attribute, if there is one in it.
func parseVerdict(data []byte) (v verdict, ok bool, err error) {
	a := attributes{rest: data}
	for a.next() {
		if a.typ != unix.NFTA_DATA_VERDICT {
			continue
		}
		ok = true
		inner := attributes{rest: a.data}
		for inner.next() {
			switch inner.typ {
			case unix.NFTA_VERDICT_CODE:
				v.code = int32(be32(inner.data))
			case unix.NFTA_VERDICT_CHAIN:
				v.chain = cstring(inner.data)
			}
		}
		if inner.bad {
			return v, ok, errMalformed
		}
	}
	return v, ok, a.err()
}

// dataVerdict is the chain that a data attribute jumps or goes to, if any.
func dataVerdict(data []byte) ([]byte, error) {
	v, _, err := parseVerdict(data)
	return v.chain, err
}

// verdictChain is the chain that an immediate expression jumps or goes to, if any.
func verdictChain(immediate []byte) ([]byte, error) {
	a := attributes{rest: immediate}
	for a.next() {
		if a.typ == unix.NFTA_IMMEDIATE_DATA {
			return dataVerdict(a.data)
		}
	}
	return nil, a.err()
}
