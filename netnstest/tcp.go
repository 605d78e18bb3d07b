package netnstest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

// dialTimeout is how long a connection may take. A packet that is lost costs a
// second, until the kernel sends it again.
const dialTimeout = 1500 * time.Millisecond

// Serve answers on TCP ports inside the namespace, until the test's end. To each
// connection it says from which address it sees it, as a server's log would.
func (ns *NS) Serve(address netip.Addr, ports ...uint16) {
	ns.t.Helper()
	for _, port := range ports {
		var l net.Listener
		var err error
		// The socket is made by this call and so on this thread.
		ns.Do(func() { l, err = net.Listen("tcp", netip.AddrPortFrom(address, port).String()) })
		if err != nil {
			ns.t.Fatalf("serve: %v", err)
		}
		ns.t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					c.SetDeadline(time.Now().Add(dialTimeout))
					from := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
					if _, err := io.WriteString(c, from.String()); err != nil {
						return
					}
				}()
			}
		}()
	}
}

// Dial connects to a server of [NS.Serve] from inside the namespace, and returns
// the address that the server saw. It gives up after 1.5 seconds.
func (ns *NS) Dial(ctx context.Context, address netip.Addr, port uint16) (seen netip.Addr, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var c net.Conn
	ns.Do(func() {
		var d net.Dialer
		// A literal address leaves nothing to resolve and nothing to race for, so
		// that the socket is made on this goroutine, whose thread is in place.
		c, err = d.DialContext(ctx, "tcp", netip.AddrPortFrom(address, port).String())
	})
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	c.SetDeadline(deadline)
	b, err := io.ReadAll(io.LimitReader(c, 64))
	if err != nil {
		return netip.Addr{}, err
	}
	if seen, err = netip.ParseAddr(string(b)); err != nil {
		return netip.Addr{}, fmt.Errorf("read the server's answer: %w", err)
	}
	return seen, nil
}
