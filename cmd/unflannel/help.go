package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"text/tabwriter"
)

const overview = `%[1]s finds what Flannel left in a node's firewall and removes it.

usage: %[1]s VERB [FLAG…]

  check     say what is there; changes nothing
  clean     remove it and say what was removed
  version   print the version
  help      print this text, or that of a verb: %[1]s help clean

exit status of check: 0 nothing of Flannel's is there, 1 something is, 2 it could not be told
exit status of clean: 0 nothing is left, 1 something is, 2 it failed and what is left could not be told
`

var summaries = map[string]string{
	"check": "%[1]s check says what Flannel left in this node's firewall. It changes nothing.\n\n" +
		"exit status: 0 nothing of Flannel's is there, 1 something is, 2 it could not be told\n",
	"clean": "%[1]s clean removes what Flannel left in this node's firewall, and nothing else.\n\n" +
		"exit status: 0 nothing is left, 1 something is, 2 it failed and what is left could not be told\n",
}

// help prints the overview, or the help of a verb.
func (p program) help(topic string) error {
	summary, ok := summaries[topic]
	switch {
	case topic == "" || topic == "help" || topic == "version":
		_, err := fmt.Fprintf(p.stdout, overview, p.name)
		return err
	case !ok:
		return errors.New(unknown("verb", topic, verbs))
	}
	if _, err := fmt.Fprintf(p.stdout, summary+"\nflags:\n", p.name); err != nil {
		return err
	}
	t := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	s := settings{verb: topic}
	s.flags().VisitAll(func(f *flag.Flag) { fmt.Fprintln(t, "  "+flagHelp(f)) })
	return t.Flush()
}

// flagHelp is the line of a flag: name, value, meaning, default.
func flagHelp(f *flag.Flag) string {
	value, usage := flag.UnquoteUsage(f)
	left := dashed(f.Name)
	if value != "" {
		left += " " + strings.ToUpper(value)
	}
	if f.DefValue != "" && f.DefValue != "false" {
		usage += fmt.Sprintf(" (default %s)", f.DefValue)
	}
	return left + "\t" + usage
}
