package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// counts are what does not depend on the machine's mood.
type counts struct {
	syscalls int
	netlink  int // bytes read
	tables   int // bytes of legacy tables read by getsockopt
	children int // processes that the first one and its children started
	programs int // of those, the ones that ran a program
}

// watched are the system calls that strace has to see where perf counts them all.
const watched = "trace=execve,clone,?clone3,?fork,?vfork,socket,recvmsg,recvfrom,recvmmsg,getsockopt"

// perfCounts reports whether perf can count system calls here. It does not slow the
// program down; under strace, the timers of Go's runtime run many times more often.
func perfCounts(dir string) bool {
	out := filepath.Join(dir, "perf")
	err := exec.Command("perf", perfArgs(out, "true")...).Run()
	if err != nil {
		return false
	}
	_, err = readPerf(out)
	return err == nil
}

func perfArgs(out string, command ...string) []string {
	return append([]string{"stat", "-x", ",", "-o", out, "-e", "raw_syscalls:sys_enter", "--"}, command...)
}

func readPerf(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, rest, ok := strings.Cut(line, ","); ok && strings.Contains(rest, "raw_syscalls") {
			return strconv.Atoi(value)
		}
	}
	return 0, fmt.Errorf("no count in what perf says: %q", text)
}

// ownTiming are calls that strace makes more of: they are the Go runtime's waiting
// for and waking of its own threads.
var ownTiming = []string{"futex", "nanosleep", "epoll_pwait", "sched_yield", "tgkill", "rt_sigreturn", "getpid"}

// trace reads what strace -f -y wrote.
type trace struct {
	counts
	pending map[string]string // by process, a call that was interrupted
	sockets map[string]bool   // of netlink, as strace shows their descriptors
	first   bool              // the first program runs
}

func readTrace(path string) (counts, error) {
	f, err := os.Open(path)
	if err != nil {
		return counts{}, err
	}
	defer f.Close()
	t := trace{pending: map[string]string{}, sockets: map[string]bool{}}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		t.line(lines.Text())
	}
	return t.counts, lines.Err()
}

func (t *trace) line(line string) {
	pid, call, _ := strings.Cut(line, " ")
	call = strings.TrimLeft(call, " ")
	if head, ok := strings.CutSuffix(call, " <unfinished ...>"); ok {
		t.pending[pid] = head
		return
	}
	if strings.HasPrefix(call, "<... ") {
		_, tail, _ := strings.Cut(call, " resumed>")
		call = t.pending[pid] + tail
		delete(t.pending, pid)
	}
	t.call(call)
}

var (
	callShape = regexp.MustCompile(`^(\w+)\((.*)\)\s+= (-?\d+)(<[^>]*>)?`)
	lastSize  = regexp.MustCompile(`\[(?:\d+ => )?(\d+)\]$`)
	fileOf    = regexp.MustCompile(`^\d+(<[^>]*>)`)
)

func (t *trace) call(call string) {
	m := callShape.FindStringSubmatch(call)
	if m == nil {
		return // a signal, an exit
	}
	name, args, socket := m[1], m[2], m[4]
	result, _ := strconv.Atoi(m[3])
	if !slices.Contains(ownTiming, name) {
		t.syscalls++
	}
	if result < 0 {
		return
	}
	switch name {
	case "clone", "clone3", "fork", "vfork":
		if !strings.Contains(args, "CLONE_THREAD") {
			t.children++
		}
	case "execve":
		if t.first {
			t.programs++
		}
		t.first = true
	case "socket":
		if strings.HasPrefix(args, "AF_NETLINK") {
			t.sockets[socket] = true
		}
	case "recvmsg", "recvfrom", "recvmmsg":
		if fd := fileOf.FindStringSubmatch(args); fd != nil && t.sockets[fd[1]] && !strings.Contains(args, "MSG_PEEK") {
			t.netlink += result
		}
	case "getsockopt":
		if size := lastSize.FindStringSubmatch(args); size != nil && strings.Contains(args, "SO_GET_ENTRIES") {
			n, _ := strconv.Atoi(size[1])
			t.tables += n
		}
	}
}

// count runs a command under strace and, if that works here, under perf: there some
// times, since Go's runtime makes some calls more or less each time. Before each,
// prepare brings the leftovers.
func (b *bench) count(n *node, w way, prepare func()) counts {
	n.t.Helper()
	var totals []int
	strace := []string{"-f", "-y", "-s", "0", "-o", b.file("strace")}
	if b.perf {
		for range min(b.runs, 5) {
			prepare()
			b.run(n, w, "perf", perfArgs(b.file("perf"), w.command...)...)
			total, err := readPerf(b.file("perf"))
			if err != nil {
				n.t.Fatalf("count system calls: %v", err)
			}
			totals = append(totals, total)
		}
		strace = append(strace, "--seccomp-bpf", "-e", watched)
	}
	prepare()
	b.run(n, w, "strace", append(append(strace, "--"), w.command...)...)
	c, err := readTrace(b.file("strace"))
	if err != nil {
		n.t.Fatalf("count system calls: %v", err)
	}
	if b.perf {
		c.syscalls = median(totals, func(total int) int { return total })
	}
	return c
}
