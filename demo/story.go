package main

import (
	"errors"
	"net"
	"os/exec"
	"slices"
	"strings"

	"github.com/unflannel/unflannel/netnstest"
)

// story is one telling of it.
type story struct {
	*netnstest.Stage
	screen
	program string // the path of unflannel
	fault   *netnstest.Fault
	variant string // of iptables: "nft" or "legacy"
}

// play tells the story for both of the kernel's packet filters. The error says
// where it does not hold.
func play(out screen, program string) error {
	out.say("%s", out.paint(bold, "From Flannel to Calico: the firewall rules that stay behind"))
	out.say("%s", introduction)
	for _, variant := range []string{"nft", "legacy"} {
		s := &story{Stage: &netnstest.Stage{Output: out.w}, screen: out, program: program, variant: variant}
		if err := s.Run(s.tell); err != nil {
			return err
		}
	}
	out.head("How this was made")
	out.say("%s", ending)
	return nil
}

const introduction = `
Flannel and Calico connect the pods of a Kubernetes cluster. This cluster has moved
from Flannel to Calico. Flannel's program is gone from every node; the firewall rules
that it wrote are not, for nothing removes them. Two nodes are enough to see what
comes of it:

     the client's node                              the server's node
  +-----------------------------+                +-----------------------------+
  |  pod 10.244.77.5            |                |            pod 10.244.88.9  |
  |   |                         |                |                          |  |
  |   |  Flannel's old rules:   |                |  NetworkPolicy:          |  |
  |   |  they write a wrong     |                |  port 8080 is only for   |  |
  |   |  sender on packets      |                |  10.244.77.5;            |  |
  |   |                         |                |  port 9090 is for all    |  |
  |   |                         | Calico's tunnel|                          |  |
  |  vxlan.calico 10.244.77.0 ==|================|== vxlan.calico 10.244.88.0  |
  +-----------------------------+                +-----------------------------+

The rules on the client's node are those of a real flanneld v0.22.3. Beside them
stand rules of kube-proxy, of Calico, and of an operator, which have to stay.`

const ending = `All packets were real. The nodes and pods were network namespaces, which had nothing
in common with this machine's network and are gone now; its own firewall was neither
read nor changed.`

func (s *story) tell() {
	s.fault = netnstest.NewFault(s, "ip")
	s.fault.Policy(s.variant)
	s.fault.Sender.Restore(s.variant, "ip", ownSave)
	s.fault.Sender.Append(s.variant, "ip", flannelSave)
	first := s.variant == "nft"
	if first {
		s.head("1. What the operator sees")
	} else {
		s.head("The same with iptables-legacy, the older of the kernel's two packet filters")
	}
	s.denied(netnstest.PolicyPort)
	s.masqueraded(netnstest.OpenPort)
	if first {
		s.say(`
The packets bear the address of the node's tunnel, 10.244.77.0, in place of the pod's.
The policy does not know that address and drops them. Nothing is logged.`)
		s.head("2. What unflannel finds on the client's node (nf_tables, which iptables writes to today)")
	}
	found := s.unflannel("check", 1)
	s.expect(strings.Contains(found, "FLANNEL-POSTRTG") && strings.Contains(found, "FLANNEL-FWD"), "check names the chains")
	s.show(found, first)
	if first {
		s.say(`
The MASQUERADE rule that has counted packets is the one that did it: it gave our two
connections the wrong sender.`)
	}

	if first {
		s.head("3. What it removes")
	}
	before := saved(s.fault.Sender, s.variant)
	removed := s.unflannel("clean", 0)
	s.show(removed, false)
	s.changes(before, saved(s.fault.Sender, s.variant))
	s.show(s.unflannel("check", 0), true)

	if first {
		s.head("4. The traffic is back, and nothing else was done")
	}
	s.reached(netnstest.PolicyPort)
	s.reached(netnstest.OpenPort)
}

// dial prints the attempt to connect.
func (s *story) dial(port uint16) (string, error) {
	what := "no policy"
	if port == netnstest.PolicyPort {
		what = "the policy admits this pod"
	}
	s.say("  %s to %s, port %d (%s)", s.fault.ClientAddr, s.fault.ServerAddr, port, what)
	seen, err := s.fault.Dial(port)
	return seen.String(), err
}

func (s *story) denied(port uint16) {
	_, err := s.dial(port)
	var timeout net.Error
	s.expect(errors.As(err, &timeout) && timeout.Timeout(), "the connection to port %d times out (error: %v)", port, err)
	s.bad("no answer: the connection times out")
}

func (s *story) masqueraded(port uint16) {
	seen, err := s.dial(port)
	s.expect(err == nil && seen == s.fault.TunnelAddr.String(), "the server sees %s (it sees %s, error: %v)", s.fault.TunnelAddr, seen, err)
	s.bad("connected; the server logs a connection from %s, which is not the pod", seen)
}

func (s *story) reached(port uint16) {
	seen, err := s.dial(port)
	s.expect(err == nil && seen == s.fault.ClientAddr.String(), "the server sees %s (it sees %s, error: %v)", s.fault.ClientAddr, seen, err)
	s.good("connected; the server logs a connection from %s", seen)
}

// unflannel runs the program on the client's node and returns its standard output.
func (s *story) unflannel(verb string, status int) string {
	s.command("unflannel " + verb)
	stdout, stderr, err := s.fault.Sender.Run("", s.program, verb)
	got := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		s.Fatalf("run unflannel: %v", err)
	}
	s.expect(got == status, "unflannel %s exits %d (it exits %d)\n%s%s", verb, status, got, stdout, stderr)
	return stdout
}

// show prints a program's output, or its last line only.
func (s *story) show(text string, whole bool) {
	if !whole {
		lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
		text = lines[len(lines)-1]
		if len(lines) > 1 {
			s.output("[a line for each, and]")
		}
	}
	s.output(text)
}

// changes prints what clean did to the ruleset.
func (s *story) changes(before, after []string) {
	flannel, others := split(before)
	s.expect(slices.Equal(after, others), "Flannel's lines go and the others stay as they were: before %q, after %q", before, after)
	s.say("")
	s.command("diff before after     (of iptables-" + s.variant + "-save)")
	if s.variant == "nft" {
		for _, line := range flannel {
			s.bad("- %s", line)
		}
	}
	s.say("      %d lines of Flannel gone, the %d others unchanged\n", len(flannel), len(others))
}

// expect ends the story where something is not as it says.
func (s *story) expect(holds bool, format string, args ...any) {
	if !holds {
		s.Fatalf("the story does not hold; expected: "+format, args...)
	}
}
