package main

import (
	"log/slog"
	"net/netip"
	"slices"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/legacy"
	"github.com/unflannel/unflannel/node"
)

// lookAround adds to the report what else of the node an operator should know. What
// cannot be looked at is logged: the job itself does not hang on it.
func (s settings) lookAround(r *unflannel.Report, log *slog.Logger) {
	add := func(warnings []string, err error) {
		r.Warnings = append(r.Warnings, warnings...)
		if err != nil {
			log.Warn("could not look around on the node", "error", err)
		}
	}
	add(node.Devices(networksOf(r, s.networks)))
	add(node.SavedRules(s.hostRoot))
	if s.verb == "clean" && s.hostRoot == "" && hasLegacy(r) {
		add(privateLock())
	}
}

func networksOf(r *unflannel.Report, networks []netip.Prefix) []netip.Prefix {
	networks = slices.Clone(networks)
	for _, f := range r.Findings {
		networks = append(networks, f.Networks...)
	}
	return networks
}

func hasLegacy(r *unflannel.Report) bool {
	return slices.ContainsFunc(r.Findings, func(f unflannel.Finding) bool { return f.Backend == "legacy" })
}

func privateLock() ([]string, error) {
	private, err := legacy.LockPrivate()
	if !private {
		return nil, err
	}
	return []string{"the lock of iptables-legacy (/run/xtables.lock) is private to this container: programs of the host that " +
		"write rules at the same moment can undo this change, or lose theirs; mount the host's /run/xtables.lock here"}, err
}
