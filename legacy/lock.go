package legacy

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
)

// lockVariable is the environment variable by which newer iptables
// take another file than /run/xtables.lock for its lock.
const lockVariable = "XTABLES_LOCKFILE"

// LockPrivate reports whether the lock that iptables takes here is this
// container's own. Then it keeps nobody away: iptables of the host and of other
// containers writes the same tables under another lock, and each undoes the
// other's changes without a word. It does not concern a Backend with a HostRoot.
func LockPrivate() (bool, error) {
	if os.Getenv(lockVariable) != "" {
		return false, nil // somebody has decided
	}
	f, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return false, err
	}
	defer f.Close()
	return lockPrivate(f)
}

// lockPrivate reads mountinfo: the lock is private if the root file system is an
// overlay, as containers have it, and nothing is mounted at the lock or above.
func lockPrivate(mountinfo io.Reader) (bool, error) {
	container, mounted := false, false
	lines := bufio.NewScanner(mountinfo)
	lines.Buffer(nil, 1<<20) // an overlay's options name all its layers
	for lines.Scan() {
		// ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS [TAG…] - TYPE SOURCE OPTIONS
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		if !ok || len(fields) < 6 {
			return false, fmt.Errorf("read mountinfo: unknown line %q", lines.Text())
		}
		switch fields[4] {
		case "/":
			fstype, _, _ := strings.Cut(after, " ")
			container = fstype == "overlay" || fstype == "fuse.fuse-overlayfs" // the last one is on top
		case "/run/xtables.lock", "/run", "/var/run":
			mounted = true
		}
	}
	return container && !mounted, lines.Err()
}
