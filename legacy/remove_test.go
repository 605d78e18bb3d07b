package legacy

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/netnstest"
)

// flannelQueries ask for Flannel's two chains.
func flannelQueries(family unflannel.Family) []unflannel.Query {
	return []unflannel.Query{
		{Family: family, Table: "nat", Chains: []string{"POSTROUTING", "FLANNEL-POSTRTG"}},
		{Family: family, Table: "filter", Chains: []string{"FORWARD", "FLANNEL-FWD"}},
	}
}

// dropChains decides to remove the chains named and all that refers to them.
func dropChains(s *unflannel.Snapshot, names ...string) []unflannel.Removal {
	var removals []unflannel.Removal
	for _, table := range s.Tables {
		r := unflannel.Removal{Table: table}
		for _, c := range table.Chains {
			if slices.Contains(names, c.Name) {
				r.Drop = append(r.Drop, c)
				r.Rules = append(r.Rules, c.References...)
			}
		}
		if r.Drop != nil {
			removals = append(removals, r)
		}
	}
	return removals
}

func remove(ns *netnstest.NS, ctx context.Context, b *Backend, s *unflannel.Snapshot, removals []unflannel.Removal) error {
	var err error
	ns.Do(func() { err = b.Remove(ctx, s, removals) })
	return err
}

// without is a dump that lacks chains and all that names them.
func without(d netnstest.Dump, chains ...string) netnstest.Dump {
	return d.Without(func(l netnstest.Line) bool {
		return slices.ContainsFunc(strings.Fields(l.Key), func(word string) bool { return slices.Contains(chains, word) })
	}).WithoutLegacyPolicyCounters()
}

// Both chains and all that refers to them go from every ruleset; all else stays as
// it was, counters included, and a second look finds nothing.
func TestRemove(t *testing.T) {
	t.Parallel()
	chains := []string{"FLANNEL-POSTRTG", "FLANNEL-FWD"}
	for _, way := range []struct {
		name string
		b    func() *Backend
	}{
		{"kernel", New},
		{"text", textBackend},
	} {
		for _, family := range families {
			for _, file := range savesOf(t, family.Family) {
				t.Run(way.name+"/"+strings.TrimPrefix(filepath.Clean(file), "../testdata/"), func(t *testing.T) {
					t.Parallel()
					b, ns := way.b(), netnstest.New(t)
					ns.Restore("legacy", string(family.Family), readFile(t, file))
					want := without(ns.Dump(), chains...)
					s := read(t, ns, b, flannelQueries(family.Family)...)
					if err := remove(ns, context.Background(), b, s, dropChains(s, chains...)); err != nil {
						t.Fatal(err)
					}
					if d := netnstest.Diff(want, ns.Dump().WithoutLegacyPolicyCounters()); d != "" {
						t.Error(d)
					}
					s = read(t, ns, b, flannelQueries(family.Family)...)
					if left := dropChains(s, chains...); left != nil {
						t.Errorf("left: %v", left)
					}
				})
			}
		}
	}
}

// textBackend is a backend to which the kernel shows nothing.
func textBackend() *Backend {
	b := New()
	b.kernel = func(context.Context, unflannel.Family, string) (*table, error) { return nil, errnoEINVAL }
	return b
}

