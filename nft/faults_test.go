package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel"
)

// result is what a run of check or clean should come to.
type result struct {
	outcome unflannel.Outcome
	is      error  // nil: no error at all
	says    string // parts of the error's message, with | between
	batches int    // that are sent; -1: any number
}

var (
	nothing = result{outcome: unflannel.NothingLeft}
	removed = result{outcome: unflannel.NothingLeft, batches: 1}
	again   = result{outcome: unflannel.NothingLeft, batches: 2}
	there   = result{outcome: unflannel.Left}
)

// unknown is the result when something cannot be read.
func unknown(is error, says string) result {
	return result{unflannel.Unknown, is, says, 0}
}

const (
	needsAdmin = "this needs the capability CAP_NET_ADMIN"
	timedOut   = "context deadline exceeded|run again, with a longer --timeout"
	gaveUp     = "gave up after 64 attempts; run again when fewer programs write rules"
	reportIt   = "please report this with the kernel's version"
)

// run runs check or clean on the kernel, by a clock of its own, and compares.
func (k *kernel) run(t *testing.T, verb string, want result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		f := unflannel.Check
		if verb == "clean" {
			f = unflannel.Clean
		}
		report, err := f(ctx, unflannel.Options{}, k.backend())
		if report.Outcome != want.outcome {
			t.Errorf("%s: outcome is %s, want %s: %s", verb, report.Outcome, want.outcome, report.Summary)
		}
		if (err == nil) != (want.is == nil) || !errors.Is(err, want.is) {
			t.Errorf("%s: error is %v, want one that is %v", verb, err, want.is)
		}
		for part := range strings.SplitSeq(want.says, "|") {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error is %q, want %q in it", verb, err, part)
			}
		}
		if want.batches >= 0 && k.batches != want.batches {
			t.Errorf("%s: %d batches were sent, want %d", verb, k.batches, want.batches)
		}
	})
}

// fault is something that the kernel does instead of what it should.
type fault struct {
	name  string
	on    string // the recording
	at    string // the kinds of requests; "": all
	first int    // how often; 0: always
	does  func(*kernel, request) []reply

	opening, sending error

	check, clean result
}

func (f fault) kernel(t *testing.T) *kernel {
	k := &kernel{t: t, record: readRecording(t, f.on), opening: f.opening, sending: f.sending}
	n := 0
	k.answer = func(k *kernel, r request) []reply {
		if f.does == nil || f.at != "" && !kindsOf(f.at)(r.kind) || f.first > 0 && n == f.first {
			return k.honest(r)
		}
		n++
		return f.does(k, r)
	}
	return k
}

func testFaults(t *testing.T, faults []fault) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.kernel(t).run(t, "check", f.check)
			f.kernel(t).run(t, "clean", f.clean)
		})
	}
}

// places are the first request of each kind, as the error's message names it.
var places = []struct{ kind, says string }{
	{"generation", "read generation of the ruleset (nft)"},
	{"table", "look for rules|ip nat (nft)"},
	{"chain", "read chain POSTROUTING in table ip nat (nft)"},
	{"rules", "read rules of chain FORWARD in table ip filter (nft)"},
	{"chains", "list chains in table ip filter (nft)"},
	{"sets", "list maps in table ip filter (nft)"},
	{"elements", "read elements of map|ip filter (nft)"},
}

var errnos = []unix.Errno{
	unix.EPERM, unix.EINVAL, unix.EPROTONOSUPPORT, unix.EOPNOTSUPP, unix.ENOENT,
	unix.EBUSY, unix.ERESTART, unix.ENOBUFS, unix.EINTR, unix.EMSGSIZE, unix.ENOMEM,
}

func adviceOn(errno unix.Errno) string {
	switch errno {
	case unix.EPERM:
		return needsAdmin
	case unix.ENOENT, unix.ENOBUFS, unix.EINTR:
		return gaveUp
	case unix.EMSGSIZE:
		return "net.core.wmem_max"
	case unix.ENOMEM:
		return "short of memory"
	}
	return reportIt
}

