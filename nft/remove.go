package nft

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel"
)

// operation is one message of a batch, and what to say of it when it is refused.
type operation struct {
	message
	op, chain string
	table     *unflannel.Table
}

// Remove applies all removals in one batch that the kernel takes only at the
// snapshot's generation: all or nothing, and nothing that was not looked at.
func (b *Backend) Remove(ctx context.Context, s *unflannel.Snapshot, removals []unflannel.Removal) error {
	operations := plan(removals)
	if len(operations) == 0 {
		return nil
	}
	t, err := b.open()
	if err != nil {
		return &unflannel.Error{Op: "remove leftovers", Backend: name, Err: err, Advice: advice(err)}
	}
	defer t.close()
	messages := make([]message, len(operations))
	for i, o := range operations {
		messages[i] = o.message
	}
	err = newConn(t).commit(ctx, s.Generation, messages)
	b.log().Debug("committed", "generation", s.Generation, "messages", len(messages), "error", err)
	return removeError(operations, err)
}

// plan orders the removals: a chain can be deleted only when nothing refers to it
// any more, so that all rules of all tables go first.
func plan(removals []unflannel.Removal) []operation {
	var rules, chains, tables []operation
	for _, r := range removals {
		family := families[r.Table.Family]
		flush := func(chain string) message { // a handle more, and only that rule goes
			return nftMessage(unix.NFT_MSG_DELRULE, 0, family).
				text(unix.NFTA_RULE_TABLE, r.Table.Name).text(unix.NFTA_RULE_CHAIN, chain)
		}
		for _, rule := range r.Rules {
			m := flush(rule.Chain).uint64(unix.NFTA_RULE_HANDLE, rule.Handle)
			rules = append(rules, operation{m, "delete rule of chain", rule.Chain, r.Table})
		}
		for _, c := range r.Flush {
			rules = append(rules, operation{flush(c.Name), "delete the rules of chain", c.Name, r.Table})
		}
		for _, c := range r.Drop {
			if len(c.Rules) > 0 {
				rules = append(rules, operation{flush(c.Name), "delete the rules of chain", c.Name, r.Table})
			}
			// By handle, so that it cannot be another chain of the same name.
			m := nftMessage(unix.NFT_MSG_DELCHAIN, 0, family).
				text(unix.NFTA_CHAIN_TABLE, r.Table.Name).uint64(unix.NFTA_CHAIN_HANDLE, c.Handle)
			chains = append(chains, operation{m, "delete chain", c.Name, r.Table})
		}
		if r.Whole {
			m := nftMessage(unix.NFT_MSG_DELTABLE, 0, family).uint64(nftaTableHandle, r.Table.Handle)
			tables = append(tables, operation{m, "delete table", "", r.Table})
		}
	}
	return slices.Concat(rules, chains, tables)
}

// removeError names the operation that the kernel refused. What another writer can
// cause becomes a conflict: ERESTART says that the generation is no longer the
// snapshot's, ENOENT and EBUSY the same of a single object. Without an answer, or
// with ENOBUFS in its place, whether the batch was applied is open.
func removeError(operations []operation, err error) error {
	if err == nil {
		return nil
	}
	e := &unflannel.Error{Op: "remove leftovers", Backend: name, Err: err, Advice: advice(err)}
	var r *refusal
	if errors.As(err, &r) && r.seq < uint32(len(operations)) {
		o := operations[r.seq]
		e.Op, e.Family, e.Table, e.Chain = o.op, o.table.Family, o.table.Name, o.chain
	}
	for _, conflict := range []error{errUnanswered, unix.ERESTART, unix.ENOENT, unix.EBUSY, unix.ENOBUFS, unix.EINTR} {
		if errors.Is(err, conflict) {
			e.Err = fmt.Errorf("%w: %w", unflannel.ErrConflict, err)
		}
	}
	return e
}