// Rules are deleted where they stand: of a chain's rules the even ones, whatever
// they say, understood or not.
func TestRemoveRules(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	ns.Restore("legacy", "ip", readFile(t, "testdata/everything.v4.save"))
	q := unflannel.Query{Family: unflannel.IP, Table: "filter", Chains: []string{"FORWARD"}}
	s := read(t, ns, New(), q)
	var want []string
	for i, line := range chainLines(ns, "FORWARD") {
		if i%2 == 0 {
			want = append(want, line)
		}
	}
	removal := unflannel.Removal{Table: s.Tables[0]}
	for _, r := range s.Tables[0].Chains[0].Rules {
		if r.Position%2 == 0 {
			removal.Rules = append(removal.Rules, r)
		}
	}
	if err := remove(ns, context.Background(), New(), s, []unflannel.Removal{removal}); err != nil {
		t.Fatal(err)
	}
	if have := chainLines(ns, "FORWARD"); !slices.Equal(have, want) {
		t.Errorf("have\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// A chain that is only emptied stays, and so does what refers to it.
func TestFlush(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	ns.Restore("legacy", "ip", readFile(t, "testdata/everything.v4.save"))
	before := chainLines(ns, "FORWARD")
	s := read(t, ns, New(), unflannel.Query{Family: unflannel.IP, Table: "filter", Chains: []string{"FLANNEL-FWD"}})
	if err := remove(ns, context.Background(), New(), s, []unflannel.Removal{{Table: s.Tables[0], Flush: s.Tables[0].Chains}}); err != nil {
		t.Fatal(err)
	}
	if lines := chainLines(ns, "FLANNEL-FWD"); len(lines) != 0 {
		t.Errorf("left: %q", lines)
	}
	if after := chainLines(ns, "FORWARD"); !slices.Equal(after, before) {
		t.Errorf("have\n%s\nwant\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
}

func chainLines(ns *netnstest.NS, chain string) []string {
	var lines []string
	for line := range strings.Lines(ns.MustRun("", "iptables-legacy-save", "-c", "-t", "filter")) {
		if _, rest, ok := strings.Cut(line, "] -A "); ok && strings.HasPrefix(rest, chain+" ") || rest == chain+"\n" {
			lines = append(lines, line)
		}
	}
	return lines
}

// Whatever another program does to the chains between reading and removing is a
// conflict, and stays.
func TestRemoveAfterChange(t *testing.T) {
	t.Parallel()
	for _, change := range []string{
		"-t nat -I POSTROUTING -j ACCEPT",
		"-t nat -D POSTROUTING 1",
		"-t nat -A FLANNEL-POSTRTG -j ACCEPT",
		"-t nat -F FLANNEL-POSTRTG",
		"-t nat -A LOOSE -j FLANNEL-POSTRTG",
		"-t nat -R POSTROUTING 1 -s 192.0.2.1 -j FLANNEL-POSTRTG",
		"-t nat -R POSTROUTING 1 -g FLANNEL-POSTRTG",
		"-t nat -E FLANNEL-POSTRTG OTHER",
	} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			ns.Restore("legacy", "ip", readFile(t, "testdata/everything.v4.save"))
			ns.MustRun("", "iptables-legacy", "-w", "-t", "nat", "-I", "POSTROUTING", "-j", "FLANNEL-POSTRTG")
			ns.MustRun("", "iptables-legacy", "-w", "-t", "nat", "-N", "LOOSE")
			s := read(t, ns, New(), flannelQueries(unflannel.IP)[0])
			ns.MustRun("", "iptables-legacy", append([]string{"-w"}, strings.Fields(change)...)...)
			before := ns.Dump()
			err := remove(ns, context.Background(), New(), s, dropChains(s, "FLANNEL-POSTRTG"))
			if !errors.Is(err, unflannel.ErrConflict) {
				t.Errorf("error %v is no conflict", err)
			}
			if d := netnstest.Diff(before, ns.Dump()); d != "" {
				t.Error(d)
			}
		})
	}
}

// Changes elsewhere in the table are nobody's business.
func TestRemoveBesideChange(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	ns.Restore("legacy", "ip", readFile(t, "testdata/everything.v4.save"))
	s := read(t, ns, New(), flannelQueries(unflannel.IP)[0])
	ns.MustRun("iptables-legacy -w -t nat -I PREROUTING -j RETURN; iptables-legacy -w -t nat -N NEW", "sh")
	want := without(ns.Dump(), "FLANNEL-POSTRTG")
	if err := remove(ns, context.Background(), New(), s, dropChains(s, "FLANNEL-POSTRTG")); err != nil {
		t.Fatal(err)
	}
	if d := netnstest.Diff(want, ns.Dump().WithoutLegacyPolicyCounters()); d != "" {
		t.Error(d)
	}
}

// Beside a writer under the same lock, in the same chains, no rule of either gets
// lost: the removal is applied whole, or is a conflict and can be tried again.
func TestRemoveBesideWriter(t *testing.T) {
	t.Parallel()
	const rounds = 30
	ns := netnstest.New(t)
	ns.Restore("legacy", "ip", "*nat\n:POSTROUTING ACCEPT [0:0]\n:OTHER - [0:0]\nCOMMIT\n")
	done := make(chan error, 1)
	go func() {
		for i := range rounds {
			rules := fmt.Sprintf("*nat\n-A OTHER -m comment --comment other-%d -j RETURN\n-I POSTROUTING -m comment --comment base-%d -j OTHER\nCOMMIT\n", i, i)
			if _, stderr, err := ns.Run(rules, "iptables-legacy-restore", "--noflush", "--wait"); err != nil {
				done <- fmt.Errorf("%w: %s", err, stderr)
				return
			}
		}
		done <- nil
	}()
	conflicts := 0
	for range rounds {
		ns.MustRun("*nat\n:FLANNEL-POSTRTG - [0:0]\n-A FLANNEL-POSTRTG -j RETURN\n-A POSTROUTING -j FLANNEL-POSTRTG\nCOMMIT\n",
			"iptables-legacy-restore", "--noflush", "--wait")
		for {
			s := read(t, ns, New(), flannelQueries(unflannel.IP)[0])
			err := remove(ns, t.Context(), New(), s, dropChains(s, "FLANNEL-POSTRTG"))
			if err == nil {
				break
			}
			if !errors.Is(err, unflannel.ErrConflict) {
				t.Fatal(err)
			}
			conflicts++
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d conflicts", conflicts)
	text := ns.MustRun("", "iptables-legacy-save", "-t", "nat")
	if n := strings.Count(text, "comment other-") + strings.Count(text, "comment base-"); n != 2*rounds || strings.Contains(text, "FLANNEL") {
		t.Errorf("%d rules instead of %d:\n%s", n, 2*rounds, text)
	}
}
