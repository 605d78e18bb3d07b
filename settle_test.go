package unflannel_test

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/legacy"
	"github.com/unflannel/unflannel/nft"
)

// TestSettle: what comes back while clean watches is said, with the process where
// the kernel tells it, and is not removed once more.
func TestSettle(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		backend, family, file, program string
		process                        bool
	}{
		{"nft", "ip", "flannel-v0.22.3-iptables.v4.save", "iptables-nft", true},
		{"nft", "ip6", "flannel-v0.22.3-iptables.v6.save", "ip6tables-nft", true},
		{"legacy", "ip", "flannel-v0.22.3-iptables.v4.save", "iptables-legacy", false},
		{"legacy", "ip6", "flannel-v0.22.3-iptables.v6.save", "ip6tables-legacy", false},
	} {
		t.Run(tc.backend+"/"+tc.family, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile("testdata/rulesets/" + tc.file)
			if err != nil {
				t.Fatal(err)
			}
			n := newNode(t)
			n.Restore(tc.backend, tc.family, string(text))

			// As flanneld does: make the chain, and put the jump to its end.
			cleaned := make(chan struct{})
			written := make(chan struct{})
			go func() {
				defer close(written)
				<-cleaned
				if tc.backend == "nft" { // somebody else writes first, who is not to blame
					n.Run("add table inet other", "nft", "-f", "-")
				}
				n.Run("", tc.program, "-w", "60", "-t", "nat", "-N", "FLANNEL-POSTRTG")
				n.Run("", tc.program, "-w", "60", "-t", "nat", "-A", "POSTROUTING", "-m", "comment", "--comment", "flanneld masq", "-j", "FLANNEL-POSTRTG")
			}()
			var report *unflannel.Report
			n.Do(func() {
				b := &notifying{Backend: legacy.New(), looked: cleaned}
				backends := []unflannel.Backend{b}
				if tc.backend == "nft" {
					backends = []unflannel.Backend{notifyingWatcher{&notifying{Backend: nft.New(), looked: cleaned}}}
				}
				report, err = unflannel.Clean(t.Context(), unflannel.Options{Settle: time.Minute}, backends...)
			})
			if err != nil {
				t.Fatal(err)
			}
			<-written
			after := n.Dump()

			s := report.Settled
			if s == nil || !s.Returned || s.Seconds <= 0 || s.Seconds >= 60 || report.Outcome != unflannel.Left {
				t.Fatalf("settled %+v, outcome %s: %s", s, report.Outcome, report.Summary)
			}
			// One, or both if the second wrote before the first was looked for.
			if tc.process != (len(s.Processes) > 0) || len(s.Processes) > 2 {
				t.Errorf("processes are %+v", s.Processes)
			}
			for _, p := range s.Processes {
				if !strings.HasPrefix(p.Name, strings.TrimSuffix(tc.program, "-nft")) || p.ID == 0 {
					t.Errorf("processes are %+v", s.Processes)
				}
			}
			returned, removed := 0, 0
			for _, f := range report.Findings {
				switch f.State {
				case unflannel.StateReturned:
					returned++
					if !strings.Contains(f.Reason, "flanneld is probably still running") {
						t.Errorf("%s has the reason %q", f.Rule, f.Reason)
					}
				case unflannel.StateRemoved:
					removed++
				default:
					t.Errorf("%s is %s", f.Rule, f.State)
				}
			}
			if returned == 0 || removed != 12 {
				t.Errorf("%d things came back and %d were removed, want some and 12", returned, removed)
			}
			if d := after.Without(ofOwnChains); len(d) == len(after) {
				t.Errorf("what came back was removed again")
			}
		})
	}
}

// TestSettleQuiet: when nothing comes back, however much others write, all is well.
func TestSettleQuiet(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.Restore("nft", "ip", natSave+":FLANNEL-POSTRTG - [0:0]\n-A POSTROUTING -j FLANNEL-POSTRTG\nCOMMIT\n")
	n.Restore("legacy", "ip", natSave+":FLANNEL-POSTRTG - [0:0]\n-A POSTROUTING -j FLANNEL-POSTRTG\nCOMMIT\n")
	done := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				n.Run("add table inet other; delete table inet other", "nft", "-f", "-")
			}
		}
	}()
	report := n.clean(unflannel.Options{Settle: 1500 * time.Millisecond})
	close(stop)
	<-done
	if s := report.Settled; s == nil || s.Returned || s.Seconds < 1.5 || report.Outcome != unflannel.NothingLeft {
		t.Errorf("settled %+v, outcome %s: %s", s, report.Outcome, report.Summary)
	}
}

// TestSettleInterrupted: watching that was cut short is no proof.
func TestSettleInterrupted(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	n.Do(func() {
		b := notifyingWatcher{&notifying{Backend: nft.New(), looked: make(chan struct{})}}
		go func() { <-b.looked; cancel() }()
		report, err := unflannel.Clean(ctx, unflannel.Options{Settle: time.Minute}, b)
		if err == nil || report.Outcome == unflannel.NothingLeft || !strings.Contains(report.Summary, "watch the ruleset") {
			t.Errorf("error %v, outcome %s: %s", err, report.Outcome, report.Summary)
		}
	})
}

// notifying is a backend that says when it was read and found clean.
type notifying struct {
	unflannel.Backend
	looked chan struct{}
	once   atomic.Bool
}

func (b *notifying) Read(ctx context.Context, queries []unflannel.Query) (*unflannel.Snapshot, error) {
	s, err := b.Backend.Read(ctx, queries)
	for _, t := range s.Tables {
		for _, c := range t.Chains {
			if strings.HasPrefix(c.Name, "FLANNEL") {
				return s, err
			}
		}
	}
	if b.once.CompareAndSwap(false, true) {
		close(b.looked)
	}
	return s, err
}

// notifyingWatcher is one that can be watched.
type notifyingWatcher struct{ *notifying }

func (b notifyingWatcher) Watch(ctx context.Context) (<-chan unflannel.Change, error) {
	return b.Backend.(unflannel.Watcher).Watch(ctx)
}
