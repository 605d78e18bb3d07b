package nft

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// kernel answers netlink messages in place of the kernel: as a recording has it,
// or as a fault has it. It fails the test on any message that must not be sent.
type kernel struct {
	t      *testing.T
	record *recording
	// answer decides on the answer to a request. Default: honest.
	answer func(*kernel, request) []reply
	// opening is the error of opening a socket, sending that of sending a batch.
	opening, sending error

	mu      sync.Mutex
	applied bool // the batch; from then on the answers are those of the second look
	batches int
	asked   map[string]bool // unnumbered
	shift   uint32          // of the generation, by which it differs from the recorded
}

// reply is what one call of recvmsg returns: a datagram or an error.
type reply struct {
	datagram []byte
	err      error
}

// request is a question or a batch.
type request struct {
	kind     string // see kinds; "batch"
	messages []header
	raw      []byte
}

// kinds are the questions by the kernel's numbers of them.
var kinds = map[uint16]string{
	unix.NFT_MSG_GETGEN:     "generation",
	unix.NFT_MSG_GETTABLE:   "table",
	unix.NFT_MSG_GETCHAIN:   "chain",
	unix.NFT_MSG_GETRULE:    "rules",
	unix.NFT_MSG_GETSET:     "sets",
	unix.NFT_MSG_GETSETELEM: "elements",
}

const messageOfNFTables = unix.NFNL_SUBSYS_NFTABLES << 8

func (k *kernel) backend() *Backend {
	return &Backend{kernel: func() (transport, error) {
		if k.opening != nil {
			return nil, k.opening
		}
		return &line{kernel: k}, nil
	}}
}

// line is one socket to the kernel.
type line struct {
	*kernel
	queue []reply
}

func (l *line) send(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range questionsOf(b) {
		r := l.parse(one)
		if r.kind == "batch" {
			l.batches++
			l.mustBeSafe(r)
			if l.sending != nil {
				return l.sending
			}
		}
		answer := l.answer
		if answer == nil {
			answer = (*kernel).honest
		}
		l.queue = append(l.queue, answer(l.kernel, r)...)
	}
	return nil
}

// questionsOf splits what is sent at once: a batch is one question, everything else
// one for each message.
func questionsOf(b []byte) (all [][]byte) {
	if h, _, _ := nextMessage(b); h.typ == unix.NFNL_MSG_BATCH_BEGIN {
		return [][]byte{b}
	}
	for len(b) > 0 {
		_, next, err := nextMessage(b)
		if err != nil {
			return append(all, b)
		}
		all, b = append(all, b[:len(b)-len(next)]), next
	}
	return all
}

