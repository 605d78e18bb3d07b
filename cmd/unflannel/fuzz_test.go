package main

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/unflannel/unflannel"
)

// mustBeNetworks fails the test unless all are networks that rules can be for.
func mustBeNetworks(t *testing.T, networks []netip.Prefix) {
	t.Helper()
	for _, n := range networks {
		if !n.IsValid() || n.Masked() != n || n.Bits() == 0 {
			t.Errorf("the network %v", n)
		}
	}
}

// FuzzSubnetEnv: a file of Flannel's is read, or refused with a reason.
func FuzzSubnetEnv(f *testing.F) {
	for _, s := range []string{
		"FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n",
		"FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_IPV6_NETWORK=fd00:10:244::/56\nFLANNEL_IPV6_SUBNET=fd00:10:244:1::1/64\n",
		"FLANNEL_NETWORK=10.244.0.0/16,10.96.0.0/12\r\n",
		"FLANNEL_NETWORK=\nFLANNEL_IPV6_NETWORK=::/0\n",
		" FLANNEL_NETWORK = 10.244.0.0/16", "FLANNEL_NETWORK=10.244.1.1/16", "FLANNEL_NETWORK=::ffff:10.0.0.0/104", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		networks, err := parseSubnetEnv(text)
		switch {
		case err != nil && (len(networks) > 0 || err.Error() == ""):
			t.Errorf("networks %v with the error %q", networks, err)
		case err == nil && (len(networks) == 0 || !strings.Contains(text, "FLANNEL_")):
			t.Errorf("networks %v of %q", networks, text)
		}
		mustBeNetworks(t, networks)
	})
}

// FuzzFlags: a command line, one argument to a line, is understood or refused with
// a reason.
func FuzzFlags(f *testing.F) {
	for _, s := range []string{
		"", "--help", "-h", "--", "-", "---", "--=", "x", "-v\n-v", "--dry-run=maybe", "--dry-run\nfalse",
		"--backend\nnft,legacy", "--backend=nft,nft", "--family\nip6", "--family=", "--familly=ip",
		"--network\n10.244.0.0/16\n--network=fd00::/56", "--network=10.0.0.1/8", "--network=0.0.0.0/0",
		"--timeout=1ms", "--timeout=-1s", "--timeout=9999999h", "--timeout=1", "--lock-wait\n0s",
		"--output\njson\n--log-format=json", "--output=yaml", "--netns=/run/netns/x\n--host-root=/host",
		"--termination-log=\n--settle=12s\n--save=x", "--save=", "--host-root=", "--subnet-env=/run/flannel/subnet.env\n--subnet-env=", "--nettwork=\x1b[2J",
	} {
		f.Add(true, s)
		f.Add(false, s)
	}
	f.Fuzz(func(t *testing.T, clean bool, line string) {
		s := settings{verb: "check"}
		if clean {
			s.verb = "clean"
		}
		args := strings.Split(line, "\n")
		if err := s.parse(args); err != nil {
			if err.Error() == "" || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error %q", err)
			}
			return
		}
		mustBeNetworks(t, s.networks)
		if s.timeout <= 0 || clean && s.lockWait <= 0 {
			t.Errorf("timeout %v, lock wait %v", s.timeout, s.lockWait)
		}
		if !clean && (s.dryRun || s.lockWait != 0) {
			t.Error("check took a flag of clean")
		}
		for _, b := range s.backends {
			if !slices.Contains(backendNames, b) {
				t.Errorf("backend %q", b)
			}
		}
		for _, family := range s.families {
			if family != unflannel.IP && family != unflannel.IP6 {
				t.Errorf("family %q", family)
			}
		}
		if len(s.backends) == 0 || len(s.families) == 0 || !slices.Contains(outputs, s.output) || !slices.Contains(logFormats, s.logFormat) {
			t.Errorf("backends %q, families %q, output %q, log format %q", s.backends, s.families, s.output, s.logFormat)
		}
	})
}
