package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/unflannel/unflannel/internal/file"
)

// savedRules are the files from which distributions restore rules at boot: Debian's
// and Ubuntu's iptables-persistent, Red Hat's iptables-services, and nftables.
var savedRules = []string{
	"/etc/iptables/rules.v4", "/etc/iptables/rules.v6",
	"/etc/sysconfig/iptables", "/etc/sysconfig/ip6tables",
	"/etc/nftables.conf", "/etc/sysconfig/nftables.conf",
}

// traces are what rules of Flannel's have in such a file, in either syntax. (Rules of
// versions before v0.16.2 have nothing to know them by.)
var traces = [][]byte{
	[]byte("FLANNEL-POSTRTG"), []byte("FLANNEL-FWD"), []byte("flanneld masq"), []byte("flannel masq"),
	[]byte("flanneld forward"), []byte("flannel-ipv4"), []byte("flannel-ipv6"),
}

// SavedRules warns of each file that would bring Flannel's rules back at the next
// boot. root is where the host's file system is; "" where it is the root.
func SavedRules(root string) ([]string, error) {
	var warnings []string
	var errs []error
	for _, name := range savedRules {
		path := filepath.Join("/", root, name)
		text, err := file.Read(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			errs = append(errs, fmt.Errorf("read saved rules: %w", err))
		case hasTrace(text):
			warnings = append(warnings, fmt.Sprintf("%s holds Flannel's rules and would bring them back at the next boot: save the rules anew when they are clean", path))
		}
	}
	return warnings, errors.Join(errs...)
}

func hasTrace(text []byte) bool {
	for _, trace := range traces {
		if bytes.Contains(text, trace) {
			return true
		}
	}
	return false
}
