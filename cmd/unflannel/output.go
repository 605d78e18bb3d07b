package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/unflannel/unflannel"
)

func writeReport(to io.Writer, s settings, r *unflannel.Report) error {
	w := bufio.NewWriter(to) // a tabwriter writes cell by cell
	write := writeText
	if s.output == "json" {
		write = writeJSON
	}
	if err := write(w, s, r); err != nil {
		return err
	}
	return w.Flush()
}

func writeJSON(w io.Writer, _ settings, r *unflannel.Report) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// writeText writes a line for each finding, with the reason below where there is
// one, what was not touched if wanted, and the summary.
func writeText(w io.Writer, s settings, r *unflannel.Report) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	writeFindings(t, r, r.Findings)
	if s.verbose {
		writeFindings(t, r, r.NotTouched)
	}
	for _, c := range r.Connections {
		fmt.Fprintf(t, "%s\tconntrack\t%s\t%s -> %s\tits source was rewritten to %s\n", ended(r), c.Protocol, c.Source, c.Destination, c.Rewritten)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, warning := range r.Warnings {
		if _, err := fmt.Fprintln(w, "warning: "+warning); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, r.Summary)
	return err
}

func writeFindings(t *tabwriter.Writer, r *unflannel.Report, findings []unflannel.Finding) {
	for i, f := range findings {
		counters := ""
		if f.Packets != nil && f.Bytes != nil {
			counters = fmt.Sprintf("%d packets, %d bytes", *f.Packets, *f.Bytes)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s%s\n", state(r, f), f.Backend, f.Family, f.Table, counters, f.Rule, remark(f))
		last := i == len(findings)-1 || findings[i+1].Reason != f.Reason
		if f.Reason != "" && last { // once for all that share it
			fmt.Fprintf(t, "  because %s\n", f.Reason)
		}
	}
}

// remark says behind a rule what it does and who wrote it.
func remark(f unflannel.Finding) string {
	var parts []string
	if f.Effect != "" {
		parts = append(parts, f.Effect)
	}
	if f.Versions != "" {
		parts = append(parts, "Flannel "+f.Versions)
	}
	if len(parts) == 0 {
		return ""
	}
	return "  # " + strings.Join(parts, "; ")
}

// state is what became of a finding, in a word or two.
func state(r *unflannel.Report, f unflannel.Finding) string {
	if r.DryRun && f.State == unflannel.StateFound && f.Reason == "" {
		return "would remove"
	}
	return string(f.State)
}

func ended(r *unflannel.Report) string {
	if r.DryRun {
		return "would end"
	}
	return "ended"
}
