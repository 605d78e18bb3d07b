// Package file reads files whole. Other than os.ReadFile it leaves the Go runtime's
// poller alone, whose start is more work for the kernel than all that is read.
package file

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// Read returns what is in the file. It does not wait for a pipe to be written to: an
// empty one is as an empty file. Errors are of type [*fs.PathError].
func Read(path string) ([]byte, error) {
	fail := func(op string, err error) error { return &fs.PathError{Op: op, Path: path, Err: err} }
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
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
