package unflannel_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/netnstest"
)

// TestSteadyStream: two pods whose traffic is none of Flannel's talk through a
// node while it is cleaned, again and again. No packet is lost and every new
// connection comes about. FORWARD's policy is DROP and what admits the pods comes
// last: a moment without it would show.
func TestSteadyStream(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ family, from, to string }{
		{"ip", "198.51.100.1", "198.51.100.2"},
		{"ip6", "2001:db8:1::1", "2001:db8:1::2"},
	} {
		for _, backend := range []string{"nft", "legacy"} {
			t.Run(tt.family+"/"+backend, func(t *testing.T) {
				t.Parallel()
				n := node{netnstest.NewFault(t, tt.family).Sender, t}
				from, to := netip.MustParseAddr(tt.from), netip.MustParseAddr(tt.to)
				sender, receiver := netnstest.NewPod(n.NS, "cali0from", from), netnstest.NewPod(n.NS, "cali0to", to)
				receiver.Serve(to, netnstest.OpenPort)
				n.loadKubeProxy(backend, tt.family, from, to)
				warm(t, sender, to)

				s := newSteady(t, sender, receiver, from, to)
				save := inserted(leftovers(t, "flannel-v0.20.2-iptables"+ofFamily[tt.family]))
				for round := range 10 {
					n.Append(backend, tt.family, save)
					report := n.clean(unflannel.Options{})
					if report.Outcome != unflannel.NothingLeft || len(report.Findings) == 0 {
						t.Errorf("round %d: outcome %s with %d findings", round, report.Outcome, len(report.Findings))
					}
					s.advance(100, 5)
				}
				s.stop()
			})
		}
	}
}

// loadKubeProxy loads some thousand rules in the manner of kube-proxy, which
// forward between two addresses and nothing else. It does so in parts: a user
// namespace's root may not have netlink messages of any length.
func (n node) loadKubeProxy(backend, family string, a, b netip.Addr) {
	n.t.Helper()
	n.Restore(backend, family, fmt.Sprintf(`*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
-A FORWARD -j KUBE-SERVICES
-A FORWARD -s %[1]s -d %[2]s -j ACCEPT
-A FORWARD -s %[2]s -d %[1]s -j ACCEPT
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
-A PREROUTING -j KUBE-SERVICES
COMMIT
`, a, b))
	service, pod := "10.96.%d.%d", "10.244.%d.%d:80"
	if a.Is6() {
		service, pod = "fd00:10:96::%x:%x", "[fd00:10:244::%x:%x]:80"
	}
	for part := range 20 {
		var filter, chains, rules strings.Builder
		for i := range 50 {
			id := fmt.Sprintf("%d-%d", part, i)
			service, pod := fmt.Sprintf(service, part, i+1), fmt.Sprintf(pod, part, i+1)
			fmt.Fprintf(&filter, "-A KUBE-SERVICES -d %s -p tcp -m tcp --dport 443 -j DROP\n", service)
			fmt.Fprintf(&chains, ":KUBE-SVC-%[1]s - [0:0]\n:KUBE-SEP-%[1]s - [0:0]\n", id)
			fmt.Fprintf(&rules, `-A KUBE-SERVICES -d %[2]s -p tcp -m tcp --dport 80 -j KUBE-SVC-%[1]s
-A KUBE-SVC-%[1]s -m comment --comment "ns/service-%[1]s" -j KUBE-SEP-%[1]s
-A KUBE-SEP-%[1]s -p tcp -m tcp -j DNAT --to-destination %[3]s
`, id, service, pod)
		}
		n.Append(backend, family, fmt.Sprintf("*filter\n%sCOMMIT\n*nat\n%s%sCOMMIT\n", &filter, &chains, &rules))
	}
}

// inserted makes saved leftovers what a flanneld does on a node in use: the jumps
// are put first, and nothing is said of the built-in chains' policies.
func inserted(save string) string {
	var b strings.Builder
	for line := range strings.Lines(save) {
		if strings.HasPrefix(line, ":") && !strings.HasPrefix(line, ":FLANNEL-") {
			continue
		}
		for _, chain := range []string{"FORWARD", "POSTROUTING"} {
			if rest, ok := strings.CutPrefix(line, "-A "+chain+" "); ok {
				line = "-I " + chain + " 1 " + rest
			}
		}
		b.WriteString(line)
	}
	return b.String()
}

