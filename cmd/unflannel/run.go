package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/conntrack"
	"github.com/unflannel/unflannel/legacy"
	"github.com/unflannel/unflannel/nft"
)

// run does what check or clean were asked to, and says it everywhere.
func (p program) run(ctx context.Context, s settings) (int, error) {
	log := newLogger(p.stderr, s)
	if s.netns != "" {
		if err := enter(s.netns); err != nil {
			return exitFailed, err
		}
	}
	var saved *undo
	if s.save != "" && !s.dryRun {
		var err error
		if saved, err = newUndo(s.save); err != nil {
			return exitFailed, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout+s.settle)
	defer cancel()

	do := unflannel.Check
	if s.verb == "clean" {
		do = unflannel.Clean
	}
	options := unflannel.Options{Families: s.families, Networks: s.networks, DryRun: s.dryRun, Settle: s.settle, Logger: log}
	if s.flush {
		options.Connections = &conntrack.Table{Logger: log}
	}
	report, _ := do(ctx, options, s.newBackends(log)...)
	s.lookAround(report, log)
	for _, e := range report.Errors { // all that the error says, too
		log.Error(e.Message)
	}
	if err := writeReport(p.stdout, s, report); err != nil {
		return exitFailed, fmt.Errorf("write the result: %w", err)
	}
	if saved != nil {
		lines, err := saved.write(report)
		for _, line := range lines {
			fmt.Fprintln(p.stderr, line)
		}
		if err != nil {
			return exitFailed, err
		}
	}
	if err := writeTerminationLog(s.termLog, report.Summary); err != nil {
		log.Warn("the summary could not be written for Kubernetes", "error", err)
	}
	return exitStatus(report), nil
}

func exitStatus(r *unflannel.Report) int {
	switch r.Outcome {
	case unflannel.NothingLeft:
		return exitNothingLeft
	case unflannel.Left:
		return exitLeft
	}
	return exitFailed
}

func (s settings) newBackends(log *slog.Logger) []unflannel.Backend {
	var backends []unflannel.Backend
	for _, name := range s.backends {
		switch name {
		case "nft":
			b := nft.New()
			b.Logger = log
			backends = append(backends, b)
		case "legacy":
			b := legacy.New()
			b.Logger, b.HostRoot = log, s.hostRoot
			if s.lockWait > 0 {
				b.LockWait = s.lockWait
			}
			backends = append(backends, b)
		}
	}
	return backends
}

// enter moves the calling goroutine to another network namespace for good. The
// namespace belongs to the thread: all sockets and child processes have to come from it.
func enter(path string) error {
	runtime.LockOSThread()
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", path, err)
	}
	defer ns.Close()
	err = netns.Set(ns)
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("enter network namespace %s: %w; this needs the capability CAP_SYS_ADMIN", path, err)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("enter network namespace %s: %w; it is none: give a path such as /run/netns/NAME or /proc/PID/ns/net", path, err)
	case err != nil:
		return fmt.Errorf("enter network namespace %s: %w", path, err)
	}
	return nil
}

func newLogger(w io.Writer, s settings) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelWarn}
	if s.verbose {
		options.Level = slog.LevelDebug
	}
	if s.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// writeTerminationLog writes the summary where Kubernetes looks for it. The file
// is never created: outside of a pod there is none.
func writeTerminationLog(path, summary string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, summary)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
