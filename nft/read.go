package nft

import (
	"context"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel"
)

// Attributes that golang.org/x/sys lacks, from the kernel's
// include/uapi/linux/netfilter/nf_tables.h.
const (
	nftaTableHandle = 4
	nftaTableOwner  = 7
	tableFlagOwner  = 2
)

// dataTypeVerdict is the data type of a verdict map (NFT_DATA_VERDICT of the same
// header; as an integer the library's constant does not fit).
const dataTypeVerdict = 0xffffff00

// generation asks for the generation of the ruleset, which every commit raises.
func (c *conn) generation(ctx context.Context) (uint32, error) {
	var id uint32
	err := c.request(ctx, nftMessage(unix.NFT_MSG_GETGEN, 0, unix.AF_UNSPEC), func(attrs []byte) error {
		a := attributes{rest: attrs}
		for a.next() {
			if a.typ == unix.NFTA_GEN_ID {
				id = be32(a.data)
			}
		}
		return a.err()
	})
	if err != nil {
		return 0, &unflannel.Error{Op: "read generation of the ruleset", Backend: name, Err: err}
	}
	if id == 0 { // the kernel counts from 1 and leaves out 0
		return 0, &unflannel.Error{Op: "read generation of the ruleset", Backend: name, Err: errMalformed}
	}
	return id, nil
}

// tableReader reads one table.
type tableReader struct {
	*conn
	family unflannel.Family
	number uint8 // the family's
	table  string
	found  *unflannel.Table // nil where there is none
	chains []*chainRead
	// lookups says which chain uses which anonymous map, of the chains read so far.
	lookups map[string]string
}

// chainRead is a chain of the query, with what the kernel counts.
type chainRead struct {
	*unflannel.Chain
	use   int // the chain's rules and all references to it
	found int // of those, what was read
}

// readTables reads the chains of the queries and finds all that refers to them.
//
// A table is never dumped whole: it may hold 100,000 rules. The kernel's use count
// of a chain tells when its last reference is found, which is after the built-in
// chain in all but odd cases.
func (c *conn) readTables(ctx context.Context, queries []unflannel.Query) (tables []*unflannel.Table, err error) {
	var readers []*tableReader
	var heads []question
	for _, q := range queries {
		r := &tableReader{conn: c, family: q.Family, number: families[q.Family], table: q.Table}
		readers = append(readers, r)
		heads = append(heads, r.head())
		for _, chain := range q.Chains {
			heads = append(heads, r.chainHead(chain))
		}
	}
	if err := c.askAll(ctx, heads); err != nil {
		return nil, err
	}
	for _, r := range readers {
		if r.found == nil {
			continue
		}
		if err := r.read(ctx); err != nil {
			return nil, err
		}
		tables = append(tables, r.found)
	}
	return tables, nil
}

// head asks for the table.
func (r *tableReader) head() question {
	return question{
		nftMessage(unix.NFT_MSG_GETTABLE, 0, r.number).text(unix.NFTA_TABLE_NAME, r.table),
		func(attrs []byte) (err error) {
			r.found, err = r.parseTable(attrs)
			return err
		},
		func(err error) error { return r.fail("look for rules", "", err) },
	}
}

func (r *tableReader) parseTable(attrs []byte) (*unflannel.Table, error) {
	t := &unflannel.Table{Family: r.family, Name: r.table}
	var flags uint32
	a := attributes{rest: attrs}
	for a.next() {
		switch a.typ {
		case unix.NFTA_TABLE_FLAGS:
			flags = be32(a.data)
		case unix.NFTA_TABLE_USE:
			t.Others = int(be32(a.data)) // less the chains, when they are read
		case nftaTableHandle:
			t.Handle = be64(a.data)
		case nftaTableOwner:
			t.Owner = be32(a.data)
		}
	}
	if flags&tableFlagOwner == 0 {
		t.Owner = 0
	}
	if t.Handle == 0 {
		return nil, errMalformed
	}
	return t, a.err()
}

