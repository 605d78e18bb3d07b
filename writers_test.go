package unflannel_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/legacy"
	"github.com/unflannel/unflannel/nft"
)

// writer changes a chain of its own again and again, in the tables that are cleaned.
type writer struct {
	name  string
	write func(n node, i int) error // the i-th change
	want  func(i int) string        // what the chain holds after it, as read prints it
	read  []string                  // the program that prints it
}

// chainText is W-NAME with five rules of the i-th change, for iptables-restore.
func chainText(table, chain string, i int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n:%s - [0:0]\n%sCOMMIT\n", table, chain, chainRules(chain, i))
	return b.String()
}

func chainRules(chain string, i int) string {
	var b strings.Builder
	for r := range 5 {
		fmt.Fprintf(&b, "-A %s -s 10.%d.%d.%d/32 -m comment --comment \"change %d\" -j RETURN\n", chain, r, i/250, i%250, i)
	}
	return b.String()
}

func nftRules(i int) string {
	return fmt.Sprintf("ip saddr 10.9.%d.%d counter packets %d bytes %d accept", i/250, i%250, i, 60*i)
}

func restored(program, table, chain string, wait ...string) func(node, int) error {
	return func(n node, i int) error {
		_, _, err := n.Run(chainText(table, chain, i), program, append([]string{"--noflush"}, wait...)...)
		return err
	}
}

func nftWriters() []writer {
	saved := func(chain string) func(int) string {
		return func(i int) string { return "-N " + chain + "\n" + chainRules(chain, i) }
	}
	return []writer{
		{"iptables-nft", func(n node, i int) error {
			if _, _, err := n.Run("", "iptables-nft", "-t", "filter", "-N", "W-A"); err == nil {
				n.Run("", "iptables-nft", "-t", "filter", "-A", "W-A", "-j", "RETURN")
			}
			_, _, err := n.Run("", "iptables-nft", "-t", "filter", "-R", "W-A", "1", "-s", fmt.Sprintf("10.8.%d.%d/32", i/250, i%250), "-j", "ACCEPT")
			return err
		}, func(i int) string { return fmt.Sprintf("-N W-A\n-A W-A -s 10.8.%d.%d/32 -j ACCEPT\n", i/250, i%250) },
			[]string{"iptables-nft", "-t", "filter", "-S", "W-A"}},
		{"iptables-nft-restore", restored("iptables-nft-restore", "nat", "W-B"), saved("W-B"), []string{"iptables-nft", "-t", "nat", "-S", "W-B"}},
		{"nft, rule by rule", func(n node, i int) error {
			_, _, err := n.Run("add chain ip filter W-C; flush chain ip filter W-C; add rule ip filter W-C "+nftRules(i), "nft", "-f", "-")
			return err
		}, func(i int) string {
			return "table ip filter {\n\tchain W-C {\n\t\t" + nftRules(i) + "\n\t}\n}\n"
		}, []string{"nft", "list", "chain", "ip", "filter", "W-C"}},
		{"nft, the whole chain", func(n node, i int) error {
			_, _, err := n.Run("add chain ip nat W-D; delete chain ip nat W-D; add chain ip nat W-D; add rule ip nat W-D "+nftRules(i), "nft", "-f", "-")
			return err
		}, func(i int) string {
			return "table ip nat {\n\tchain W-D {\n\t\t" + nftRules(i) + "\n\t}\n}\n"
		}, []string{"nft", "list", "chain", "ip", "nat", "W-D"}},
	}
}

func legacyWriters() []writer {
	var all []writer
	for _, table := range []string{"nat", "filter"} {
		for _, w := range []string{"E", "F"} {
			chain := "W-" + w
			all = append(all, writer{
				"iptables-legacy-restore " + table + " " + chain, restored("iptables-legacy-restore", table, chain, "--wait=60"),
				func(i int) string { return "-N " + chain + "\n" + chainRules(chain, i) },
				[]string{"iptables-legacy", "-w", "60", "-t", table, "-S", chain},
			})
		}
	}
	return all
}

// TestWriters cleans while others write to the same tables without a pause, and
// somebody puts Flannel's jump back now and then. No run gives up, and each writer's
// chain is what the writer last wrote.
func TestWriters(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		backend string
		writers []writer
		new     func() unflannel.Backend
	}{
		{"nft", nftWriters(), func() unflannel.Backend { return nft.New() }},
		{"legacy", legacyWriters(), func() unflannel.Backend { return legacy.New() }},
	} {
		t.Run(tc.backend, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			program := "iptables-" + tc.backend
			n.Restore(tc.backend, "ip", largeTables())

			stop := make(chan struct{})
			var writers sync.WaitGroup
			last := make([]int, len(tc.writers))
			for w, writer := range tc.writers {
				writers.Go(func() {
					for i := 1; ; i++ {
						select {
						case <-stop:
							return
						default:
						}
						if err := writer.write(n, i); err != nil {
							t.Errorf("%s: %v", writer.name, err)
							return
						}
						last[w] = i
					}
				})
			}
			flanneld := func() {
				n.Run("", program, "-w", "60", "-t", "nat", "-N", "FLANNEL-POSTRTG")
				n.Run("", program, "-w", "60", "-t", "nat", "-A", "POSTROUTING", "-m", "comment", "--comment", "flanneld masq", "-j", "FLANNEL-POSTRTG")
			}
			writers.Go(func() { // five times as often as the real one
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Second):
						flanneld()
					}
				}
			})

			runs, removed, attempts, most := 20, 0, 0, 0
			if long() {
				runs = 200
			}
			for range runs {
				flanneld() // so that each run has something to remove
				var r *unflannel.Report
				var err error
				n.Do(func() { r, err = unflannel.Clean(t.Context(), unflannel.Options{}, tc.new()) })
				if err != nil || r.Outcome != unflannel.NothingLeft {
					t.Errorf("outcome %s, error %v", r.Outcome, err)
				}
				for _, f := range r.Findings {
					if f.State == unflannel.StateRemoved {
						removed++
					}
				}
				attempts += r.Backends[0].Attempts
				most = max(most, r.Backends[0].Attempts)
			}
			close(stop)
			writers.Wait()
			t.Logf("%d runs removed %d things in %d attempts, at most %d in one; the writers wrote %v times", runs, removed, attempts, most, last)
			if removed < runs {
				t.Errorf("%d things were removed in %d runs", removed, runs)
			}
			for w, writer := range tc.writers {
				if got := n.MustRun("", writer.read[0], writer.read[1:]...); got != writer.want(last[w]) {
					t.Errorf("%s: the chain holds\n%s, but was last written as\n%s", writer.name, got, writer.want(last[w]))
				}
			}
			r := n.clean(unflannel.Options{})
			if r.Outcome != unflannel.NothingLeft {
				t.Error(r.Summary)
			}
		})
	}
}

// largeTables are a nat and a filter table of some thousand rules.
func largeTables() string {
	var b strings.Builder
	for _, table := range []string{"nat", "filter"} {
		fmt.Fprintf(&b, "*%s\n", table)
		for i := range 300 {
			fmt.Fprintf(&b, ":KUBE-SVC-%03d - [0:0]\n", i)
		}
		for i := range 3000 {
			fmt.Fprintf(&b, "-A KUBE-SVC-%03d -s 10.%d.%d.0/24 -j RETURN\n", i%300, i%250, i/250)
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}
