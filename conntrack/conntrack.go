// Package conntrack ends the connections that Flannel's rules masqueraded.
//
// The kernel decides on the translation of a connection once, with its first
// packet. A connection that was masqueraded keeps the wrong source address for as
// long as its entry lives, whatever becomes of the rules: a stream of UDP packets
// for ever. Without its entry, the next packet is looked at anew.
package conntrack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/ti-mo/conntrack"
	"github.com/ti-mo/netfilter"
	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel"
)

const name = "conntrack"

// Table is the kernel's connection tracking table of the network namespace of the
// thread that calls its methods. It implements [unflannel.Connections] and needs
// CAP_NET_ADMIN.
type Table struct {
	Logger *slog.Logger // what is deleted, at level Debug; nil for nowhere
}

// New returns the connection tracking table.
func New() *Table { return &Table{} }

func (t *Table) log() *slog.Logger {
	if t.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return t.Logger
}

// Rewritten returns the connections between addresses of the networks whose source
// was translated to another address. Connections whose destination was translated
// too are kube-proxy's, and not among them: without its entry, such a connection
// could go on to another pod.
func (t *Table) Rewritten(ctx context.Context, networks []netip.Prefix) ([]unflannel.Connection, error) {
	var found []unflannel.Connection
	err := t.each(ctx, networks, func(_ *conntrack.Conn, _ conntrack.Flow, c unflannel.Connection) error {
		found = append(found, c)
		return nil
	})
	return found, err
}

// Delete deletes the entries of these connections and returns those it deleted. A
// connection that ended by itself is not among them.
func (t *Table) Delete(ctx context.Context, networks []netip.Prefix) ([]unflannel.Connection, error) {
	var deleted []unflannel.Connection
	err := t.each(ctx, networks, func(conn *conntrack.Conn, f conntrack.Flow, c unflannel.Connection) error {
		// What identifies the entry, and nothing else.
		err := conn.Delete(conntrack.Flow{TupleOrig: f.TupleOrig, TupleReply: f.TupleReply, Zone: f.Zone})
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return &unflannel.Error{Op: fmt.Sprintf("delete connection %s from %s to %s", c.Protocol, c.Source, c.Destination), Backend: name, Err: err}
		}
		t.log().Debug("deleted connection", "protocol", c.Protocol, "source", c.Source, "destination", c.Destination, "rewritten", c.Rewritten)
		deleted = append(deleted, c)
		return nil
	})
	return deleted, err
}

// each calls f with each connection that Rewritten returns.
func (t *Table) each(ctx context.Context, networks []netip.Prefix, f func(*conntrack.Conn, conntrack.Flow, unflannel.Connection) error) error {
	conn, err := conntrack.Dial(&netlink.Config{MessageBufferSize: 32 << 10})
	if err != nil {
		return readError(ctx, err)
	}
	defer conn.Close()
	// The library takes no context: an ended one closes the socket under it.
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()

	for _, family := range []netfilter.ProtoFamily{netfilter.ProtoIPv4, netfilter.ProtoIPv6} {
		if !slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Addr().Is4() == (family == netfilter.ProtoIPv4) }) {
			continue
		}
		// Kernels before 5.15 ignore the status and give all.
		filter := conntrack.NewFilter().Family(family).Status(conntrack.StatusSrcNAT)
		flows, err := conn.DumpFilter(filter, nil)
		if err != nil {
			return readError(ctx, err)
		}
		for _, flow := range flows {
			if c, ok := rewritten(flow, networks); ok {
				if err := f(conn, flow, c); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// rewritten tells whether an entry is one that [Table.Rewritten] returns.
func rewritten(f conntrack.Flow, networks []netip.Prefix) (unflannel.Connection, bool) {
	original, reply := f.TupleOrig, f.TupleReply
	inside := func(a netip.Addr) bool {
		return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	c := unflannel.Connection{
		Protocol:    protocol(original.Proto.Protocol),
		Source:      netip.AddrPortFrom(original.IP.SourceAddress, original.Proto.SourcePort),
		Destination: netip.AddrPortFrom(original.IP.DestinationAddress, original.Proto.DestinationPort),
		// Answers go to the address that the source was rewritten to.
		Rewritten: netip.AddrPortFrom(reply.IP.DestinationAddress, reply.Proto.DestinationPort),
	}
	return c, inside(c.Source.Addr()) && inside(c.Destination.Addr()) &&
		c.Rewritten.Addr() != c.Source.Addr() && reply.IP.SourceAddress == c.Destination.Addr()
}

func protocol(n uint8) string {
	names := map[uint8]string{1: "icmp", 6: "tcp", 17: "udp", 58: "icmpv6", 132: "sctp"}
	if name, ok := names[n]; ok {
		return name
	}
	return fmt.Sprintf("protocol %d", n)
}

func readError(ctx context.Context, err error) error {
	e := &unflannel.Error{Op: "read the connection tracking table", Backend: name, Err: err}
	switch {
	case ctx.Err() != nil:
		e.Err = ctx.Err()
	case errors.Is(err, os.ErrPermission):
		e.Advice = "this needs the capability CAP_NET_ADMIN in this network namespace"
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPROTONOSUPPORT):
		// nfnetlink has no such subsystem.
		e.Advice = "this kernel cannot show or change connections (it lacks nf_conntrack_netlink): " +
			"connections that were masqueraded keep the address; restart their pods"
	}
	return e
}
