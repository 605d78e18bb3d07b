package netnstest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sort"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The requests of iptables-legacy's socket options, for both families.
const (
	soGetInfo    = 64 // IPT_SO_GET_INFO
	soGetEntries = 65 // IPT_SO_GET_ENTRIES
)

// Sizes of struct ipt_getinfo and of the head of struct ipt_get_entries.
const (
	infoSize        = 84
	entriesHeadSize = 40
	tableNameSize   = 32
)

// legacyFamily is what differs between the kernel's iptables and ip6tables.
type legacyFamily struct {
	name  string
	file  string // lists the tables that exist
	af    int
	level int
	match int // size of struct ipt_ip, where an entry begins
	entry int // size of struct ipt_entry
}

// The sizes are those of 64-bit machines.
var legacyFamilies = []legacyFamily{
	{"ip", "ip_tables_names", unix.AF_INET, unix.SOL_IP, 84, 112},
	{"ip6", "ip6_tables_names", unix.AF_INET6, unix.SOL_IPV6, 136, 168},
}

// dumpLegacy reads all tables of the calling thread's namespace.
func dumpLegacy() (Dump, error) {
	var d Dump
	for _, f := range legacyFamilies {
		tables, err := f.tables()
		if err != nil {
			return nil, err
		}
		for _, table := range tables {
			info, entries, err := f.read(table)
			if err != nil {
				return nil, fmt.Errorf("read legacy table %s %s: %w", f.name, table, err)
			}
			lines, err := f.decode(table, info, entries)
			if err != nil {
				return nil, fmt.Errorf("decode legacy table %s %s: %w", f.name, table, err)
			}
			d = append(d, lines...)
		}
	}
	return d, nil
}

// tables returns the names of the tables that exist, sorted: the kernel has the
// latest first. No other table may be asked for, since the asking creates it.
func (f legacyFamily) tables() ([]string, error) {
	b, err := os.ReadFile("/proc/thread-self/net/" + f.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	names := strings.Fields(string(b))
	sort.Strings(names)
	return names, err
}

// read returns a table's struct ipt_getinfo and its entries.
func (f legacyFamily) read(table string) (info, entries []byte, err error) {
	fd, err := unix.Socket(f.af, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(fd)
	for range 20 {
		info = make([]byte, infoSize)
		copy(info[:tableNameSize-1], table)
		if err = getsockopt(fd, f.level, soGetInfo, info); err != nil {
			return nil, nil, err
		}
		size := native.Uint32(info[80:])
		buf := make([]byte, entriesHeadSize+int(size))
		copy(buf[:tableNameSize-1], table)
		native.PutUint32(buf[tableNameSize:], size)
		err = getsockopt(fd, f.level, soGetEntries, buf)
		if err == nil {
			return info, buf[entriesHeadSize:], nil
		}
		if err != unix.EAGAIN { // another size than a moment ago
			return nil, nil, err
		}
	}
	return nil, nil, err
}

func getsockopt(fd, level, name int, buf []byte) error {
	size := uint32(len(buf))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
