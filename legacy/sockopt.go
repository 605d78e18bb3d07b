package legacy

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel"
)

// The kernel's questions, IPT_SO_GET_INFO and IPT_SO_GET_ENTRIES; IP6T_SO_* have
// the same numbers. Both would create a table that does not exist.
const (
	getInfo    = 64
	getEntries = 65
)

const (
	tableNameSize = 32 // XT_TABLE_MAXNAMELEN
	infoSize      = 84 // ipt_getinfo: name, valid hooks, entries, underflows, counts
	headSize      = 40 // ipt_get_entries before its entries: name, size, padding to 8
	maxTableSize  = 1 << 30
	readAttempts  = 10
)

// kernelTable reads a table, which must be listed, from the kernel. It needs
// CAP_NET_ADMIN and no program.
func kernelTable(ctx context.Context, family unflannel.Family, name string) (*table, error) {
	domain, level := unix.AF_INET, unix.SOL_IP
	if family == unflannel.IP6 {
		domain, level = unix.AF_INET6, unix.SOL_IPV6
	}
	// The kernel answers on any socket of the family; a datagram socket, unlike
	// the raw one of iptables, needs no CAP_NET_RAW.
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	// Information and entries are two questions, and the table can be replaced in
	// between. The kernel refuses the second with EAGAIN if the size has changed;
	// that it has changed otherwise is told by asking for the information again.
	for range readAttempts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		before, err := tableInfo(fd, level, name)
		if err != nil {
			return nil, err
		}
		data, err := tableEntries(fd, level, name, before.size)
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return nil, err
		}
		after, err := tableInfo(fd, level, name)
		if err != nil {
			return nil, err
		}
		if before == after {
			return &table{layout: layouts[family], hooks: before.hooks, entries: before.entries, data: data}, nil
		}
	}
	return nil, fmt.Errorf("the table changed during each of %d attempts: %w", readAttempts, unix.EAGAIN)
}

// info is what ipt_getinfo tells of a table.
type info struct {
	hooks
	entries, size uint32
}

func tableInfo(fd, level int, name string) (info, error) {
	b := make([]byte, infoSize)
	copy(b[:tableNameSize-1], name)
	if err := getsockopt(fd, level, getInfo, b); err != nil {
		return info{}, fmt.Errorf("get info: %w", err)
	}
	return parseInfo(b), nil
}

// parseInfo reads an ipt_getinfo.
func parseInfo(b []byte) info {
	i := info{hooks: hooks{valid: host.Uint32(b[32:])}, entries: host.Uint32(b[76:]), size: host.Uint32(b[80:])}
	for n := range len(hookNames) {
		i.entry[n] = host.Uint32(b[36+4*n:])
		i.underflow[n] = host.Uint32(b[56+4*n:])
	}
	return i
}

func tableEntries(fd, level int, name string, size uint32) ([]byte, error) {
	if size > maxTableSize {
		return nil, fmt.Errorf("get entries: table of %d bytes", size)
	}
	b := make([]byte, headSize+int(size))
	copy(b[:tableNameSize-1], name)
	host.PutUint32(b[tableNameSize:], size)
	if err := getsockopt(fd, level, getEntries, b); err != nil {
		return nil, fmt.Errorf("get entries: %w", err)
	}
	return b[headSize:], nil
}

// getsockopt fills the whole of b, which also carries the question, or fails.
func getsockopt(fd, level, option int, b []byte) error {
	length := uint32(len(b))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	if int(length) != len(b) {
		return fmt.Errorf("%d bytes instead of %d", length, len(b))
	}
	return nil
}
