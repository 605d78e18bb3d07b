package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// leftovers are what Flannel v0.28.9 leaves, by family. Its files are of the first
// version that wrote the same.
var leftovers = map[string]string{
	"ip":  "flannel-v0.22.3-iptables.v4.save",
	"ip6": "flannel-v0.22.3-iptables.v6.save",
}

// readLeftovers reads the leftovers of a family, without the built-in chains, which
// are there already.
func readLeftovers(family string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(root, "testdata/rulesets", leftovers[family]))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, ":") || strings.HasPrefix(line, ":FLANNEL") {
			b.WriteString(line)
		}
	}
	return b.String(), nil
}

// moduleRoot is the directory of go.mod, here or above.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no go.mod in %s or above", dir)
		}
	}
}
