package netnstest

import (
	"os"
	"strings"
)

// sysctl sets the namespace's own copy of a setting, whose name is the path below
// /proc/sys/net.
func (ns *NS) sysctl(name, value string) {
	ns.t.Helper()
	var err error
	ns.Do(func() { err = os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) })
	if err != nil {
		ns.t.Fatalf("set a sysctl in the network namespace: %v", err)
	}
}

// ip runs the ip program with arguments that are separated by spaces.
func (ns *NS) ip(args string) {
	ns.t.Helper()
	ns.MustRun("", "ip", strings.Fields(args)...)
}