// chainHead asks for a chain, without its rules.
func (r *tableReader) chainHead(chain string) question {
	return question{
		nftMessage(unix.NFT_MSG_GETCHAIN, 0, r.number).
			text(unix.NFTA_CHAIN_TABLE, r.table).text(unix.NFTA_CHAIN_NAME, chain),
		func(attrs []byte) error {
			c, err := parseChain(attrs)
			if err == nil {
				r.chains = append(r.chains, c)
			}
			return err
		},
		func(err error) error { return r.fail("read chain", chain, err) },
	}
}

// read reads the rules of the chains, and what refers to the chains.
func (r *tableReader) read(ctx context.Context) error {
	for _, chain := range r.chains {
		if err := r.rules(ctx, chain.Name, chain.Chain); err != nil {
			return err
		}
	}
	if !r.complete() {
		if err := r.otherChains(ctx); err != nil {
			return err
		}
	}
	if !r.complete() {
		if err := r.maps(ctx); err != nil {
			return err
		}
	}
	for _, chain := range r.chains {
		if chain.Hook == "" {
			chain.Unseen = max(0, chain.use-chain.found)
		}
		r.found.Chains = append(r.found.Chains, chain.Chain)
	}
	r.found.Others -= len(r.found.Chains)
	return nil
}

func parseChain(attrs []byte) (*chainRead, error) {
	c := &chainRead{Chain: &unflannel.Chain{}}
	a := attributes{rest: attrs}
	for a.next() {
		switch a.typ {
		case unix.NFTA_CHAIN_NAME:
			c.Name = string(cstring(a.data))
		case unix.NFTA_CHAIN_HANDLE:
			c.Handle = be64(a.data)
		case unix.NFTA_CHAIN_USE:
			c.use = int(be32(a.data))
		case unix.NFTA_CHAIN_HOOK:
			hook := attributes{rest: a.data}
			c.Hook = "unknown"
			for hook.next() {
				if hook.typ == unix.NFTA_HOOK_HOOKNUM {
					if n := be32(hook.data); int(n) < len(hooks) {
						c.Hook = hooks[n]
					}
				}
			}
			if hook.bad {
				return nil, errMalformed
			}
		case unix.NFTA_CHAIN_POLICY:
			c.Policy = "DROP"
			if be32(a.data) == nfAccept {
				c.Policy = "ACCEPT"
			}
		}
	}
	if c.Name == "" || c.Handle == 0 {
		return nil, errMalformed
	}
	return c, a.err()
}

// hooks are the names of the hooks of ip and ip6, by number.
var hooks = [...]string{"prerouting", "input", "forward", "output", "postrouting"}

// rules reads the rules of one chain. All are decoded if into is given, else only
// those that refer to a chain of the query.
func (r *tableReader) rules(ctx context.Context, chain string, into *unflannel.Chain) error {
	m := nftMessage(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, r.number).
		text(unix.NFTA_RULE_TABLE, r.table).text(unix.NFTA_RULE_CHAIN, chain)
	position := 0
	err := r.request(ctx, m, func(attrs []byte) error {
		position++
		refers, err := r.references(attrs, chain)
		if err != nil || !refers && into == nil {
			return err
		}
		rule, err := decodeRule(r.family, attrs)
		if err != nil {
			return err
		}
		rule.Chain, rule.Position = chain, position
		if into != nil {
			into.Rules = append(into.Rules, rule)
			r.byName(into.Name).found++
		}
		if refers {
			for _, c := range r.chains {
				if n := countVerdicts(attrs, c.Name); n > 0 && c.Hook == "" {
					c.References = append(c.References, rule)
					c.found += n
				}
			}
		}
		return nil
	})
	return r.fail("read rules of chain", chain, err)
}

// references reports whether a rule jumps or goes to a chain of the query, and
// notes which anonymous maps it looks up. It allocates nothing for other rules.
func (r *tableReader) references(attrs []byte, chain string) (bool, error) {
	found := false
	err := eachExpr(attrs, func(name, data []byte) error {
		switch string(name) {
		case "immediate":
			target, err := verdictChain(data)
			if err != nil {
				return err
			}
			found = found || len(target) > 0 && r.byName(string(target)) != nil
		case "lookup":
			a := attributes{rest: data}
			for a.next() {
				if a.typ == unix.NFTA_LOOKUP_SET {
					r.noteLookup(cstring(a.data), chain)
				}
			}
			return a.err()
		}
		return nil
	})
	return found, err
}

