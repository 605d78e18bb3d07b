package main

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/unflannel/unflannel/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

// result is what one call of the command printed, and its exit status.
type result struct {
	status         int
	stdout, stderr string
}

// call calls the command in this process, in the current network namespace.
func call(ctx context.Context, args ...string) result {
	var stdout, stderr bytes.Buffer
	status := program{name: "unflannel", stdout: &stdout, stderr: &stderr}.main(ctx, args)
	return result{status, stdout.String(), stderr.String()}
}

// callIn calls it in a network namespace. It writes no termination log, since the
// machine that runs the tests may be a pod.
func callIn(t *testing.T, ns *netnstest.NS, args ...string) result {
	t.Helper()
	var r result
	if len(args) > 0 && (args[0] == "check" || args[0] == "clean") {
		args = append([]string{args[0], "--termination-log="}, args[1:]...)
	}
	ns.Do(func() { r = call(t.Context(), args...) })
	return r
}

// newNode is a namespace with a real node's leftovers in nf_tables.
func newNode(t *testing.T) *netnstest.NS {
	t.Helper()
	ns := netnstest.New(t)
	ns.Restore("nft", "ip", ruleset(t, "flannel-v0.28.9-iptables-busy-node.v4.save"))
	return ns
}

func ruleset(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../testdata/rulesets/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// contains fails the test for each part that a text lacks.
func contains(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s lacks %q:\n%s", what, part, text)
		}
	}
}

// elsewhereThread runs f on a thread that ends with it.
func elsewhereThread(f func() result) result {
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread dies with the goroutine
		done <- f()
	}()
	return <-done
}