// TestRefusedQuestions: each errno in answer to each question, always.
func TestRefusedQuestions(t *testing.T) {
	t.Parallel()
	answers := map[string]func(r request, errno unix.Errno) reply{
		"an error": func(r request, errno unix.Errno) reply { return reply{datagram: refuse(r.messages[0], errno)} },
		"words": func(r request, errno unix.Errno) reply {
			return reply{datagram: explain(r.messages[0], errno, "so what")}
		},
		"end of a dump": func(r request, errno unix.Errno) reply { return reply{datagram: done(r.messages[0].seq, errno)} },
	}
	var faults []fault
	for _, p := range places {
		for _, errno := range errnos {
			for how, answer := range answers {
				dump := p.kind != "generation" && p.kind != "table" && p.kind != "chain"
				if how == "end of a dump" && !dump {
					continue
				}
				want := unknown(errno, p.says+"|"+errno.Error()+"|"+adviceOn(errno))
				if how == "words" {
					want.says += "|(so what)"
				}
				switch {
				case p.kind == "generation" && (errno == unix.EINVAL || errno == unix.EPROTONOSUPPORT || errno == unix.EOPNOTSUPP):
					want = nothing // the kernel has no nf_tables
				case p.kind == "table" && errno == unix.ENOENT, p.kind == "chain" && errno == unix.ENOENT:
					want = nothing // that is how it says that there is none
				}
				faults = append(faults, fault{
					name: fmt.Sprintf("%s/%d/%s", p.kind, errno, how), on: "maps", at: p.kind,
					does:  func(_ *kernel, r request) []reply { return []reply{answer(r, errno)} },
					check: want, clean: want,
				})
			}
		}
	}
	testFaults(t, faults)
}

// TestRefusedBatch: each errno in answer to a batch, to the message that begins it
// and to the first and last operation in it.
func TestRefusedBatch(t *testing.T) {
	t.Parallel()
	var faults []fault
	for _, errno := range errnos {
		for _, at := range []struct {
			name    string
			message func(request) header
			says    string
		}{
			{"begin", func(r request) header { return r.messages[0] }, "remove leftovers (nft)"},
			{"first", func(r request) header { return r.messages[1] }, "delete rule of chain POSTROUTING in table ip nat (nft)|delete rule of chain FORWARD in table ip6 filter (nft)"},
			{"last", func(r request) header { return r.messages[len(r.messages)-2] }, "delete chain FLANNEL-POSTRTG in table ip nat (nft)|delete chain FLANNEL-FWD in table ip6 filter (nft)"},
		} {
			f := fault{
				name: fmt.Sprintf("%d/%s", errno, at.name), on: "chains", at: "batch",
				does: func(_ *kernel, r request) []reply {
					return []reply{{datagram: explain(at.message(r), errno, "so what")}}
				},
				check: there,
				clean: result{unflannel.Left, errno, at.says + "|" + errno.Error() + "|(so what)|" + adviceOn(errno), 1},
			}
			if at.name != "begin" {
				f.clean.batches = 4 // each without the table that was refused before
			}
			switch errno {
			case unix.ENOENT, unix.EBUSY, unix.ERESTART, unix.ENOBUFS, unix.EINTR: // others are writing
				f.clean = result{unflannel.Left, unflannel.ErrConflict, gaveUp, 64}
				once := f
				once.name, once.first, once.clean = f.name+"/once", 1, again
				faults = append(faults, once)
			}
			faults = append(faults, f)
		}
	}
	testFaults(t, faults)
}

func silent(*kernel, request) []reply { return nil }

// changed answers honestly, with the datagrams changed.
func changed(f func(datagram []byte) []byte) func(*kernel, request) []reply {
	return func(k *kernel, r request) []reply {
		replies := k.honest(r)
		for i := range replies {
			replies[i].datagram = f(replies[i].datagram)
		}
		return replies
	}
}