func (r *tableReader) noteLookup(set []byte, chain string) {
	const anonymous = "__map" // nft's own pattern for the names of anonymous maps
	if len(set) < len(anonymous) || string(set[:len(anonymous)]) != anonymous {
		return
	}
	if r.lookups == nil {
		r.lookups = map[string]string{}
	}
	r.lookups[string(set)] = chain
}

func countVerdicts(attrs []byte, chain string) (n int) {
	_ = eachExpr(attrs, func(name, data []byte) error { // checked by references
		if string(name) == "immediate" {
			if target, _ := verdictChain(data); string(target) == chain {
				n++
			}
		}
		return nil
	})
	return n
}

func (r *tableReader) byName(chain string) *chainRead {
	for _, c := range r.chains {
		if c.Name == chain {
			return c
		}
	}
	return nil
}

// complete reports whether everything that refers to the chains is found. Nothing
// can refer to a base chain.
func (r *tableReader) complete() bool {
	return !slices.ContainsFunc(r.chains, func(c *chainRead) bool { return c.Hook == "" && c.found < c.use })
}

// otherChains reads the table's other chains one by one until all references are
// found. (A dump of the whole table costs the kernel quadratic time.)
func (r *tableReader) otherChains(ctx context.Context) error {
	var names []string
	err := r.request(ctx, nftMessage(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, r.number), func(attrs []byte) error {
		var table, chain []byte
		a := attributes{rest: attrs}
		for a.next() {
			switch a.typ {
			case unix.NFTA_CHAIN_TABLE:
				table = cstring(a.data)
			case unix.NFTA_CHAIN_NAME:
				chain = cstring(a.data)
			}
		}
		if string(table) == r.table && r.byName(string(chain)) == nil {
			names = append(names, string(chain))
		}
		return a.err()
	})
	if err != nil {
		return r.fail("list chains", "", err)
	}
	for _, chain := range names {
		if err := r.rules(ctx, chain, nil); err != nil {
			return err
		}
		if r.complete() {
			return nil
		}
	}
	return nil
}

// maps finds the verdict maps that refer to the chains.
func (r *tableReader) maps(ctx context.Context) error {
	var names []string
	m := nftMessage(unix.NFT_MSG_GETSET, unix.NLM_F_DUMP, r.number).text(unix.NFTA_SET_TABLE, r.table)
	err := r.request(ctx, m, func(attrs []byte) error {
		var set []byte
		verdicts := false
		a := attributes{rest: attrs}
		for a.next() {
			switch a.typ {
			case unix.NFTA_SET_NAME:
				set = cstring(a.data)
			case unix.NFTA_SET_DATA_TYPE:
				verdicts = be32(a.data) == dataTypeVerdict
			}
		}
		if verdicts {
			names = append(names, string(set))
		}
		return a.err()
	})
	if err != nil {
		return r.fail("list maps", "", err)
	}
	for _, set := range names {
		if err := r.elements(ctx, set); err != nil {
			return err
		}
	}
	return nil
}

func (r *tableReader) elements(ctx context.Context, set string) error {
	m := nftMessage(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, r.number).
		text(unix.NFTA_SET_ELEM_LIST_TABLE, r.table).text(unix.NFTA_SET_ELEM_LIST_SET, set)
	err := r.request(ctx, m, func(attrs []byte) error {
		return eachElement(attrs, func(data []byte) error {
			target, err := dataVerdict(data)
			if c := r.byName(string(target)); err == nil && c != nil {
				c.found++
				if !slices.ContainsFunc(c.Maps, func(m unflannel.Map) bool { return m.Name == set }) {
					c.Maps = append(c.Maps, unflannel.Map{Name: set, Chain: r.lookups[set]})
				}
			}
			return err
		})
	})
	return r.fail("read elements of map "+set, "", err)
}

// fail says where an error occurred. The errors that mean "read again" stay bare
// enough for errors.Is.
func (r *tableReader) fail(op, chain string, err error) error {
	if err == nil {
		return nil
	}
	return &unflannel.Error{Op: op, Backend: name, Family: r.family, Table: r.table, Chain: chain, Err: err}
}
