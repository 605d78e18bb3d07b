package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/unflannel/unflannel"
)

func writeReport(w io.Writer, format string, r *unflannel.Report) error {
	if format == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(r)
	}
	return writeText(w, r)
}

// writeText writes a line for each finding, with the reason below where there is
// one, and the summary.
func writeText(w io.Writer, r *unflannel.Report) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	reason := ""
	for _, f := range r.Findings {
		counters := ""
		if f.Packets != nil && f.Bytes != nil {
			counters = fmt.Sprintf("%d packets, %d bytes", *f.Packets, *f.Bytes)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", state(r, f), f.Backend, f.Family, f.Table, counters, f.Rule)
		if f.Reason != "" && f.Reason != reason {
			fmt.Fprintf(t, "\t%s\n", f.Reason)
		}
		reason = f.Reason
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, r.Summary)
	return err
}

// state is what became of a finding, in a word or two.
func state(r *unflannel.Report, f unflannel.Finding) string {
	if r.DryRun && f.Reason == "" {
		return "would remove"
	}
	return string(f.State)
}