// failing gives an error of recvmsg for an answer, after the kernel did its work.
func failing(errno unix.Errno) func(*kernel, request) []reply {
	return func(k *kernel, r request) []reply {
		k.honest(r)
		return []reply{{err: errno}}
	}
}

// unheard gives an error of recvmsg for an answer, and the kernel did nothing.
func unheard(errno unix.Errno) func(*kernel, request) []reply {
	return func(*kernel, request) []reply { return []reply{{err: errno}} }
}

// withType changes the type of all messages of a type.
func withType(from, to uint16) func([]byte) []byte {
	return func(datagram []byte) []byte {
		eachMessage(datagram, func(m []byte) {
			if binary.NativeEndian.Uint16(m[4:]) == from {
				binary.NativeEndian.PutUint16(m[4:], to)
			}
		})
		return datagram
	}
}

// only keeps the messages for which f returns true.
func only(f func(m []byte) bool) func([]byte) []byte {
	return func(datagram []byte) []byte {
		var kept []byte
		eachMessage(datagram, func(m []byte) {
			if f(m) {
				kept = append(kept, m...)
			}
		})
		return kept
	}
}

func isDone(m []byte) bool { return binary.NativeEndian.Uint16(m[4:]) == unix.NLMSG_DONE }

// withFlag sets a flag in all messages.
func withFlag(flag uint16) func([]byte) []byte {
	return func(datagram []byte) []byte {
		eachMessage(datagram, func(m []byte) {
			binary.NativeEndian.PutUint16(m[6:], binary.NativeEndian.Uint16(m[6:])|flag)
		})
		return datagram
	}
}

// zeroed sets the data of an attribute to zero.
func zeroed(typ uint16) func([]byte) []byte {
	return func(datagram []byte) []byte {
		eachMessage(datagram, func(m []byte) { clear(attribute(m, typ)) })
		return datagram
	}
}

func shifted(add uint32) func([]byte) []byte {
	return func(datagram []byte) []byte { return numbered(datagram, add) }
}

// endless gives the messages of a dump again and again, but not its end.
func endless(k *kernel, r request) []reply {
	replies := k.honest(r)
	datagram := only(func(m []byte) bool { return !isDone(m) })(replies[0].datagram)
	return []reply{{datagram, errEndless}}
}

func nextGeneration(k *kernel, r request) []reply {
	k.shift++
	return k.honest(r)
}