// warm connects once: neighbours are resolved then and links are up.
func warm(t *testing.T, from *netnstest.NS, to netip.Addr) {
	t.Helper()
	var err error
	for range 5 {
		if _, err = from.Dial(t.Context(), to, netnstest.OpenPort); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// steady is a stream: numbered UDP packets and TCP connections, until it is
// stopped.
type steady struct {
	t         *testing.T
	quit      chan struct{}
	end       func() // once: stops sending, waits for the rest, stops receiving
	senders   sync.WaitGroup
	receivers sync.WaitGroup
	receiving net.PacketConn

	sent, got, connected atomic.Uint64
	last                 atomic.Bool // no packet comes after those that are counted as sent
}

// window is how many packets may be under way. It is well below what a socket's
// buffer takes, so that a receiver that gets no processor time loses nothing.
const window = 100

func newSteady(t *testing.T, sender, receiver *netnstest.NS, from, to netip.Addr) *steady {
	t.Helper()
	s := &steady{t: t, quit: make(chan struct{})}
	var sending net.Conn
	var err error
	receiver.Do(func() { s.receiving, err = net.ListenPacket("udp", netip.AddrPortFrom(to, 0).String()) })
	if err != nil {
		t.Fatal(err)
	}
	sender.Do(func() { sending, err = net.Dial("udp", s.receiving.LocalAddr().String()) })
	if err != nil {
		t.Fatal(err)
	}
	s.receivers.Go(s.receive)
	s.senders.Go(func() {
		defer sending.Close()
		s.send(sending)
	})
	s.senders.Go(func() {
		s.every(2*time.Millisecond, func() {
			if seen, err := sender.Dial(t.Context(), to, netnstest.OpenPort); err != nil || seen != from {
				t.Errorf("connection %d: seen from %v, error: %v; want %v", s.connected.Load(), seen, err, from)
			}
			s.connected.Add(1)
		})
	})
	s.end = sync.OnceFunc(func() {
		close(s.quit)
		s.senders.Wait()
		s.receiving.SetReadDeadline(time.Now().Add(10 * time.Second)) // for lost packets
		s.receivers.Wait()
		s.receiving.Close()
	})
	t.Cleanup(s.end)
	return s
}

// every calls f until the stream is stopped, one call at a time.
func (s *steady) every(d time.Duration, f func()) {
	ticker := time.NewTicker(d)
	defer ticker.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-ticker.C:
			f()
		}
	}
}

func (s *steady) send(c net.Conn) {
	s.every(500*time.Microsecond, func() {
		for range 4 {
			if s.sent.Load()-s.got.Load() < window {
				s.write(c, s.sent.Add(1)-1)
			}
		}
	})
	number := s.sent.Add(1) - 1
	s.last.Store(true)
	s.write(c, number)
}

func (s *steady) write(c net.Conn, number uint64) {
	if _, err := c.Write(binary.BigEndian.AppendUint64(nil, number)); err != nil {
		s.t.Errorf("send packet %d: %v", number, err)
	}
}

// receive counts the packets, each number once, until all are there.
func (s *steady) receive() {
	packet := make([]byte, 8)
	seen := map[uint64]bool{}
	for !s.last.Load() || s.got.Load() < s.sent.Load() {
		if n, _, err := s.receiving.ReadFrom(packet); err != nil || n != len(packet) {
			break
		}
		if number := binary.BigEndian.Uint64(packet); !seen[number] {
			seen[number] = true
			s.got.Add(1)
		}
	}
	for number := range s.sent.Load() {
		if !seen[number] {
			s.t.Errorf("packet %d of %d is lost", number, s.sent.Load())
		}
	}
}

// advance waits until that much more of the stream has come, so that every round
// of a test has some before and after it. Where packets are lost it does not wait
// for ever.
func (s *steady) advance(packets, connections uint64) {
	packets += s.got.Load()
	connections += s.connected.Load()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); <-ticker.C {
		if s.got.Load() >= packets && s.connected.Load() >= connections {
			return
		}
	}
	s.t.Errorf("the stream stands still at packet %d, connection %d", s.got.Load(), s.connected.Load())
}

// stop ends the stream, and fails the test if anything of it was lost.
func (s *steady) stop() {
	s.end()
	s.t.Logf("%d packets, %d connections", s.sent.Load(), s.connected.Load())
}
