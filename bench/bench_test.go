package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unflannel/unflannel/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

// TestQuick measures as -quick does. What it takes is not looked at, since the
// machine does other things meanwhile; that it was measured, and what is left, is.
func TestQuick(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "unflannel")
	if out, err := exec.Command("go", "build", "-o", program, "../cmd/unflannel").CombinedOutput(); err != nil {
		t.Fatalf("build unflannel: %v\n%s", err, out)
	}
	b := &bench{}
	b.quick()
	if err := b.prepare(program); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(b.dir)
	var all []result
	var out strings.Builder
	for _, v := range variants {
		var results []result
		for _, size := range b.sizes {
			results = append(results, b.measure(t, v.name, size)...)
		}
		if want := len(b.sizes) * len(b.ways(v.name)); len(results) != want {
			t.Errorf("%s: %d results, want %d", v.name, len(results), want)
		}
		writeTable(&out, results)
		all = append(all, results...)
	}
	b.writeTargets(&out, all)
	t.Log(b.machine() + "\n" + out.String())
	for _, r := range all {
		if r.wall == 0 || r.cpu == 0 || r.memory == 0 || r.syscalls == 0 || r.netlink+r.tables == 0 {
			t.Errorf("%s, %d rules, %s: something was not measured: %+v", r.variant, r.size, r.way, r)
		}
		want := ""
		switch r.way {
		case check:
			want = "all: it only looks"
		case clean, floor, handles:
			want = "nothing"
		}
		if want != "" && r.left != want {
			t.Errorf("%s, %d rules, %s: left is %q, want %q", r.variant, r.size, r.way, r.left, want)
		}
		if r.way == clean && r.variant == "nft" && r.children != 0 {
			t.Errorf("%d rules: %d child processes", r.size, r.children)
		}
	}
}

func TestOthers(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1000, 10_000, 50_000} {
		if got := strings.Count(others(n), "] -A "); got > n || got < n*98/100 {
			t.Errorf("%d rules instead of %d", got, n)
		}
	}
}

// TestLeft: what the ways do to the rules of others is seen.
func TestLeft(t *testing.T) {
	t.Parallel()
	n := (&bench{}).newNode(t, "nft", others(30))
	for _, tc := range []struct{ do, want string }{
		{"true", "nothing"},
		{"iptables-nft -t nat -N FLANNEL-POSTRTG", "1 of Flannel's"},
		{"iptables-nft -t nat -X FLANNEL-POSTRTG; iptables-nft -t nat -N MORE", "1 rules and chains more than before"},
		{"iptables-nft -t nat -X MORE; iptables-nft -t nat -D KUBE-MARK-MASQ 1", "1 rules and chains of others lost or changed"},
		{"iptables-nft -t nat -A KUBE-MARK-MASQ -c 4 240 -j MARK --set-xmark 0x4000/0x4000", "1 rules and chains of others made anew"},
		{"iptables-nft -t nat -Z KUBE-POSTROUTING 2", "1 rules and chains of others made anew; 1 counters of others set to zero"},
		{"iptables-legacy -w -t raw -S", "new empty tables legacy ip raw; 1 rules and chains of others made anew; 1 counters of others set to zero"},
	} {
		n.MustRun("", "sh", "-c", tc.do)
		if got := left(n.base, n.Dump(), false); got != tc.want {
			t.Errorf("after %s: left is %q, want %q", tc.do, got, tc.want)
		}
	}
}

func TestTrace(t *testing.T) {
	t.Parallel()
	tr := trace{pending: map[string]string{}, sockets: map[string]bool{}}
	for line := range strings.Lines(`10 execve("/bin/sh", [...], 0x1 /* 2 vars */) = 0
10 socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER) = 3<socket:[7]>
10 socket(AF_INET, SOCK_DGRAM, 0) = 4<socket:[8]>
10 recvfrom(3<socket:[7]>, ..., 32768, MSG_TRUNC|MSG_DONTWAIT, {sa_family=AF_NETLINK}, [112 => 12]) = 56
10 recvfrom(4<socket:[8]>, ..., 32768, 0, NULL, NULL) = 1000
10 recvmsg(3<socket:[7]>, {...}, MSG_PEEK) = 100
10 recvmsg(3<socket:[7]>,  <unfinished ...>
11 futex(0x1, FUTEX_WAIT_PRIVATE, 0, NULL <unfinished ...>
10 <... recvmsg resumed>{...}, 0)   = 20
10 getsockopt(4<socket:[8]>, SOL_IP, IPT_SO_GET_ENTRIES, ""..., [2320]) = 0
10 clone(child_stack=0x1, flags=CLONE_VM|CLONE_THREAD|CLONE_SETTLS, tls=0x3) = 12
10 clone(child_stack=NULL, flags=CLONE_VM|CLONE_VFORK|SIGCHLD <unfinished ...>
13 execve("/usr/sbin/nft", ["nft"...], 0x1 /* 2 vars */ <unfinished ...>
13 <... execve resumed>)            = 0
10 <... clone resumed>)             = 13
10 execve("/none", [...], 0x1) = -1 ENOENT (No such file or directory)
10 --- SIGCHLD {si_signo=SIGCHLD} ---
11 <... futex resumed>)             = 0
10 +++ exited with 0 +++
`) {
		tr.line(strings.TrimSuffix(line, "\n"))
	}
	if want := (counts{syscalls: 12, netlink: 76, tables: 2320, children: 1, programs: 1}); tr.counts != want {
		t.Errorf("%+v, want %+v", tr.counts, want)
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	wall := func(s sample) time.Duration { return s.wall }
	for _, tc := range []struct {
		samples []sample
		want    time.Duration
	}{
		{[]sample{{wall: 3}, {wall: 1}, {wall: 2}}, 2},
		{[]sample{{wall: 8}, {wall: 2}, {wall: 4}, {wall: 1}}, 3},
	} {
		if got := median(tc.samples, wall); got != tc.want {
			t.Errorf("median is %d, want %d", got, tc.want)
		}
	}
}

func TestGrouped(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 49993: "49,993", 1234567: "1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("%d is written %s, want %s", n, got, want)
		}
	}
}
