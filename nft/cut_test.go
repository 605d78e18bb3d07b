package nft

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unflannel/unflannel"
)

// TestCut cuts each datagram of the recorded answers short, at each of its bytes
// (with UNFLANNEL_LONG set; else at each fifth, or with -short at some, so at all
// alignments):
// leftovers are never taken for nothing, what is sent is safe (the kernel of these
// tests sees to that), and every run ends.
func TestCut(t *testing.T) {
	t.Parallel()
	step := 5
	switch {
	case os.Getenv("UNFLANNEL_LONG") != "":
		step = 1
	case testing.Short():
		step = 31
	}
	for _, name := range []string{"chains", "tables", "maps"} {
		for how, cut := range map[string]func([]byte, int) []byte{
			"datagram": func(b []byte, n int) []byte { return b[:n] },
			// As if the kernel had not more to say.
			"last message": func(b []byte, n int) []byte {
				b = bytes.Clone(b[:n])
				last := 0
				for rest := b; len(rest) >= sizeofNlmsghdr; {
					length := int(binary.NativeEndian.Uint32(rest))
					if length > len(rest) {
						binary.NativeEndian.PutUint32(b[last:], uint32(len(rest)))
						break
					}
					last += align(length)
					rest = b[min(last, len(b)):]
				}
				return b
			},
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				rec := readRecording(t, name)
				synctest.Test(t, func(t *testing.T) {
					n := 0
					for _, datagram := range datagrams(rec) {
						for at := range datagram {
							if at%step == 0 {
								rec.cleanCut(t, datagram, cut(datagram, at), how == "datagram" && !betweenMessages(datagram, at))
								n++
							}
						}
					}
					t.Logf("%d cuts", n)
				})
			})
		}
	}
}

// betweenMessages reports whether a cut loses whole messages only, which nobody can
// tell from fewer messages: there, the chains' use counts have to protect them.
func betweenMessages(datagram []byte, at int) bool {
	for rest := datagram; len(rest) > 0; {
		if len(datagram)-len(rest) == at {
			return true
		}
		_, next, err := nextMessage(rest)
		if err != nil {
			break
		}
		rest = next
	}
	return false
}

// datagrams are those of the first look.
func datagrams(r *recording) (all [][]byte) {
	for request, answers := range r.before {
		if request != string(r.batch) {
			all = append(all, answers...)
		}
	}
	return all
}

// cleanCut runs clean with one datagram for another.
func (r *recording) cleanCut(t *testing.T, whole, cut []byte, mustFail bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	k := &kernel{t: t, record: r}
	k.answer = func(k *kernel, q request) []reply {
		replies := k.honest(q)
		for i, a := range r.before[string(unnumbered(q.raw))] {
			if !k.applied && &a[0] == &whole[0] {
				replies[i].datagram = numberedAs(cut, replies[i].datagram)
			}
		}
		return replies
	}
	report, err := unflannel.Clean(ctx, unflannel.Options{}, k.backend())
	if report.Outcome == unflannel.NothingLeft && !k.applied {
		t.Errorf("nothing is left with %x cut to %d bytes", whole, len(cut))
	}
	if mustFail && (err == nil || k.batches > 0) {
		t.Errorf("no error with %x cut to %d bytes", whole, len(cut))
	}
}

// numberedAs gives a cut datagram the sequence numbers of the whole one.
func numberedAs(cut, whole []byte) []byte {
	h, _, err := nextMessage(whole)
	if err != nil || len(cut) < sizeofNlmsghdr {
		return cut
	}
	cut = bytes.Clone(cut)
	for at := 0; at+sizeofNlmsghdr <= len(cut); {
		binary.NativeEndian.PutUint32(cut[at+8:], h.seq)
		at += max(align(int(binary.NativeEndian.Uint32(cut[at:]))), sizeofNlmsghdr)
	}
	return cut
}
