package main

import (
	"embed"
	"os/exec"
)

//go:embed ways/*.sh
var scripts embed.FS

// way is one way to remove the leftovers, or to look for them.
type way struct {
	name    string
	command []string
	status  int  // that it exits with
	looks   bool // it removes nothing
}

// The ways that are compared with others, by name.
const (
	check    = "unflannel check"
	clean    = "unflannel clean"
	floor    = "floor: the same messages, nothing else"
	sequence = "four programs: iptables -D, -F, -X"
	handles  = "nft -a list, nft delete"
	filter   = "iptables-save, grep -v, iptables-restore"
)

// variants are the two packet filters, with their titles.
var variants = []struct{ name, title string }{
	{"nft", "nf_tables (iptables-nft)"},
	{"legacy", "iptables-legacy"},
}

// ways returns those that there are for a variant.
func (b *bench) ways(variant string) []way {
	all := []way{
		{name: check, command: []string{b.unflannel, "check"}, status: 1, looks: true},
		{name: clean, command: []string{b.unflannel, "clean"}},
	}
	if variant == "nft" {
		all = append(all, way{name: floor, command: []string{b.floor}})
	}
	all = append(all, way{name: sequence, command: script("sequence")})
	if variant == "nft" {
		all = append(all, way{name: handles, command: script("handles")})
	}
	return append(all, way{name: filter, command: script("filter", variant)})
}

func script(name string, arg ...string) []string {
	text, err := scripts.ReadFile("ways/" + name + ".sh")
	if err != nil {
		panic(err) // embedded
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		shell = "/bin/sh"
	}
	return append([]string{shell, "-c", string(text), name}, arg...)
}
