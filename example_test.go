package unflannel_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/conntrack"
	"github.com/unflannel/unflannel/legacy"
	"github.com/unflannel/unflannel/netnstest"
	"github.com/unflannel/unflannel/nft"
)

// onNode runs an example on a node of its own, with what flanneld left in nf_tables.
// Your program leaves this out.
func onNode(f func()) {
	e := &exampleNode{}
	defer e.done()
	text, err := os.ReadFile("testdata/rulesets/flannel-v0.22.3-iptables.v4.save")
	if err != nil {
		panic(err)
	}
	ns := netnstest.New(e)
	ns.Restore("nft", "ip", string(text))
	ns.Do(f)
}

func ExampleCheck() {
	onNode(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		report, err := unflannel.Check(ctx, unflannel.Options{}, nft.New(), legacy.New())
		if err != nil {
			fmt.Println(err) // the report tells of all that could be read
		}
		fmt.Println(report.Outcome)
		fmt.Println(report.Findings[0].Rule)
		fmt.Println(report.Findings[0].Effect)
	})
	// Output:
	// left
	// -A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
	// sends all traffic through FLANNEL-POSTRTG
}

func ExampleClean() {
	onNode(func() {
		report, err := unflannel.Clean(context.Background(), unflannel.Options{}, nft.New(), legacy.New())
		fmt.Println(report.Summary, err)
		// Twice is as good as once.
		report, err = unflannel.Clean(context.Background(), unflannel.Options{}, nft.New(), legacy.New())
		fmt.Println(report.Summary, err)
	})
	// Output:
	// removed 12 leftovers of Flannel; nothing of Flannel is left on this node <nil>
	// nothing of Flannel is left on this node <nil>
}

func ExampleOptions() {
	onNode(func() {
		log := slog.New(slog.NewTextHandler(os.Stderr, nil))
		legacyTables := legacy.New()
		legacyTables.Logger, legacyTables.LockWait = log, 10*time.Second
		options := unflannel.Options{
			Families:    []unflannel.Family{unflannel.IP},
			Networks:    []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
			Settle:      100 * time.Millisecond,
			Connections: conntrack.New(),
			Logger:      log,
		}
		report, err := unflannel.Clean(context.Background(), options, nft.New(), legacyTables)
		fmt.Println(report.Outcome, report.Settled.Returned, len(report.Connections), err)
		for _, saved := range report.Undo() {
			fmt.Println(saved.Program())
		}
	})
	// Output:
	// nothing-left false 0 <nil>
	// iptables-nft-restore
}

// exampleNode stands in for a test.
type exampleNode struct{ cleanups []func() }

func (*exampleNode) Helper()                           {}
func (e *exampleNode) Cleanup(f func())                { e.cleanups = append(e.cleanups, f) }
func (*exampleNode) Log(args ...any)                   { fmt.Println(args...) }
func (*exampleNode) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (*exampleNode) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (e *exampleNode) done() {
	for i := len(e.cleanups) - 1; i >= 0; i-- {
		e.cleanups[i]()
	}
}