func (l *line) receive(ctx context.Context, b []byte) (int, error) {
	if len(l.queue) == 0 {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	r := l.queue[0]
	l.queue = l.queue[1:]
	if r.err == errEndless {
		time.Sleep(time.Second) // for the clock of the test to go on
		l.queue = append(l.queue, reply{r.datagram, errEndless})
		r.err = nil
	}
	return copy(b, r.datagram), r.err
}

func (l *line) close() {}

// errEndless marks a datagram that comes again and again.
var errEndless = unix.ELOOP

func (k *kernel) parse(b []byte) request {
	k.t.Helper()
	r := request{raw: bytes.Clone(b)}
	for rest := r.raw; len(rest) > 0; {
		h, next, err := nextMessage(rest)
		if err != nil || len(h.body) < sizeofNfgenmsg {
			k.t.Fatalf("malformed message was sent: %x", b)
		}
		r.messages = append(r.messages, h)
		rest = next
	}
	first := r.messages[0]
	switch {
	case first.typ == unix.NFNL_MSG_BATCH_BEGIN:
		r.kind = "batch"
	case len(r.messages) == 1:
		r.kind = kinds[first.typ-messageOfNFTables]
		if r.kind == "chain" && first.flags&unix.NLM_F_DUMP != 0 {
			r.kind = "chains"
		}
	}
	if r.kind == "" {
		k.t.Fatalf("message that is neither a question nor a batch was sent: %x", b)
	}
	return r
}

// honest answers as the recording has it, and what is not in it as the kernel
// answers questions for what does not exist.
func (k *kernel) honest(r request) []reply {
	if k.asked == nil {
		k.asked = map[string]bool{}
	}
	k.asked[string(unnumbered(r.raw))] = true
	answers, known := k.record.before[string(unnumbered(r.raw))]
	if k.applied {
		answers, known = k.record.after[string(unnumbered(r.raw))]
	}
	switch {
	case r.kind == "batch":
		return k.apply(r)
	case !known && r.messages[0].flags&unix.NLM_F_DUMP != 0:
		return []reply{{datagram: done(r.messages[0].seq, 0)}}
	case !known:
		return []reply{{datagram: refuse(r.messages[0], unix.ENOENT)}}
	}
	var replies []reply
	for _, a := range answers {
		replies = append(replies, reply{datagram: numbered(a, r.messages[0].seq)})
	}
	if r.kind == "generation" {
		g := attribute(replies[0].datagram, unix.NFTA_GEN_ID)
		binary.BigEndian.PutUint32(g, binary.BigEndian.Uint32(g)+k.shift)
	}
	return replies
}

// apply takes the batch if it is of the generation that is. What comes of another
// batch than the recorded one is not known: nothing, here.
func (k *kernel) apply(r request) []reply {
	last := r.messages[len(r.messages)-2]
	if be32(find(r.messages[0].body[sizeofNfgenmsg:], unix.NFNL_BATCH_GENID)) != k.record.generation+k.shift {
		return []reply{{datagram: refuse(r.messages[0], unix.ERESTART)}}
	}
	batch := unnumbered(r.raw)
	binary.BigEndian.PutUint32(attribute(batch, unix.NFNL_BATCH_GENID), k.record.generation)
	k.applied = bytes.Equal(batch, k.record.batch)
	return []reply{{datagram: acknowledge(last)}}
}

// mustBeSafe fails the test on a batch that could remove more than it should.
func (k *kernel) mustBeSafe(r request) {
	k.t.Helper()
	first, last := r.messages[0], r.messages[len(r.messages)-1]
	if g := be32(find(first.body[sizeofNfgenmsg:], unix.NFNL_BATCH_GENID)); g == 0 {
		k.t.Errorf("batch without a generation was sent")
	}
	if last.typ != unix.NFNL_MSG_BATCH_END || len(r.messages) < 3 {
		k.t.Errorf("batch without an end, or empty, was sent")
	}
	for _, m := range r.messages[1 : len(r.messages)-1] {
		attrs := m.body[sizeofNfgenmsg:]
		var ok bool
		switch m.typ {
		case messageOfNFTables | unix.NFT_MSG_DELRULE:
			chain := string(cstring(find(attrs, unix.NFTA_RULE_CHAIN)))
			own := slices.Contains([]string{"FLANNEL-POSTRTG", "FLANNEL-FWD", "FLANNEL"}, chain)
			handle := find(attrs, unix.NFTA_RULE_HANDLE)
			ok = len(find(attrs, unix.NFTA_RULE_TABLE)) > 1 && len(chain) > 0 && (be64(handle) != 0 || own && handle == nil)
		case messageOfNFTables | unix.NFT_MSG_DELCHAIN:
			ok = len(find(attrs, unix.NFTA_CHAIN_TABLE)) > 1 && be64(find(attrs, unix.NFTA_CHAIN_HANDLE)) != 0
		case messageOfNFTables | unix.NFT_MSG_DELTABLE:
			ok = be64(find(attrs, nftaTableHandle)) != 0
		}
		if family := m.body[0]; !ok || family != unix.NFPROTO_IPV4 && family != unix.NFPROTO_IPV6 {
			k.t.Errorf("unsafe message of type %#x was sent: %x", m.typ, m.body)
		}
	}
}

// find is the data of the first attribute of a type.
func find(attrs []byte, typ uint16) []byte {
	for a := (attributes{rest: attrs}); a.next(); {
		if a.typ == typ {
			return a.data
		}
	}
	return nil
}

// attribute is the data of an attribute of a datagram's first message.
func attribute(datagram []byte, typ uint16) []byte {
	h, _, err := nextMessage(datagram)
	if err != nil {
		return nil
	}
	return find(h.body[sizeofNfgenmsg:], typ)
}

// The answers that are netlink's own.

func answer(typ uint16, flags uint16, seq uint32, body []byte) []byte {
	m := make(message, sizeofNlmsghdr, sizeofNlmsghdr+len(body))
	binary.NativeEndian.PutUint16(m[4:], typ)
	binary.NativeEndian.PutUint16(m[6:], flags)
	return append(m, body...).number(seq)
}

func status(errno unix.Errno) []byte {
	return binary.NativeEndian.AppendUint32(nil, uint32(-int32(errno)))
}

// refuse answers a request with an errno, followed by the request's header.
func refuse(to header, errno unix.Errno) []byte {
	request := answer(to.typ, to.flags, to.seq, to.body)
	return answer(unix.NLMSG_ERROR, unix.NLM_F_CAPPED, to.seq, append(status(errno), request[:sizeofNlmsghdr]...))
}

func acknowledge(to header) []byte { return refuse(to, 0) }

// explain answers like refuse, with the whole request and the kernel's words.
func explain(to header, errno unix.Errno, words string) []byte {
	request := message(answer(to.typ, to.flags, to.seq, to.body))
	return answer(unix.NLMSG_ERROR, unix.NLM_F_ACK_TLVS, to.seq,
		append(status(errno), request.text(unix.NLMSGERR_ATTR_MSG, words)...))
}

// done ends a dump.
func done(seq uint32, errno unix.Errno) []byte {
	return answer(unix.NLMSG_DONE, unix.NLM_F_MULTI, seq, status(errno))
}

// eachMessage calls f with each message of a datagram, whole, to be changed in place.
func eachMessage(datagram []byte, f func(m []byte)) {
	for b := datagram; len(b) > 0; {
		h, rest, err := nextMessage(b)
		if err != nil {
			return
		}
		f(b[:sizeofNlmsghdr+len(h.body)])
		b = rest
	}
}

func seqOf(m []byte) uint32 { return binary.NativeEndian.Uint32(m[8:]) }

// kindsOf are the kinds in a text with spaces.
func kindsOf(text string) func(string) bool {
	return func(kind string) bool { return slices.Contains(strings.Fields(text), kind) }
}
