package nft

import (
	"bytes"
	"context"
	"encoding/binary"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel"
)

// seeds adds the datagrams of the kernel's recorded answers, or the attributes of
// their messages of one type.
func seeds(f *testing.F, typ int, add func([]byte)) {
	if !littleEndian() {
		return // nothing of the recordings means anything here
	}
	for _, r := range recorded {
		for _, datagram := range datagrams(readRecording(f, r.name)) {
			if typ < 0 {
				add(datagram)
				continue
			}
			eachMessage(datagram, func(m []byte) {
				if binary.NativeEndian.Uint16(m[4:]) == messageOfNFTables|uint16(typ) {
					add(m[sizeofNlmsghdr+sizeofNfgenmsg:])
				}
			})
		}
	}
}

// FuzzMessage: any datagram is walked to its end, or refused.
func FuzzMessage(f *testing.F) {
	seeds(f, -1, func(b []byte) { f.Add(b) })
	f.Add(explain(header{typ: 1, body: make([]byte, 4)}, unix.EBUSY, "words"))
	f.Add(acknowledge(header{}))
	f.Add(done(1, unix.EINTR))
	f.Fuzz(func(t *testing.T, b []byte) {
		left := len(b)
		for rest := b; len(rest) > 0; {
			h, next, err := nextMessage(rest)
			if err != nil {
				return
			}
			if left -= sizeofNlmsghdr + len(h.body); left < 0 || len(next) >= len(rest) || len(next) > left {
				t.Fatalf("%d of %d bytes are left after a message of %d", len(next), len(rest), len(h.body))
			}
			left = len(next)
			rest = next
			_, _ = errorOf(h), doneError(h)
			size := 0
			a := attributes{rest: h.body}
			for a.next() {
				size += sizeofNlattr + len(a.data)
			}
			if size > len(h.body) {
				t.Fatalf("attributes of %d bytes in a body of %d", size, len(h.body))
			}
		}
	})
}

// FuzzChain: a chain that is not refused has a name and a handle.
func FuzzChain(f *testing.F) {
	seeds(f, unix.NFT_MSG_NEWCHAIN, func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := parseChain(b); err == nil && (c.Name == "" || c.Handle == 0 || c.use < 0) {
			t.Errorf("%+v of %x", c, b)
		}
	})
}

// FuzzRule: a rule that is not refused has a handle and can be printed, what it
// refers to is counted as it is found, and it is decoded the same again.
func FuzzRule(f *testing.F) {
	seeds(f, unix.NFT_MSG_NEWRULE, func(b []byte) { f.Add(true, b); f.Add(false, b) })
	f.Fuzz(func(t *testing.T, ipv6 bool, b []byte) {
		family := unflannel.IP
		if ipv6 {
			family = unflannel.IP6
		}
		r := &tableReader{family: family, chains: []*chainRead{{Chain: &unflannel.Chain{Name: "FLANNEL-FWD"}}}}
		refers, err := r.references(b, "FORWARD")
		if err == nil && refers != (countVerdicts(b, "FLANNEL-FWD") > 0) {
			t.Errorf("refers: %v, %d times", refers, countVerdicts(b, "FLANNEL-FWD"))
		}
		rule, err := decodeRule(family, bytes.Clone(b))
		if err != nil {
			return
		}
		if rule.Handle == 0 {
			t.Errorf("no handle in %x", b)
		}
		if s := rule.String(); strings.ContainsFunc(s, unicode.IsControl) {
			t.Errorf("control character in %q", s)
		}
		if again, err := decodeRule(family, b); err != nil || again.String() != rule.String() {
			t.Errorf("%s, then %s (%v)", rule, again, err)
		}
	})
}

// FuzzElements: the elements of a map, and the verdicts of their data.
func FuzzElements(f *testing.F) {
	seeds(f, unix.NFT_MSG_NEWSETELEM, func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = eachElement(b, func(data []byte) error {
			if len(data) > len(b) {
				t.Errorf("element of %d bytes in %d", len(data), len(b))
			}
			_, err := dataVerdict(data)
			return err
		})
	})
}

// FuzzWatch: changes are told of any datagram, at least one of what cannot be understood.
func FuzzWatch(f *testing.F) {
	seeds(f, -1, func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) {
		told := new(teller).read(b)
		if _, _, err := nextMessage(b); err != nil && len(b) > 0 && len(told) != 1 {
			t.Errorf("%d changes of %x", len(told), b)
		}
	})
}

// FuzzAnswer runs clean with one answer for another: it ends, and what it sends is
// safe (the kernel of these tests sees to that).
func FuzzAnswer(f *testing.F) {
	if !littleEndian() {
		f.Skip("the recordings are little-endian, this machine is not")
	}
	var recordings []*recording
	for _, r := range recorded {
		recordings = append(recordings, readRecording(f, r.name))
	}
	for i := range recordings {
		for n := range 16 {
			f.Add(uint8(i), uint8(n), datagrams(recordings[i])[0])
		}
	}
	f.Fuzz(func(t *testing.T, which, at uint8, datagram []byte) {
		rec := recordings[int(which)%len(recordings)]
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			k := &kernel{t: t, record: rec}
			n := 0
			k.answer = func(k *kernel, r request) []reply {
				replies := k.honest(r)
				if n++; n == int(at) {
					replies[0].datagram = numberedAs(datagram, replies[0].datagram)
				}
				return replies
			}
			_, _ = unflannel.Clean(ctx, unflannel.Options{}, k.backend())
		})
	})
}
