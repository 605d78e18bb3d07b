package unflannel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Options narrow or extend what [Check] and [Clean] do. The zero Options do
// everything on both families.
type Options struct {
	Families []Family // the families to work on; nil for all
	// Networks are cluster networks of Flannel versions before v0.16.2, whose rules
	// bear no name and no comment. Only for these networks are such rules removed.
	Networks []netip.Prefix
	DryRun   bool // Clean removes nothing and reports what it would remove
	// Settle is how long Clean watches afterwards whether leftovers come back. If
	// some do, it removes nothing more and says who wrote them.
	Settle time.Duration
	// Connections is where Clean ends connections that Flannel's rules masqueraded;
	// nil leaves them alone.
	Connections Connections
	Logger      *slog.Logger // where steps are logged, at level Debug; nil for nowhere
}

const (
	// maxAttempts bounds how often a removal is tried while other programs keep
	// writing. The pauses between attempts grow to maxPause, so that all of them
	// together take about five seconds.
	maxAttempts = 64
	maxPause    = 100 * time.Millisecond
	// lastLook is how long the look after an interrupted removal may take.
	lastLook = time.Second
)

// Check reads, and reports what of Flannel's is there. It changes nothing. The
// error joins one [*Error] for each part that could not be read; the report tells
// of the rest.
func Check(ctx context.Context, o Options, backends ...Backend) (*Report, error) {
	return run(ctx, "check", o, backends)
}

// Clean removes what of Flannel's is there, one backend after the other, and
// reports what it removed and what is left. It returns when a fresh look finds
// nothing more that it can remove. The error joins one [*Error] for each part
// that could not be read or removed; the report is complete all the same.
//
// When ctx ends, an nf_tables ruleset is as it was or cleaned, never in between;
// in legacy the same holds of each table.
func Clean(ctx context.Context, o Options, backends ...Backend) (*Report, error) {
	return run(ctx, "clean", o, backends)
}

