package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// conn asks the kernel and understands its answers.
type conn struct {
	transport
	buf      []byte
	seq      uint32
	received int // bytes
}

const (
	// dumpBuffer is the size of the datagrams that a dump is given in: the kernel
	// makes them as large as the buffer of the read, up to 32 KiB. Each datagram
	// of a rule dump begins with a walk from the start, so that small ones cost
	// quadratic time.
	dumpBuffer = 32 << 10
)

// errInterrupted says that the ruleset changed during a dump, so that the dump
// may lack something.
var errInterrupted = errors.New("the ruleset changed while it was read")

// errUnanswered says that it is unknown what became of a batch that was sent.
var errUnanswered = errors.New("no answer to the batch that can be understood")

// refusal is an errno from the kernel, with the kernel's words if it had any.
type refusal struct {
	seq   uint32
	errno unix.Errno
	words string
}

func (r *refusal) Error() string {
	if r.words != "" {
		return fmt.Sprintf("%v (%s)", r.errno, r.words)
	}
	return r.errno.Error()
}

func (r *refusal) Unwrap() error { return r.errno }

func newConn(t transport) *conn {
	return &conn{transport: t, buf: make([]byte, dumpBuffer)}
}

// request sends one message and hands each answer to f until the answer is
// complete: after one message, or after the end of a dump.
func (c *conn) request(ctx context.Context, m message, f func(attrs []byte) error) error {
	c.seq++
	if err := c.send(m.number(c.seq)); err != nil {
		return err
	}
	return c.answer(ctx, c.seq, m, f)
}

// question asks for one object.
type question struct {
	message
	f    func(attrs []byte) error // gets the answer
	fail func(error) error        // says of an error where it was
}

// askAll sends all questions at once, which the kernel answers one after the other.
// What does not exist is passed over.
func (c *conn) askAll(ctx context.Context, questions []question) error {
	var all []byte
	first := c.seq + 1
	for _, q := range questions {
		c.seq++
		all = append(all, q.number(c.seq)...)
	}
	if err := c.send(all); err != nil {
		return err
	}
	for i, q := range questions {
		if err := c.answer(ctx, first+uint32(i), q.message, q.f); err != nil && !errors.Is(err, unix.ENOENT) {
			return q.fail(err)
		}
	}
	return nil
}

// answer hands each answer to the message of this sequence number to f.
func (c *conn) answer(ctx context.Context, seq uint32, m message, f func(attrs []byte) error) error {
	dump := binary.NativeEndian.Uint16(m[6:])&unix.NLM_F_DUMP == unix.NLM_F_DUMP
	want := binary.NativeEndian.Uint16(m[4:]) - 1 // each NEW comes before its GET
	interrupted := false
	return c.messages(ctx, func(h header) (last bool, err error) {
		if h.seq != seq {
			return false, nil // the rest of answers that an error cut short
		}
		interrupted = interrupted || h.flags&unix.NLM_F_DUMP_INTR != 0
		if h.typ == unix.NLMSG_ERROR {
			if err := errorOf(h); err != nil {
				return true, err
			}
		}
		if dump && h.typ == unix.NLMSG_DONE {
			err := doneError(h)
			if err == nil && interrupted {
				err = errInterrupted
			}
			return true, err
		}
		if h.typ != want || len(h.body) < sizeofNfgenmsg {
			return true, errMalformed
		}
		return !dump, f(h.body[sizeofNfgenmsg:])
	})
}

// messages hands each message that comes to f, until f says that it was the last or
// fails.
func (c *conn) messages(ctx context.Context, f func(header) (last bool, err error)) error {
	for {
		n, err := c.receive(ctx, c.buf)
		if err != nil {
			return err
		}
		c.received += n
		for b := c.buf[:n]; len(b) > 0; {
			var h header
			if h, b, err = nextMessage(b); err != nil {
				return err
			}
			if last, err := f(h); last || err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err // messages without end
		}
	}
}

// commit sends a batch, which the kernel applies whole or not at all, and only if
// the ruleset's generation is still the given one. Its last message asks for an
// acknowledgement, so that there is an answer in any case. (Acknowledgements of
// the messages that frame the batch are not sent by all kernels; one for each
// message could overflow the socket.)
func (c *conn) commit(ctx context.Context, generation uint32, messages []message) error {
	begin := newMessage(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES).
		uint32(unix.NFNL_BATCH_GENID, generation)
	end := newMessage(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	last := messages[len(messages)-1]
	binary.NativeEndian.PutUint16(last[6:], binary.NativeEndian.Uint16(last[6:])|unix.NLM_F_ACK)

	c.seq++
	first := c.seq
	batch := append([]byte(nil), begin.number(c.seq)...)
	for _, m := range messages {
		c.seq++
		batch = append(batch, m.number(c.seq)...)
	}
	acked := c.seq
	c.seq++
	batch = append(batch, end.number(c.seq)...)
	if err := c.send(batch); err != nil {
		return err
	}
	err := c.acknowledgement(ctx, first, acked)
	if r := (*refusal)(nil); err != nil && !errors.As(err, &r) {
		return fmt.Errorf("%w: %w", errUnanswered, err)
	}
	return err
}

// acknowledgement reads the answers to a batch whose first message and whose last
// that is answered have the given sequence numbers.
func (c *conn) acknowledgement(ctx context.Context, first, last uint32) error {
	return c.messages(ctx, func(h header) (bool, error) {
		if h.typ != unix.NLMSG_ERROR || h.seq < first || h.seq > last {
			return false, nil
		}
		err := errorOf(h)
		var r *refusal
		if errors.As(err, &r) {
			r.seq -= first + 1 // now the message's index, -1 for the batch's begin
		}
		return h.seq == last, err
	})
}

// errorOf is the error of an error message, nil if it is an acknowledgement. The
// offending request follows the errno, then the attributes of an extended
// acknowledgement.
func errorOf(h header) error {
	if len(h.body) < sizeofErrorCode+sizeofNlmsghdr {
		return errMalformed
	}
	code := int32(binary.NativeEndian.Uint32(h.body))
	if code == 0 {
		return nil
	}
	r := &refusal{seq: h.seq, errno: unix.Errno(-code)}
	if h.flags&unix.NLM_F_ACK_TLVS != 0 {
		skip := sizeofNlmsghdr // of the request
		if h.flags&unix.NLM_F_CAPPED == 0 {
			skip = align(int(binary.NativeEndian.Uint32(h.body[sizeofErrorCode:])))
		}
		if skip >= 0 && skip <= len(h.body)-sizeofErrorCode {
			r.words = words(h.body[sizeofErrorCode+skip:])
		}
	}
	return r
}

// doneError is the error that ended a dump, if any.
func doneError(h header) error {
	if len(h.body) < sizeofErrorCode {
		return nil
	}
	if code := int32(binary.NativeEndian.Uint32(h.body)); code < 0 {
		return &refusal{seq: h.seq, errno: unix.Errno(-code), words: words(h.body[sizeofErrorCode:])}
	}
	return nil
}

func words(attrs []byte) string {
	for a := (attributes{rest: attrs}); a.next(); {
		if a.typ == unix.NLMSGERR_ATTR_MSG {
			return string(cstring(a.data))
		}
	}
	return ""
}
