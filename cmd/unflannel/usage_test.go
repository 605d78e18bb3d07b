package main

import (
	"strings"
	"testing"
)

// TestMistakes: each mistake is named in one line with the right spelling, and
// nothing is done.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args string
		want []string
	}{
		{"", []string{"no verb given", "check, clean, version or help"}},
		{"chek", []string{`unknown verb "chek"`, "did you mean check?"}},
		{"remove", []string{`unknown verb "remove"`, "use check, clean, version, help"}},
		{"-v check", []string{`unknown verb "-v"`}},
		{"clean --famly ip", []string{`unknown flag of clean "--famly"`, "did you mean --family?", "unflannel help clean"}},
		{"check --dry-run", []string{`unknown flag of check "--dry-run"`}},
		{"check --frobnicate", []string{`unknown flag of check "--frobnicate": use`, "--backend"}},
		{"clean --backend ntf", []string{`unknown backend "ntf"`, "did you mean nft?"}},
		{"clean --backend nft,iptables", []string{`unknown backend "iptables": use nft, legacy`}},
		{"clean --backend nft,nft", []string{"named twice"}},
		{"clean --backend=", []string{`unknown backend ""`}},
		{"clean --family ipv4", []string{`unknown family "ipv4"`, "did you mean ip?"}},
		{"check --output yaml", []string{`unknown output "yaml": use text, json`}},
		{"check --log-format xml", []string{`unknown log format "xml": use text, json`}},
		{"check --timeout 30", []string{"--timeout", "a number and a unit, such as 30s"}},
		{"check --timeout 0s", []string{"--timeout 0s", "above 0"}},
		{"check --timeout -5s", []string{"--timeout -5s", "above 0"}},
		{"clean --lock-wait 0", []string{"--lock-wait", "above 0"}},
		{"clean --settle -1s", []string{"--settle -1s", "such as 12s"}},
		{"clean --network 10.244.0.0", []string{`"10.244.0.0" is not a network such as 10.244.0.0/16`}},
		{"clean --network 10.244.1.0/16", []string{"the network is 10.244.0.0/16"}},
		{"clean --network 0.0.0.0/0", []string{"every address"}},
		{"clean --subnet-env /nonexistent/subnet.env", []string{"--subnet-env", "/nonexistent/subnet.env: no such file", "unflannel help clean"}},
		{"clean now", []string{`unexpected argument "now"`}},
		{"clean --output", []string{"flag needs an argument: --output"}},
		{"clean --dry-run=maybe", []string{"--dry-run", "without a value"}},
		{"help cleen", []string{`unknown verb "cleen": did you mean clean?`}},
		{"check --netns /nonexistent/ns", []string{"open network namespace /nonexistent/ns", "no such file"}},
		{"check --netns /dev/null", []string{"enter network namespace /dev/null", "it is none", "/proc/PID/ns/net"}},
		{"check --netns=", []string{"--netns", "the path is empty"}},
		{"clean --save=", []string{"--save", "the path is empty"}},
		{"clean --host-root=", []string{"--host-root", "the path is empty"}},
		{"clean --host-root /nonexistent/host", []string{"--host-root", "no such file"}},
		{"clean --subnet-env /dev/null", []string{"--subnet-env /dev/null", "no FLANNEL_NETWORK"}},
		{"clean --host-root /dev/null", []string{"--host-root", "not a directory"}},
		{"clean --host-root /dev/null/x", []string{"--host-root", "not a directory"}},
		{"clean --subnet-env=", []string{"--subnet-env", "the path is empty"}},
		{"clean --save /dev/null", []string{"/dev/null", "file exists", "nothing was removed", "give a new file"}},
	} {
		t.Run(tc.args, func(t *testing.T) {
			t.Parallel()
			r := call(t.Context(), strings.Fields(tc.args)...)
			if r.status != exitFailed || r.stdout != "" || strings.Count(r.stderr, "\n") != 1 {
				t.Errorf("exit status %d, standard output %q, standard error %q", r.status, r.stdout, r.stderr)
			}
			contains(t, "the message", r.stderr, tc.want...)
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ args, want string }{
		{"help", "check     say what is there"},
		{"--help", "usage: unflannel VERB"},
		{"-h", "usage: unflannel VERB"},
		{"help clean", "--lock-wait DURATION"},
		{"clean --help", "--lock-wait DURATION"},
		{"clean -h", "--lock-wait DURATION"},
		{"check --help", "unflannel check says"},
		{"check --host-root /nonexistent/host --subnet-env /nonexistent/subnet.env --netns /nonexistent/ns --help", "unflannel check says"},
		{"clean --save /nonexistent/file --help", "--lock-wait DURATION"},
		{"help version", "usage: unflannel VERB"},
		{"version", "unflannel devel (commit"},
		{"--version", "unflannel devel (commit"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			t.Parallel()
			r := call(t.Context(), strings.Fields(tc.args)...)
			if r.status != 0 || r.stderr != "" {
				t.Errorf("exit status %d, standard error %q", r.status, r.stderr)
			}
			contains(t, "the help", r.stdout, tc.want)
		})
	}
}

// TestCalledOtherwise: the program names itself by how it was called.
func TestCalledOtherwise(t *testing.T) {
	t.Parallel()
	var out, errs strings.Builder
	p := program{name: "calico-unflannel", stdout: &out, stderr: &errs}
	p.main(t.Context(), []string{"help"})
	p.main(t.Context(), []string{"version"})
	p.main(t.Context(), []string{"nonsense"})
	contains(t, "standard output", out.String(), "usage: calico-unflannel VERB", "calico-unflannel help clean", "calico-unflannel devel")
	contains(t, "standard error", errs.String(), "calico-unflannel: unknown verb")
	if strings.Contains(strings.ReplaceAll(out.String()+errs.String(), "calico-unflannel", ""), "unflannel") {
		t.Errorf("the other name stands somewhere:\n%s%s", out.String(), errs.String())
	}
}
