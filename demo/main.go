// Command demo shows, in a terminal and with real packets, the fault that Flannel's
// leftovers cause, and how unflannel ends it:
//
//	go run ./demo bin/unflannel
//
// It makes two nodes out of network namespaces, changes nothing of the machine, and
// needs no root where the kernel lets users make user namespaces. It exits 1 if
// anything is not as it says.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel/netnstest"
)

func main() {
	if err := check(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(2)
	}
	netnstest.AsRoot()
	// Its directory stays the same, so that a relative path is still right.
	program, err := filepath.Abs(os.Args[1])
	if err == nil {
		err = play(screen{w: os.Stdout, color: terminal(os.Stdout)}, program)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// check looks whether all is there that the story needs.
func check(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: demo PROGRAM (the built unflannel; make build makes bin/unflannel)")
	}
	program, err := filepath.Abs(args[0])
	if err == nil {
		_, err = exec.LookPath(program)
	}
	if err != nil {
		return fmt.Errorf("find unflannel: %w (make build makes bin/unflannel)", err)
	}
	// Debian's users do not have them on their PATH.
	os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	var missing []string
	for _, name := range []string{
		"ip", "bridge", "iptables-nft-restore", "iptables-nft-save", "iptables-legacy-restore", "iptables-legacy-save",
	} {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("programs are missing: %s (packages iproute2 and iptables; make tools installs them on Debian)", strings.Join(missing, ", "))
	}
	return nil
}

func terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil && os.Getenv("NO_COLOR") == ""
}
