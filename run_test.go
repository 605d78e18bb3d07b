package unflannel_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/unflannel/unflannel"
)

// scripted is a backend whose answers are made up. The tables that it holds all have
// a chain FLANNEL-FWD; those that are removed are gone.
type scripted struct {
	families []unflannel.Family // of its tables
	readErr  error
	remove   func(attempt int, families []unflannel.Family) (removed []unflannel.Family, err error)
	attempts int
	reads    int
}

func (*scripted) Name() string { return "scripted" }

func (b *scripted) Read(context.Context, []unflannel.Query) (*unflannel.Snapshot, error) {
	b.reads++
	s := &unflannel.Snapshot{Present: []unflannel.Family{unflannel.IP, unflannel.IP6}}
	for _, family := range b.families {
		s.Tables = append(s.Tables, &unflannel.Table{Family: family, Name: "filter", Chains: []*unflannel.Chain{{Name: "FLANNEL-FWD"}}})
	}
	return s, b.readErr
}

func (b *scripted) Remove(_ context.Context, _ *unflannel.Snapshot, removals []unflannel.Removal) error {
	b.attempts++
	var families []unflannel.Family
	for _, r := range removals {
		families = append(families, r.Table.Family)
	}
	removed, err := b.remove(b.attempts, families)
	b.families = slices.DeleteFunc(slices.Clone(b.families), func(f unflannel.Family) bool { return slices.Contains(removed, f) })
	return err
}

// TestRemoveFails: what a backend's Remove can answer, and what Clean makes of it.
func TestRemoveFails(t *testing.T) {
	t.Parallel()
	both := []unflannel.Family{unflannel.IP, unflannel.IP6}
	refused := func(family unflannel.Family, err error) error {
		return &unflannel.Error{Op: "remove rules", Backend: "scripted", Family: family, Table: "filter", Err: err}
	}
	conflict := refused(unflannel.IP, unflannel.ErrConflict)
	for _, tc := range []struct {
		name          string
		remove        func(attempt int, families []unflannel.Family) ([]unflannel.Family, error)
		attempts      int
		removed, left int
		is            error
	}{
		{
			"at once", func(_ int, f []unflannel.Family) ([]unflannel.Family, error) { return f, nil },
			1, 2, 0, nil,
		}, {
			"after conflicts", func(n int, f []unflannel.Family) ([]unflannel.Family, error) {
				if n < 7 {
					return nil, conflict
				}
				return f, nil
			},
			7, 2, 0, nil,
		}, {
			"conflicts for ever", func(int, []unflannel.Family) ([]unflannel.Family, error) { return nil, conflict },
			64, 0, 2, unflannel.ErrConflict,
		}, {
			"it says done, but is not", func(int, []unflannel.Family) ([]unflannel.Family, error) { return nil, nil },
			64, 0, 2, unflannel.ErrConflict,
		}, {
			"one table refused", func(_ int, f []unflannel.Family) ([]unflannel.Family, error) {
				return []unflannel.Family{unflannel.IP6}, refused(unflannel.IP, syscall.EACCES)
			},
			1, 1, 1, syscall.EACCES,
		}, {
			"one table refused, the other after a conflict", func(n int, f []unflannel.Family) ([]unflannel.Family, error) {
				if n == 1 {
					return nil, errors.Join(refused(unflannel.IP, syscall.EACCES), refused(unflannel.IP6, unflannel.ErrConflict))
				}
				if len(f) != 1 {
					return nil, errors.New("the refused table is tried again")
				}
				return f, nil
			},
			2, 1, 1, syscall.EACCES,
		}, {
			"all refused, by no table's name", func(int, []unflannel.Family) ([]unflannel.Family, error) { return nil, syscall.ENOMEM },
			1, 0, 2, syscall.ENOMEM,
		}, {
			"done all the same, though the answer was lost", func(_ int, f []unflannel.Family) ([]unflannel.Family, error) { return f, conflict },
			1, 2, 0, nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := &scripted{families: both, remove: tc.remove}
			report, err := unflannel.Clean(t.Context(), unflannel.Options{}, b)
			if !errors.Is(err, tc.is) || (err == nil) != (tc.is == nil) {
				t.Errorf("error is %v, want %v", err, tc.is)
			}
			removed, left := 0, 0
			for _, f := range report.Findings {
				switch f.State {
				case unflannel.StateRemoved:
					removed++
				case unflannel.StateLeft:
					left++
				}
			}
			if b.attempts != tc.attempts || removed != tc.removed || left != tc.left || report.Backends[0].Attempts != tc.attempts {
				t.Errorf("%d attempts, %d removed, %d left, want %d, %d, %d; backends %+v", b.attempts, removed, left, tc.attempts, tc.removed, tc.left, report.Backends)
			}
			outcome := unflannel.NothingLeft
			if tc.left > 0 {
				outcome = unflannel.Left
				if len(report.Errors) != 1 || !strings.Contains(report.Summary, report.Errors[0].Message) {
					t.Errorf("errors %+v, summary %q", report.Errors, report.Summary)
				}
			}
			if report.Outcome != outcome {
				t.Errorf("outcome %s, want %s", report.Outcome, outcome)
			}
		})
	}
}

// TestReadFails: what cannot be read is unknown; the rest is cleaned all the same.
func TestReadFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		err    error
		states [2]string // of ip and ip6
		state  unflannel.State
	}{
		{"one family", &unflannel.Error{Op: "read names of tables", Backend: "scripted", Family: unflannel.IP6, Err: syscall.EACCES}, [2]string{"read", "unknown"}, unflannel.StateRemoved},
		{"both, each by itself", errors.Join(
			&unflannel.Error{Op: "read", Backend: "scripted", Family: unflannel.IP, Err: syscall.EACCES},
			&unflannel.Error{Op: "read", Backend: "scripted", Family: unflannel.IP6, Err: syscall.EACCES}), [2]string{"unknown", "unknown"}, unflannel.StateLeft},
		{"all", &unflannel.Error{Op: "read ruleset", Backend: "scripted", Err: syscall.EACCES}, [2]string{"unknown", "unknown"}, unflannel.StateLeft},
		{"all, by a plain error", syscall.EACCES, [2]string{"unknown", "unknown"}, unflannel.StateLeft},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := &scripted{
				families: []unflannel.Family{unflannel.IP}, readErr: tc.err,
				remove: func(_ int, f []unflannel.Family) ([]unflannel.Family, error) { return f, nil },
			}
			report, err := unflannel.Clean(t.Context(), unflannel.Options{}, b)
			if !errors.Is(err, syscall.EACCES) || report.Outcome != unflannel.Unknown || !strings.Contains(report.Summary, "could not tell") {
				t.Errorf("error %v, outcome %s: %s", err, report.Outcome, report.Summary)
			}
			if got := [2]string{report.Backends[0].State, report.Backends[1].State}; got != tc.states {
				t.Errorf("states %v, want %v", got, tc.states)
			}
			if len(report.Findings) != 1 || report.Findings[0].State != tc.state {
				t.Errorf("findings %+v, want one that is %s", report.Findings, tc.state)
			}
			if len(b.families) != 0 {
				t.Error("what could be read was not cleaned")
			}
		})
	}
}
