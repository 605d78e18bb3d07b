package netnstest

// LoadNFT loads a ruleset in nft's syntax. It fails the test with what nft says
// if that does not work.
func (ns *NS) LoadNFT(ruleset string) {
	ns.t.Helper()
	ns.MustRun(ruleset, "nft", "-f", "-")
}

// Restore loads a ruleset in iptables-save's syntax, counters included, into the
// backend that iptables calls "nft" or "legacy", for the family "ip" or "ip6". It
// replaces the tables that the ruleset has. It fails the test with what the
// program says if that does not work.
func (ns *NS) Restore(variant, family, save string) {
	ns.t.Helper()
	ns.restore(variant, family, save)
}

// Append is [NS.Restore] on top of what is there: nothing goes but the rules of
// chains that the ruleset declares and that are not built in.
func (ns *NS) Append(variant, family, save string) {
	ns.t.Helper()
	ns.restore(variant, family, save, "--noflush")
}

func (ns *NS) restore(variant, family, save string, arg ...string) {
	ns.t.Helper()
	program, ok := map[string]string{"ip": "iptables-", "ip6": "ip6tables-"}[family]
	if !ok {
		ns.t.Fatalf("restore: unknown family %q", family)
	}
	arg = append(arg, "-c")
	switch variant {
	case "nft":
	case "legacy":
		// One lock for all namespaces, and tests that run in parallel.
		arg = append(arg, "-w", "60")
	default:
		ns.t.Fatalf("restore: unknown variant %q", variant)
	}
	ns.MustRun(save, program+variant+"-restore", arg...)
}
