package legacy

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// resolve follows path, as it is inside root, to the file that the kernel will
// find there after chroot: absolute links (/usr/sbin/iptables to
// /etc/alternatives/iptables) begin at root, and .. does not leave it. It returns
// the file's real path inside root.
func resolve(root, path string) (string, fs.FileInfo, error) {
	const maxLinks = 40 // as the kernel
	real, rest, links := "/", path, 0
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		if name == "" {
			continue
		}
		next := filepath.Join(real, name) // of .. too: real has no links left
		info, err := os.Lstat(filepath.Join(root, next))
		if err != nil {
			return "", nil, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			real = next
			continue
		}
		if links++; links > maxLinks {
			return "", nil, &fs.PathError{Op: "resolve", Path: path, Err: syscall.ELOOP}
		}
		target, err := os.Readlink(filepath.Join(root, next))
		if err != nil {
			return "", nil, err
		}
		if filepath.IsAbs(target) {
			real = "/"
		}
		rest = target + "/" + rest
	}
	info, err := os.Lstat(filepath.Join(root, real))
	return real, info, err
}
