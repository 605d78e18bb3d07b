package legacy

import (
	"context"
	"errors"
	"io/fs"
	"os/exec"
	"strings"

	"github.com/unflannel/unflannel"
)

// The file of names belongs to the root user of the network namespace's user
// namespace, whatever capabilities a reader has; the tables want CAP_NET_ADMIN.

func adviceOnNames(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "run as root: only root may read which tables exist"
	case errors.Is(err, fs.ErrNotExist):
		return "mount /proc"
	}
	return ""
}

func adviceOnTable(err error) string {
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return adviceOnPrograms
	case errors.Is(err, fs.ErrPermission):
		return "run with CAP_NET_ADMIN"
	}
	return ""
}

func adviceOnRemove(err error) string {
	e := failedProgram(err)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return adviceOnPrograms
	case errors.Is(err, errLocked):
		return "try again, or raise --lock-wait"
	case errors.Is(err, errNotUnderstood):
		return "remove these rules by hand"
	case errors.Is(err, unflannel.ErrConflict), errors.Is(err, context.Canceled), e == nil:
		return ""
	case !e.started && e.program.root != "" && errors.Is(err, fs.ErrPermission):
		return "running the host's programs needs CAP_SYS_CHROOT"
	// iptables does not say why it cannot open a table.
	case errors.Is(err, fs.ErrPermission), strings.Contains(e.stderr, "nitialize"):
		return "run as root with CAP_NET_ADMIN and CAP_NET_RAW"
	case strings.Contains(e.stderr, "lock file"):
		return "make the directory of the lock, /run, writable, or set XTABLES_LOCKFILE"
	}
	return ""
}
