package unflannel

import (
	"context"
	"net/netip"
)

// Connections is the kernel's table of connections. Package conntrack has one.
type Connections interface {
	// Rewritten returns the connections between addresses of the networks whose
	// source was rewritten to an address that is not its own.
	Rewritten(ctx context.Context, networks []netip.Prefix) ([]Connection, error)
	// Delete makes the kernel forget these, and returns those it forgot.
	Delete(ctx context.Context, networks []netip.Prefix) ([]Connection, error)
}

// Connection is a connection that was masqueraded. Ports are 0 where the protocol
// has none.
type Connection struct {
	Protocol    string         `json:"protocol"`
	Source      netip.AddrPort `json:"source"`
	Destination netip.AddrPort `json:"destination"`
	Rewritten   netip.AddrPort `json:"rewritten"` // what the destination sees as the source
}

// flush ends the connections that the rules of the report masqueraded, and those
// of the networks that were asked for.
func (r *Report) flush(ctx context.Context, o Options) error {
	networks := union(nil, o.Networks)
	for _, f := range r.Findings {
		if f.State != StateSuspected {
			networks = union(networks, f.Networks)
		}
	}
	if len(networks) == 0 {
		r.warn("no rule of Flannel's tells its network, so that no connection was looked for: give it by --network")
		return nil
	}
	var err error
	if r.DryRun {
		r.Connections, err = o.Connections.Rewritten(ctx, networks)
	} else {
		r.Connections, err = o.Connections.Delete(ctx, networks)
	}
	if r.Connections == nil {
		r.Connections = []Connection{}
	}
	return err
}