func run(ctx context.Context, verb string, o Options, backends []Backend) (*Report, error) {
	if o.Families == nil {
		o.Families = []Family{IP, IP6}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	report := &Report{
		SchemaVersion: SchemaVersion, Verb: verb, DryRun: o.DryRun && verb == "clean",
		Backends: []BackendState{}, Findings: []Finding{}, NotTouched: []Finding{},
		Connections: []Connection{}, Warnings: []string{}, Errors: []Problem{},
	}
	changing := verb == "clean" && !o.DryRun
	var works []*work
	for _, b := range backends {
		works = append(works, &work{backend: b, log: o.Logger.With("backend", b.Name()), queries: queries(o.Families), asked: o.Networks})
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var s *settler
	if changing && o.Settle > 0 {
		s = newSettler(watching, works)
	}
	for _, w := range works {
		w.look(ctx)
		if changing {
			w.clean(ctx)
		}
	}
	if s != nil {
		report.Settled = s.settle(ctx, o.Settle)
	}

	var errs []error
	for _, w := range works {
		report.Backends = append(report.Backends, w.states(o.Families)...)
		report.Findings = append(report.Findings, w.findings()...)
		report.NotTouched = append(report.NotTouched, w.notTouched...)
		report.warnOfPolicy(w)
		errs = append(errs, w.errors()...)
	}
	if o.Connections != nil && verb == "clean" {
		if err := report.flush(ctx, o); err != nil {
			errs = append(errs, err)
		}
	}
	for _, err := range errs {
		report.Errors = append(report.Errors, problem(err))
	}
	report.conclude()
	return report, errors.Join(errs...)
}

// work is what one run does with one backend.
type work struct {
	backend Backend
	log     *slog.Logger
	queries []Query
	asked   []netip.Prefix

	snapshot *Snapshot // of the newest look
	readErr  error     // what that look could not read
	found    []Finding // what it found, and
	removals []Removal // what of that to remove

	notTouched []Finding // what it saw that only mentions Flannel

	attempts int
	failed   map[place]error // tables that will not be tried again
	conflict error           // the newest
	gaveUp   error
	removed  []Finding
}

type place struct {
	family Family
	table  string
}

// look reads and decides anew. What was found before and is gone counts as removed.
func (w *work) look(ctx context.Context) {
	before := w.found
	w.found, w.removals, w.notTouched = nil, nil, nil
	w.snapshot, w.readErr = w.backend.Read(ctx, w.queries)
	if w.snapshot == nil {
		w.snapshot = &Snapshot{}
	}
	for _, t := range w.snapshot.Tables {
		d := decide(w.backend.Name(), t, w.asked)
		w.found = append(w.found, d.findings...)
		w.notTouched = append(w.notTouched, d.notTouched...)
		if !d.removal.empty() && w.failed[place{t.Family, t.Name}] == nil {
			w.removals = append(w.removals, d.removal)
		}
	}
	w.log.Debug("looked", "generation", w.snapshot.Generation, "tables", len(w.snapshot.Tables),
		"found", len(w.found), "error", w.readErr)
	for _, f := range gone(before, w.found) {
		if w.unread(f.Family) {
			w.found = append(w.found, f) // for all that is known
		} else {
			w.removed = append(w.removed, f)
		}
	}
}

// unread reports whether the newest look could not read a family, or not all of it.
func (w *work) unread(family Family) bool {
	return slices.ContainsFunc(split(w.readErr), func(err error) bool {
		var e *Error
		return !errors.As(err, &e) || e.Family == "" || e.Family == family
	})
}

// clean removes until a look finds nothing more to remove.
func (w *work) clean(ctx context.Context) {
	for len(w.removals) > 0 {
		if w.attempts == maxAttempts {
			if w.conflict == nil { // removed, they say, and still there
				w.conflict = ErrConflict
			}
			w.gaveUp = &Error{
				Op: "remove leftovers", Backend: w.backend.Name(), Err: w.conflict,
				Advice: fmt.Sprintf("gave up after %d attempts; run again when fewer programs write rules", maxAttempts),
			}
			return
		}
		w.attempts++
		err := w.backend.Remove(ctx, w.snapshot, w.removals)
		w.log.Debug("removed", "attempt", w.attempts, "tables", len(w.removals), "error", err)
		for _, e := range split(err) {
			if errors.Is(e, ErrConflict) {
				w.conflict = e
			} else {
				w.fail(e)
			}
		}
		if ctx.Err() != nil {
			// Say what became of it all the same: a look takes milliseconds.
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
			defer cancel()
			w.look(last)
			if len(w.removals) > 0 {
				w.gaveUp = w.interrupted(ctx)
			}
			return
		}
		// What was looked at before a pause would be old after it. An ended context
		// ends the look as well.
		if err != nil {
			pause(ctx, w.attempts)
		}
		w.look(ctx)
	}
}

// fail notes that a table, or every table, is not to be tried again.
func (w *work) fail(err error) {
	if w.failed == nil {
		w.failed = map[place]error{}
	}
	var e *Error
	if errors.As(err, &e) && e.Table != "" {
		w.failed[place{e.Family, e.Table}] = err
		return
	}
	for _, r := range w.removals {
		w.failed[place{r.Table.Family, r.Table.Name}] = err
	}
}

func (w *work) interrupted(ctx context.Context) error {
	return &Error{
		Op: "remove leftovers", Backend: w.backend.Name(), Err: context.Cause(ctx),
		Advice: "run again to finish",
	}
}

// errors are what the newest look could not read and what could not be removed.
func (w *work) errors() []error {
	errs := split(w.readErr)
	for _, err := range w.failed {
		if !slices.Contains(errs, err) {
			errs = append(errs, err)
		}
	}
	if w.gaveUp != nil {
		errs = append(errs, w.gaveUp)
	}
	slices.SortStableFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// findings are all that was removed, then all that is there.
func (w *work) findings() []Finding {
	for i := range w.removed {
		w.removed[i].State = StateRemoved
	}
	for i := range w.found {
		f := &w.found[i]
		if f.State == StateFound && w.attempts > 0 {
			f.State = StateLeft
		}
		if err := w.failed[place{f.Family, f.Table}]; err != nil && f.Reason == "" {
			f.Reason = "it could not be removed: " + err.Error()
		}
	}
	return append(w.removed, w.found...)
}

func (w *work) states(families []Family) []BackendState {
	states := make([]BackendState, len(families))
	for i, family := range families {
		states[i] = BackendState{Backend: w.backend.Name(), Family: family, State: "absent", Attempts: w.attempts}
		if slices.Contains(w.snapshot.Present, family) {
			states[i].State = "read"
		}
		if w.unread(family) {
			states[i].State = "unknown"
		}
	}
	return states
}

// gone returns what of before is no longer in now. Rules of legacy have no
// handle: equal ones are told apart by their number only.
func gone(before, now []Finding) []Finding {
	type key struct {
		Family
		Kind
		table, chain, rule string
		handle             uint64
	}
	keyOf := func(f Finding) key { return key{f.Family, f.Kind, f.Table, f.Chain, f.Rule, f.Handle} }
	there := map[key]int{}
	for _, f := range now {
		there[keyOf(f)]++
	}
	var missing []Finding
	for _, f := range before {
		if k := keyOf(f); there[k] > 0 {
			there[k]--
		} else {
			missing = append(missing, f)
		}
	}
	return missing
}

// pause waits after the n-th attempt: a millisecond, then about twice as long each
// time. The random part keeps two of us from meeting again and again.
func pause(ctx context.Context, n int) {
	d := min(time.Millisecond<<min(n, 16), maxPause)
	timer := time.NewTimer(d/2 + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// split undoes errors.Join.
func split(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, split(e)...)
		}
		return all
	}
	return []error{err}
}

func problem(err error) Problem {
	p := Problem{Message: err.Error()}
	var e *Error
	if errors.As(err, &e) {
		p.Backend, p.Family, p.Table, p.Chain = e.Backend, e.Family, e.Table, e.Chain
	}
	return p
}
