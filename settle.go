package unflannel

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Watcher is a [Backend] whose kernel tells of changes as they happen.
type Watcher interface {
	// Watch sends a Change for each change of the ruleset, until ctx ends or the
	// kernel tells no more. It then closes the channel.
	Watch(ctx context.Context) (<-chan Change, error)
}

// Change is one change of a ruleset.
type Change struct {
	Generation uint32 // of the ruleset after the change; 0 if changes were missed
	Process    Process
	Flannel    bool // something that was written has Flannel's name in it
}

// Process is a process that changed a ruleset.
type Process struct {
	ID   uint32 `json:"id"`   // in the first PID namespace, as the host's ps shows it
	Name string `json:"name"` // its command, of at most 15 bytes
}

// Settled says what happened after cleaning, while [Options.Settle] lasted.
type Settled struct {
	Seconds  float64 `json:"seconds"`  // how long was watched
	Returned bool    `json:"returned"` // whether something that was removed came back
	// Processes are those that wrote something with Flannel's name or, if nobody
	// did, all that changed the ruleset between the last look that found nothing and
	// the first that found something. Only nf_tables tells.
	Processes []Process `json:"processes"`
}

// legacyInterval is how often a backend is read that cannot tell of changes. It
// is well below the 5 s after which flanneld writes its rules again.
const legacyInterval = time.Second

// settler watches what was cleaned.
type settler struct {
	works   []*work
	changes chan change
	told    map[*work][]Change // since its last look that found nothing
	silent  map[*work]bool     // those that have to be read again and again
}

type change struct {
	*work
	Change
	end bool
}

// newSettler begins to watch, so that nothing is missed between the last look of
// cleaning and the first of settling.
func newSettler(ctx context.Context, works []*work) *settler {
	s := &settler{works: works, changes: make(chan change), told: map[*work][]Change{}, silent: map[*work]bool{}}
	for _, w := range works {
		watcher, ok := w.backend.(Watcher)
		if !ok {
			s.silent[w] = true
			continue
		}
		told, err := watcher.Watch(ctx)
		if err != nil {
			w.log.Debug("cannot be watched, only read", "error", err)
			s.silent[w] = true
			continue
		}
		go func() {
			for c := range told {
				s.send(ctx, change{work: w, Change: c})
			}
			s.send(ctx, change{work: w, end: true})
		}()
	}
	return s
}

func (s *settler) send(ctx context.Context, c change) {
	select {
	case s.changes <- c:
	case <-ctx.Done():
	}
}

// settle waits for d, or until something is there again.
func (s *settler) settle(ctx context.Context, d time.Duration) *Settled {
	start := time.Now()
	end := time.NewTimer(d)
	defer end.Stop()
	tick := time.NewTicker(legacyInterval)
	defer tick.Stop()
	settled := func(returned *work) *Settled {
		r := &Settled{Seconds: time.Since(start).Round(time.Millisecond).Seconds(), Processes: []Process{}}
		if returned != nil {
			r.Returned = true
			s.catchUp(ctx, returned)
			r.Processes = append(r.Processes, s.processes(returned)...)
			returned.markReturned(r)
		}
		return r
	}
	for {
		select {
		case c := <-s.changes:
			if c.end {
				s.silent[c.work] = true
				continue
			}
			if c.Generation != 0 && c.Generation <= c.snapshot.Generation {
				continue // seen by the last look
			}
			s.told[c.work] = append(s.told[c.work], c.Change)
			if s.returned(ctx, c.work) {
				return settled(c.work)
			}
		case <-tick.C:
			for w := range s.silent {
				if s.returned(ctx, w) {
					return settled(w)
				}
			}
		case <-end.C:
			for _, w := range s.works {
				if s.returned(ctx, w) {
					return settled(w)
				}
			}
			return settled(nil)
		case <-ctx.Done():
			for _, w := range s.works {
				w.gaveUp = &Error{Op: "watch the ruleset", Backend: w.backend.Name(), Err: context.Cause(ctx), Advice: "run again to watch to the end"}
			}
			return settled(nil)
		}
	}
}

// returned looks again and reports whether there is something to remove. What
// could not be removed before is no news.
func (s *settler) returned(ctx context.Context, w *work) bool {
	w.look(ctx)
	if len(w.removals) > 0 {
		return true
	}
	if w.readErr == nil {
		s.told[w] = nil
	}
	return false
}

// catchUp receives what the kernel told up to the generation of the last look: a
// look sees more than the change that it was for.
func (s *settler) catchUp(ctx context.Context, w *work) {
	last := time.NewTimer(legacyInterval)
	defer last.Stop()
	for !s.silent[w] {
		if told := s.told[w]; len(told) > 0 && told[len(told)-1].Generation >= w.snapshot.Generation {
			return
		}
		select {
		case c := <-s.changes:
			s.silent[c.work] = s.silent[c.work] || c.end
			s.told[c.work] = append(s.told[c.work], c.Change)
		case <-last.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// processes are those whose changes brought back what the last look found.
func (s *settler) processes(w *work) []Process {
	all, named := []Process{}, []Process{}
	for _, c := range s.told[w] {
		if c.Process.ID == 0 || c.Generation > w.snapshot.Generation {
			continue
		}
		if !slices.Contains(all, c.Process) {
			all = append(all, c.Process)
		}
		if c.Flannel && !slices.Contains(named, c.Process) {
			named = append(named, c.Process)
		}
	}
	if len(named) > 0 {
		return named
	}
	return all
}

// markReturned says of all that is there again that it came back.
func (w *work) markReturned(r *Settled) {
	var names []string
	for _, p := range r.Processes {
		names = append(names, fmt.Sprintf("%s (process %d)", p.Name, p.ID))
	}
	by := ""
	switch len(names) {
	case 0:
	case 1:
		by = ", written by " + names[0]
	default:
		by = ", written by one of " + strings.Join(names, ", ")
	}
	for i := range w.found {
		if f := &w.found[i]; f.State == StateFound && f.Reason == "" {
			f.State = StateReturned
			f.Reason = fmt.Sprintf("it came back %.1f s after cleaning%s: flanneld is probably still running, "+
				"which writes its rules again every 5 s; stop it, then run again", r.Seconds, by)
		}
	}
}
