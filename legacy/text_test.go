package legacy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/netnstest"
)

// What is read as text is what the kernel shows, but for what only the kernel or
// only the text has: there, parts that are not understood.
func TestTextIsWhatTheKernelShows(t *testing.T) {
	t.Parallel()
	for _, family := range families {
		for _, file := range savesOf(t, family.Family) {
			t.Run(strings.TrimPrefix(filepath.Clean(file), "../testdata/"), func(t *testing.T) {
				t.Parallel()
				ns := netnstest.New(t)
				ns.Restore("legacy", string(family.Family), readFile(t, file))
				queries := queryAll(t, family.Family, readFile(t, file))
				compareSnapshots(t, read(t, ns, textBackend(), queries...), read(t, ns, New(), queries...))
			})
		}
	}
}

func compareSnapshots(t *testing.T, have, want *unflannel.Snapshot) {
	t.Helper()
	for i, table := range want.Tables {
		for n, c := range table.Chains {
			h := have.Tables[i].Chains[n]
			if h.Name != c.Name || h.Hook != c.Hook || h.Policy != c.Policy || len(h.Rules) != len(c.Rules) || len(h.References) != len(c.References) {
				t.Errorf("have %v, want %v", h, c)
				continue
			}
			for k := range c.Rules {
				compareText(t, h.Rules[k], c.Rules[k])
			}
			for k := range c.References {
				compareText(t, h.References[k], c.References[k])
			}
		}
	}
}

func compareText(t *testing.T, have, want unflannel.Rule) {
	t.Helper()
	if !hasOneForm(want) {
		if have.Position != want.Position || have.Packets != want.Packets || have.Bytes != want.Bytes || have.Target.Name != want.Target.Name {
			t.Errorf("have %v, want %v", have, want)
		}
		return
	}
	if !sameRule(have, want) || have.Packets != want.Packets || have.Bytes != want.Bytes || have.Counted != want.Counted {
		t.Errorf("have %+v\nwant %+v", have, want)
	}
}

func TestParseSaveRefuses(t *testing.T) {
	t.Parallel()
	const head = "*nat\n:POSTROUTING ACCEPT [0:0]\n"
	for name, text := range map[string]string{
		"rule outside of a table":  "-A POSTROUTING -j ACCEPT\n",
		"chain outside of a table": ":POSTROUTING ACCEPT [0:0]\n",
		"end outside of a table":   "COMMIT\n",
		"table in a table":         head + "*nat\nCOMMIT\n",
		"no end":                   head,
		"chain twice":              head + ":POSTROUTING ACCEPT [0:0]\nCOMMIT\n",
		"chain without a policy":   "*nat\n:POSTROUTING\nCOMMIT\n",
		"rule of no chain":         head + "-A OTHER -j ACCEPT\nCOMMIT\n",
		"no append":                head + "-I POSTROUTING -j ACCEPT\nCOMMIT\n",
		"rest of a broken line":    head + "-A POSTROUTING -m comment --comment \"a\nb\" -j ACCEPT\nCOMMIT\n",
		"nothing known":            "\x00\n",
	} {
		if _, err := parseSave([]byte(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, rule := range map[string]string{
		"quote without an end":  "-m comment --comment \"a",
		"option without value":  "-s",
		"unknown option":        "--frobnicate",
		"value without option":  "x",
		"match without a name":  "-m",
		"target without a name": "-j",
	} {
		saved, err := parseSave([]byte(head + "-A POSTROUTING " + rule + "\nCOMMIT\n"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if r, err := saved[0].parse(saved[0].rules[0]); err == nil {
			t.Errorf("%s: no error, but %s", name, r)
		}
	}
	if _, err := (&savedTable{}).parse(savedRule{counters: "1:x", line: "-A X"}); err == nil {
		t.Error("counters: no error")
	}
}

// A comment with a line break makes two lines of one rule, and the second may look
// like a rule. The kernel counts fewer of them.
func TestForgedLines(t *testing.T) {
	t.Parallel()
	for name, comment := range map[string]string{
		"a rule":             "x\n-A FORWARD -j FLANNEL-FWD\n#",
		"a rule and a quote": "x\n-A FLANNEL-FWD -m comment --comment \"y",
		"a chain":            "x\n:OTHER - [0:0]\n#",
		"an end":             "x\nCOMMIT\n*filter\n#",
		"anything":           "x\ny",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			ns.Restore("legacy", "ip", readFile(t, "testdata/everything.v4.save"))
			ns.MustRun("", "iptables-legacy", "-w", "-I", "FORWARD", "-m", "comment", "--comment", comment, "-j", "ACCEPT")
			s := read(t, ns, New(), flannelQueries(unflannel.IP)[1])
			before := ns.Dump()
			err := remove(ns, t.Context(), New(), s, dropChains(s, "FLANNEL-FWD"))
			checkFailure(t, err, []string{"output is not understood, nothing was removed", "remove these rules by hand"})
			if d := netnstest.Diff(before, ns.Dump()); d != "" {
				t.Error(d)
			}
		})
	}
}

func FuzzParseSave(f *testing.F) {
	for _, pattern := range []string{"testdata/*.save", "../testdata/rulesets/*.save", "../testdata/cases/*/before.*.save"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatal(pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		saved, err := parseSave(text)
		if err != nil {
			return
		}
		for _, s := range saved {
			if s.entries() <= len(s.rules) {
				t.Errorf("%d entries for %d rules", s.entries(), len(s.rules))
			}
			for _, r := range s.rules {
				if rule, err := s.parse(r); err == nil {
					_ = rule.String()
				}
			}
			_, _ = s.chains([]string{"POSTROUTING", "FORWARD", "FLANNEL-POSTRTG", "FLANNEL-FWD"})
		}
	})
}