var otherFaults = []fault{
	{name: "no netlink socket of this kind", on: "chains", opening: unix.EPROTONOSUPPORT, check: nothing, clean: nothing},
	{name: "no netlink", on: "chains", opening: unix.EAFNOSUPPORT, check: nothing, clean: nothing},
	{name: "no socket allowed", on: "chains", opening: unix.EPERM,
		check: unknown(unix.EPERM, "read ruleset (nft)|operation not permitted|"+needsAdmin), clean: unknown(unix.EPERM, needsAdmin)},
	{name: "too many files", on: "chains", opening: unix.EMFILE,
		check: unknown(unix.EMFILE, "read ruleset (nft)|too many open files"), clean: unknown(unix.EMFILE, "")},

	{name: "batch too large for the socket", on: "chains", sending: unix.EMSGSIZE, check: there,
		clean: result{unflannel.Left, unix.EMSGSIZE, "remove leftovers (nft)|message too long|net.core.wmem_max", 1}},
	{name: "no room to send", on: "chains", sending: unix.ENOBUFS, check: there,
		clean: result{unflannel.Left, unflannel.ErrConflict, gaveUp, 64}},

	{name: "no answer at all", on: "chains", does: silent,
		check: unknown(context.DeadlineExceeded, "read generation of the ruleset (nft)|"+timedOut), clean: unknown(context.DeadlineExceeded, timedOut)},
	{name: "no answer about a table", on: "chains", at: "table", does: silent,
		check: unknown(context.DeadlineExceeded, "ip nat (nft)|"+timedOut), clean: unknown(context.DeadlineExceeded, timedOut)},
	{name: "no answer about a chain", on: "chains", at: "chain", does: silent,
		check: unknown(context.DeadlineExceeded, "read chain POSTROUTING in table ip nat|"+timedOut), clean: unknown(context.DeadlineExceeded, timedOut)},
	{name: "no answer about rules", on: "chains", at: "rules", does: silent,
		check: unknown(context.DeadlineExceeded, "read rules of chain POSTROUTING in table ip nat|"+timedOut), clean: unknown(context.DeadlineExceeded, timedOut)},
	{name: "no answer about elements", on: "maps", at: "elements", does: silent,
		check: unknown(context.DeadlineExceeded, "read elements of map|"+timedOut), clean: unknown(context.DeadlineExceeded, timedOut)},
	{name: "no answer to the batch, which was not applied", on: "chains", at: "batch", does: silent, check: there,
		clean: result{unflannel.Left, context.DeadlineExceeded, "remove leftovers (nft)|run again", -1}},
	{name: "no answer to the batch, which was applied", on: "chains", at: "batch", check: there, clean: removed,
		does: func(k *kernel, r request) []reply { k.honest(r); return nil }},
	{name: "the answer to the batch is garbage, which was not applied", on: "chains", at: "batch", check: there,
		does:  func(*kernel, request) []reply { return []reply{{datagram: []byte("garbage")}} },
		clean: result{unflannel.Left, unflannel.ErrConflict, gaveUp, 64}},
	{name: "the answer to the batch is garbage, which was applied", on: "chains", at: "batch", check: there, clean: removed,
		does: changed(func([]byte) []byte { return []byte("garbage, though many bytes of it") })},
	{name: "the answer to the batch is another message's", on: "chains", at: "batch", check: there, clean: removed,
		does: changed(shifted(100))},
	{name: "the batch's messages are acknowledged one by one", on: "chains", at: "batch", check: there, clean: removed,
		does: func(k *kernel, r request) []reply {
			k.honest(r)
			var all []reply
			for _, m := range r.messages {
				all = append(all, reply{datagram: acknowledge(m)})
			}
			return all
		}},

	{name: "overflow before the batch", on: "chains", at: "batch", first: 1, does: unheard(unix.ENOBUFS), check: there, clean: again},
	{name: "overflow after the batch", on: "chains", at: "batch", first: 1, does: failing(unix.ENOBUFS), check: there, clean: removed},
	{name: "interrupted before the batch", on: "chains", at: "batch", first: 1, does: unheard(unix.EINTR), check: there, clean: again},
	{name: "interrupted after the batch", on: "chains", at: "batch", first: 1, does: failing(unix.EINTR), check: there, clean: removed},
	{name: "overflow while reading, once", on: "chains", at: "rules", first: 1, does: failing(unix.ENOBUFS), check: there, clean: removed},
	{name: "overflow while reading, always", on: "chains", at: "rules", does: failing(unix.ENOBUFS),
		check: unknown(unix.ENOBUFS, "read rules of chain POSTROUTING in table ip nat|no buffer space|"+gaveUp), clean: unknown(unix.ENOBUFS, gaveUp)},
	{name: "interrupted while reading, once", on: "chains", at: "chain", first: 1, does: failing(unix.EINTR), check: there, clean: removed},

	{name: "a dump that ends at once", on: "chains", at: "rules", does: changed(only(isDone)), check: there,
		// The chains' use counts tell that something refers to them.
		clean: result{outcome: unflannel.Left}},
	{name: "a dump of all chains that ends at once", on: "maps", at: "chains", does: changed(only(isDone)), check: there,
		clean: result{unflannel.Left, unflannel.ErrConflict, gaveUp, 64}}, // without a jump that was not seen, again and again
	{name: "a dump of elements that ends at once", on: "maps", at: "elements", does: changed(only(isDone)), check: there,
		clean: result{outcome: unflannel.Left, batches: 1}},
	{name: "a dump without its end", on: "chains", at: "rules", does: changed(only(func(m []byte) bool { return !isDone(m) })),
		check: unknown(context.DeadlineExceeded, "read rules of chain POSTROUTING|"+timedOut), clean: unknown(context.DeadlineExceeded, timedOut)},
	{name: "a dump without end", on: "chains", at: "rules", does: endless,
		check: unknown(context.DeadlineExceeded, "read rules of chain POSTROUTING|"+timedOut), clean: unknown(context.DeadlineExceeded, timedOut)},
	{name: "answers to somebody else without end", on: "chains", at: "chain",
		does: func(k *kernel, r request) []reply {
			return []reply{{numbered(k.honest(r)[0].datagram, 9), errEndless}}
		},
		check: unknown(context.DeadlineExceeded, "read chain POSTROUTING|"+timedOut), clean: unknown(context.DeadlineExceeded, timedOut)},
	{name: "answers to somebody else instead of one to the batch, without end", on: "chains", at: "batch",
		does: func(k *kernel, r request) []reply {
			return []reply{{numbered(acknowledge(r.messages[1]), 99), errEndless}}
		},
		check: there, clean: result{unflannel.Left, context.DeadlineExceeded, "run again", -1}},
	{name: "an interrupted dump", on: "chains", at: "rules", first: 1, does: changed(withFlag(unix.NLM_F_DUMP_INTR)), check: there, clean: removed},
	{name: "dumps that are always interrupted", on: "chains", at: "rules", does: changed(withFlag(unix.NLM_F_DUMP_INTR)),
		check: unknown(errInterrupted, "the ruleset changed while it was read|"+gaveUp), clean: unknown(errInterrupted, gaveUp)},

	{name: "wrong sequence numbers", on: "chains", does: changed(shifted(1)),
		check: unknown(context.DeadlineExceeded, timedOut), clean: unknown(context.DeadlineExceeded, timedOut)},
	{name: "another's answers before its own", on: "chains", check: there, clean: removed,
		does: func(k *kernel, r request) []reply {
			honest := k.honest(r)
			return append([]reply{{datagram: numbered(honest[0].datagram, 1<<20)}, {datagram: refuse(header{seq: 1 << 20}, unix.EPERM)}}, honest...)
		}},
	{name: "datagrams of nothing", on: "chains", check: there, clean: removed,
		does: func(k *kernel, r request) []reply { return append([]reply{{}}, k.honest(r)...) }},

	{name: "a generation that always changes", on: "chains", at: "generation", does: nextGeneration,
		check: unknown(errInterrupted, "read ruleset (nft)|the ruleset changed while it was read|"+gaveUp), clean: unknown(errInterrupted, gaveUp)},
	{name: "a generation that changes during the first look", on: "chains", at: "generation", first: 2, does: nextGeneration, check: there, clean: removed},
	{name: "a generation that changes before each batch", on: "chains", at: "batch", check: there,
		does:  func(k *kernel, r request) []reply { k.shift++; return k.honest(r) },
		clean: result{unflannel.Left, unflannel.ErrConflict, gaveUp, 64}},
	{name: "a generation that changes before the first batch", on: "chains", at: "batch", first: 1, check: there, clean: again,
		does: func(k *kernel, r request) []reply { k.shift++; return k.honest(r) }},
	{name: "the generation 0", on: "chains", at: "generation", does: changed(zeroed(unix.NFTA_GEN_ID)),
		check: unknown(errMalformed, "read generation of the ruleset (nft)|"+reportIt), clean: unknown(errMalformed, reportIt)},

	{name: "a table without a handle", on: "tables", at: "table", does: changed(zeroed(nftaTableHandle)),
		check: unknown(errMalformed, "ip flannel-ipv4 (nft)|"+reportIt), clean: unknown(errMalformed, reportIt)},
	{name: "chains without handles", on: "chains", at: "chain", does: changed(zeroed(unix.NFTA_CHAIN_HANDLE)),
		check: unknown(errMalformed, "read chain POSTROUTING in table ip nat|"+reportIt), clean: unknown(errMalformed, reportIt)},
	{name: "rules without handles", on: "chains", at: "rules", does: changed(zeroed(unix.NFTA_RULE_HANDLE)),
		check: unknown(errMalformed, "read rules of chain POSTROUTING in table ip nat|"+reportIt), clean: unknown(errMalformed, reportIt)},

	{name: "an acknowledgement for a table", on: "chains", at: "table", does: acknowledged,
		check: unknown(errMalformed, "ip nat (nft)|"+reportIt), clean: unknown(errMalformed, reportIt)},
	{name: "an acknowledgement for a chain", on: "chains", at: "chain", does: acknowledged,
		check: unknown(errMalformed, "read chain POSTROUTING|"+reportIt), clean: unknown(errMalformed, reportIt)},
	{name: "an acknowledgement for rules", on: "chains", at: "rules", does: acknowledged,
		check: unknown(errMalformed, "read rules of chain POSTROUTING|"+reportIt), clean: unknown(errMalformed, reportIt)},
	{name: "the end of a dump for a chain", on: "chains", at: "chain",
		does:  func(_ *kernel, r request) []reply { return []reply{{datagram: done(r.messages[0].seq, 0)}} },
		check: unknown(errMalformed, "read chain POSTROUTING|"+reportIt), clean: unknown(errMalformed, reportIt)},
	{name: "a table for a chain", on: "chains", at: "chain",
		does:  changed(withType(messageOfNFTables|unix.NFT_MSG_NEWCHAIN, messageOfNFTables|unix.NFT_MSG_NEWTABLE)),
		check: unknown(errMalformed, "read chain POSTROUTING|"+reportIt), clean: unknown(errMalformed, reportIt)},
	{name: "sets for rules", on: "chains", at: "rules",
		does:  changed(withType(messageOfNFTables|unix.NFT_MSG_NEWRULE, messageOfNFTables|unix.NFT_MSG_NEWSET)),
		check: unknown(errMalformed, "read rules of chain POSTROUTING|"+reportIt), clean: unknown(errMalformed, reportIt)},
	{name: "a message without attributes", on: "chains", at: "rules",
		does: func(_ *kernel, r request) []reply {
			return []reply{{datagram: answer(messageOfNFTables|unix.NFT_MSG_NEWRULE, unix.NLM_F_MULTI, r.messages[0].seq, make([]byte, 4))}}
		},
		check: unknown(errMalformed, "read rules of chain POSTROUTING|"+reportIt), clean: unknown(errMalformed, reportIt)},
	{name: "an error without its request", on: "chains", at: "table",
		does: func(_ *kernel, r request) []reply {
			return []reply{{datagram: answer(unix.NLMSG_ERROR, 0, r.messages[0].seq, status(unix.ENOENT))}}
		},
		check: unknown(errMalformed, reportIt), clean: unknown(errMalformed, reportIt)},
	{name: "an error whose request is as long as can be", on: "chains", at: "table",
		does: func(_ *kernel, r request) []reply {
			b := explain(r.messages[0], unix.EIO, "lost words")
			binary.NativeEndian.PutUint32(b[sizeofNlmsghdr+sizeofErrorCode:], 0x7ffffffc)
			return []reply{{datagram: b}}
		},
		check: unknown(unix.EIO, "input/output error"), clean: unknown(unix.EIO, reportIt)},
}

func acknowledged(_ *kernel, r request) []reply {
	return []reply{{datagram: acknowledge(r.messages[0])}}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	testFaults(t, otherFaults)
}
