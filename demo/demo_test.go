package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unflannel/unflannel/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

func TestDemo(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "unflannel")
	if out, err := exec.Command("go", "build", "-o", program, "../cmd/unflannel").CombinedOutput(); err != nil {
		t.Fatalf("build unflannel: %v\n%s", err, out)
	}
	var out strings.Builder
	if err := play(screen{w: &out}, program); err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
	// In this order, for each packet filter.
	text := out.String()
	for range 2 {
		for _, line := range []string{
			"no answer: the connection times out",
			"the server logs a connection from 10.244.77.0, which is not the pod",
			"$ unflannel check",
			"$ unflannel clean",
			"12 lines of Flannel gone",
			"$ unflannel check",
			"nothing of Flannel is left on this node",
			"the server logs a connection from 10.244.77.5\n",
			"the server logs a connection from 10.244.77.5\n",
		} {
			_, rest, found := strings.Cut(text, line)
			if !found {
				t.Fatalf("%q is not where it should be in:\n%s", line, &out)
			}
			text = rest
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("colours in what is no terminal")
	}
}

// A program that does nothing must not pass for unflannel.
func TestDemoFails(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := play(screen{w: &out}, program); err == nil || !strings.Contains(err.Error(), "unflannel check exits 1") {
		t.Errorf("error: %v, want one of check's exit status", err)
	}
}

func TestCopy(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../testdata/rulesets/flannel-v0.22.3-iptables.v4.save")
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != flannelSave {
		t.Error("flannel.save is not the file of testdata/rulesets")
	}
}
