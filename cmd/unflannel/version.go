package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by the linker (see the Makefile).
var (
	version = "devel"
	commit  = ""
)

// versionLine is the answer of the verb version: program, version, commit, Go.
func versionLine(name string) string {
	c := commit
	if c == "" {
		c = "unknown"
		if info, ok := debug.ReadBuildInfo(); ok {
			for _, s := range info.Settings {
				if s.Key == "vcs.revision" {
					c = s.Value
				}
			}
		}
	}
	return fmt.Sprintf("%s %s (commit %s, %s, %s/%s)", name, version, c, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
