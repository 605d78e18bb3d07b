package netnstest

// LoadNFT loads a ruleset in nft's syntax. It fails the test with what nft says
// if that does not work.
func (ns *NS) LoadNFT(ruleset string) {
	ns.t.Helper()
	ns.MustRun(ruleset, "nft", "-f", "-")
}

// Restore loads a ruleset in iptables-save's syntax, counters included, into the
// backend that iptables calls "nft" or "legacy", for the family "ip" or "ip6". It
// fails the test with what the program says if that does not work.
func (ns *NS) Restore(variant, family, save string) {
	ns.t.Helper()
	program, ok := map[string]string{"ip": "iptables-", "ip6": "ip6tables-"}[family]
	if !ok {
		ns.t.Fatalf("restore: unknown family %q", family)
	}
	args := []string{"-c"}
	switch variant {
	case "nft":
	case "legacy":
		// One lock for all namespaces, and tests that run in parallel.
		args = append(args, "-w", "60")
	default:
		ns.t.Fatalf("restore: unknown variant %q", variant)
	}
	ns.MustRun(save, program+variant+"-restore", args...)
}
