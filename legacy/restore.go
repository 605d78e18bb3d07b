package legacy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/unflannel/unflannel"
)

// The exit statuses of iptables-restore.
const (
	statusFailed   = 1 // a line failed: what it names is not there, or still in use
	statusSyntax   = 2 // a line, an option or an extension is unknown to it
	statusNoTable  = 3
	statusResource = 4 // it did not get the lock, cannot open it, or may not do this
)

var errLocked = errors.New("the xtables lock is held by another program")

// restore gives input to iptables-restore. If it fails, nothing was changed, unless
// the program came to no exit status: then a look has to tell.
func (b *Backend) restore(ctx context.Context, p program, input []byte) error {
	// In one word: iptables-restore 1.4 knows no such option and ignores it, but
	// would take a number by itself for the file to read.
	wait := fmt.Sprintf("--wait=%d", int(b.lockWait().Seconds()))
	_, err := b.run(ctx, p, input, "--noflush", wait)
	if e := failedProgram(err); e != nil && e.status > 0 && unknownOption(e.stderr) {
		_, err = b.run(ctx, p, input, "--noflush")
	}
	return restoreError(err)
}

// unknownOption recognizes getopt's complaint, by which a program of 1.6.0 or 1.6.1
// says that it cannot wait for the lock.
func unknownOption(stderr string) bool {
	for _, s := range []string{"unrecognized option", "invalid option", "unknown option"} {
		if strings.Contains(stderr, s) {
			return true
		}
	}
	return false
}

// restoreError says what iptables-restore's end means.
func restoreError(err error) error {
	e := failedProgram(err)
	if e == nil {
		return err
	}
	denied := strings.Contains(e.stderr, "must be root") || strings.Contains(e.stderr, "ermission denied")
	switch {
	case e.status == statusFailed && strings.Contains(e.stderr, "line ") && strings.Contains(e.stderr, " failed"),
		e.status == statusNoTable:
		return fmt.Errorf("%w: %w", unflannel.ErrConflict, err)
	case denied:
		return fmt.Errorf("%w: %w", fs.ErrPermission, err)
	case e.status == statusResource && strings.Contains(e.stderr, "xtables lock"):
		return fmt.Errorf("%w: %w", errLocked, err)
	}
	return err
}
