package legacy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel"
)

// procNet is the calling thread's view: /proc/net is that of the main thread,
// which may be in another network namespace.
const procNet = "/proc/thread-self/net"

// tableNames returns the tables that exist in the namespace, and whether the
// kernel has iptables-legacy of this family at all. To read this file is the only
// question that creates no table and loads no module.
func (b *Backend) tableNames(family unflannel.Family) (names []string, present bool, err error) {
	dir := b.procNet
	if dir == "" {
		dir = procNet
	}
	var file string
	switch family {
	case unflannel.IP:
		file = "ip_tables_names"
	case unflannel.IP6:
		file = "ip6_tables_names"
	default:
		return nil, false, fmt.Errorf("family %q: %w", family, errors.ErrUnsupported)
	}
	data, err := readSmall(filepath.Join(dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		// The kernel lacks the family; or /proc is not mounted, and nothing is known.
		_, err := os.Stat(dir)
		return nil, false, err
	}
	if err != nil {
		return nil, false, err
	}
	return strings.Fields(string(data)), true, nil
}

// readSmall reads a small file of /proc. Other than os.ReadFile it leaves the runtime's
// poller alone, whose start is more work for the kernel than all that is read here.
func readSmall(path string) ([]byte, error) {
	fail := func(op string, err error) error { return &fs.PathError{Op: op, Path: path, Err: err} }
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fail("open", err)
	}
	defer unix.Close(fd)
	var data []byte
	buf := make([]byte, 4096)
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, fail("read", err)
		case n == 0:
			return data, nil
		default:
			data = append(data, buf[:n]...)
		}
	}
}
