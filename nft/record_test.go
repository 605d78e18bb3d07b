package nft

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/netnstest"
)

var update = flag.Bool("update", false, "record the kernel's answers in testdata anew")

// recording is what was said between a run of Clean and the kernel, by request.
// Sequence numbers are counted from that of the request's first message.
type recording struct {
	before, after map[string][][]byte // the batch
	batch         []byte
	generation    uint32
}

// recorded are the rulesets whose answers are in testdata.
var recorded = []struct {
	name    string
	load    func(*testing.T, *netnstest.NS)
	outcome unflannel.Outcome // of Clean
}{
	{"chains", func(t *testing.T, ns *netnstest.NS) {
		ns.Restore("nft", "ip", ruleset(t, "flannel-v0.22.3-iptables.v4.save"))
		ns.Restore("nft", "ip6", ruleset(t, "flannel-v0.22.3-iptables.v6.save"))
	}, unflannel.NothingLeft},
	{"tables", func(t *testing.T, ns *netnstest.NS) {
		ns.LoadNFT(ruleset(t, "flannel-v0.28.9-nftables.nft"))
	}, unflannel.NothingLeft},
	{"maps", func(_ *testing.T, ns *netnstest.NS) {
		ns.LoadNFT(`
table ip filter {
	map chosen { type ipv4_addr : verdict; elements = { 192.0.2.1 : jump FLANNEL-FWD, 192.0.2.2 : goto OTHER, 192.0.2.3 : drop }; }
	set plain { type ipv4_addr; elements = { 192.0.2.9 }; }
	chain OTHER { ip saddr @plain jump FLANNEL-FWD; }
	chain FLANNEL-FWD { ip saddr 10.244.0.0/16 counter accept; }
	chain FORWARD {
		type filter hook forward priority 0; policy accept;
		ip daddr vmap { 192.0.2.4 : jump FLANNEL-FWD, 192.0.2.5 : accept }
		ip daddr vmap @chosen
		counter jump FLANNEL-FWD comment "flanneld forward"
	}
}`)
	}, unflannel.Left},
	{"rules", func(_ *testing.T, ns *netnstest.NS) {
		filter, _ := saveOf("filter", "FORWARD", iptablesRules[unflannel.IP]["filter"]+commonRules["filter"])
		nat, _ := saveOf("nat", "POSTROUTING", commonRules["nat"])
		ns.Restore("nft", "ip", filter+nat)
		var native strings.Builder
		for _, r := range slices.Concat(nativeRules[unflannel.IP6], nativeCommonRules) {
			native.WriteString(r[0] + "\n")
		}
		ns.LoadNFT("table ip6 nat {\nchain OTHER { }\nchain POSTROUTING {\n" + native.String() + "}\n}\n")
	}, unflannel.NothingLeft},
	{"nothing", func(*testing.T, *netnstest.NS) {}, unflannel.NothingLeft},
}

func ruleset(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../testdata/rulesets/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRecorded runs check and clean on the recorded answers. With -update it
// records them.
func TestRecorded(t *testing.T) {
	t.Parallel()
	for _, r := range recorded {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			if *update {
				ns := netnstest.New(t)
				r.load(t, ns)
				record(t, ns, r.name)
			}
			rec := readRecording(t, r.name)
			k := &kernel{t: t, record: rec}
			report, err := unflannel.Clean(t.Context(), unflannel.Options{}, k.backend())
			if err != nil {
				t.Fatal(err)
			}
			if want := rec.batch != nil; k.applied != want || want != (k.batches == 1) {
				t.Errorf("%d batches were sent, the recorded one: %v, want %v", k.batches, k.applied, want)
			}
			if report.Outcome != r.outcome {
				t.Errorf("outcome is %s, want %s: %s", report.Outcome, r.outcome, report.Summary)
			}
			if report.Outcome == unflannel.Left && len(report.Findings) == 0 {
				t.Error("no findings")
			}
			for _, requests := range []map[string][][]byte{rec.before, rec.after} {
				for r := range requests {
					if !k.asked[r] {
						t.Errorf("the recording is of another time (make it anew with -update): nobody sends %x", r)
					}
				}
			}
		})
	}
}

// recorder passes on what is said and writes it down, each question before its answer.
type recorder struct {
	transport
	w       *bytes.Buffer
	waiting [][]byte // questions that have no answer yet
	base    uint32   // the sequence number of the last that has
}

func (r *recorder) send(b []byte) error {
	r.waiting = append(r.waiting, questionsOf(bytes.Clone(b))...)
	return r.transport.send(b)
}

func (r *recorder) receive(ctx context.Context, b []byte) (int, error) {
	n, err := r.transport.receive(ctx, b)
	if err != nil {
		return n, err
	}
	if len(r.waiting) > 0 && seqOf(b) >= seqOf(r.waiting[0]) {
		r.base = seqOf(r.waiting[0])
		fmt.Fprintf(r.w, "> %x\n", unnumbered(r.waiting[0]))
		r.waiting = r.waiting[1:]
	}
	fmt.Fprintf(r.w, "< %x\n", numbered(b[:n], -r.base))
	return n, nil
}

// record runs Clean in the namespace and writes down what is said.
func record(t *testing.T, ns *netnstest.NS, name string) {
	t.Helper()
	if !littleEndian() {
		t.Skip("the recordings are little-endian, this machine is not")
	}
	var w bytes.Buffer
	b := &Backend{kernel: func() (transport, error) {
		s, err := openSocket()
		if err != nil {
			return nil, err
		}
		return &recorder{transport: s, w: &w}, nil
	}}
	var err error
	ns.Do(func() { _, err = unflannel.Clean(t.Context(), unflannel.Options{}, b) })
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("testdata/"+name+".hex", w.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
}

func littleEndian() bool { return binary.NativeEndian.Uint16([]byte{1, 0}) == 1 }

// readRecording reads a file of lines: > and a request, < and each datagram of its answer.
func readRecording(t testing.TB, name string) *recording {
	t.Helper()
	if !littleEndian() {
		t.Skip("the recordings are little-endian, this machine is not")
	}
	f, err := os.Open("testdata/" + name + ".hex")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := &recording{before: map[string][][]byte{}, after: map[string][][]byte{}}
	now, request := r.before, ""
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		sign, text, _ := strings.Cut(lines.Text(), " ")
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatalf("%s: %v", f.Name(), err)
		}
		switch sign {
		case ">":
			request = string(b)
			now[request] = nil
			if h, _, _ := nextMessage(b); h.typ == unix.NFNL_MSG_BATCH_BEGIN {
				r.batch, now = b, r.after
			}
		case "<":
			now[request] = append(now[request], b)
			if g := attribute(b, unix.NFTA_GEN_ID); r.generation == 0 && g != nil {
				r.generation = be32(g)
			}
		}
	}
	if lines.Err() != nil || r.generation == 0 {
		t.Fatalf("%s: no generation in it: %v", f.Name(), lines.Err())
	}
	return r
}

// unnumbered is a copy of messages with sequence numbers that begin at 0.
func unnumbered(b []byte) []byte {
	h, _, _ := nextMessage(b)
	return numbered(b, -h.seq)
}

// numbered is a copy of messages with a number added to all sequence numbers, and
// without the socket's address.
func numbered(b []byte, add uint32) []byte {
	b = bytes.Clone(b)
	eachMessage(b, func(m []byte) {
		binary.NativeEndian.PutUint32(m[8:], seqOf(m)+add)
		binary.NativeEndian.PutUint32(m[12:], 0)
	})
	return b
}
