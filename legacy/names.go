package legacy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/internal/file"
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
	var name string
	switch family {
	case unflannel.IP:
		name = "ip_tables_names"
	case unflannel.IP6:
		name = "ip6_tables_names"
	default:
		return nil, false, fmt.Errorf("family %q: %w", family, errors.ErrUnsupported)
	}
	data, err := file.Read(filepath.Join(dir, name))
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
