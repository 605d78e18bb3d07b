// Command bench measures unflannel beside the ways in which people remove Flannel's
// leftovers today:
//
//	go run ./bench bin/unflannel
//
// It measures on rules of its own in throwaway network namespaces, changes nothing of
// the machine, and needs no root where the kernel lets users make user namespaces. It
// writes tables in Markdown to standard output. With -quick, it takes some 20 seconds
// and shows only that it works.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel/netnstest"
)

func main() {
	b := &bench{sizes: []int{0, 1000, 10_000, 50_000}, runs: 11}
	quick := flag.Bool("quick", false, "two sizes and three runs: to see that it works")
	flag.IntVar(&b.runs, "runs", b.runs, "measure each way so many `times`")
	flag.Func("sizes", "measure with so many rules, a `list` with commas (default 0,1000,10000,50000)", func(list string) error {
		b.sizes = nil
		for field := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(field)
			if err != nil || n < 0 {
				return fmt.Errorf("%q is no number of rules", field)
			}
			b.sizes = append(b.sizes, n)
		}
		return nil
	})
	flag.Parse()
	if *quick {
		b.quick()
	}
	if flag.NArg() != 1 || b.runs < 1 {
		fmt.Fprintln(os.Stderr, "usage: bench [-quick] [-sizes LIST] [-runs N] PROGRAM (make build makes bin/unflannel)")
		os.Exit(2)
	}
	netnstest.AsRoot()
	err := b.prepare(flag.Arg(0))
	if err == nil {
		err = b.all()
	}
	os.RemoveAll(b.dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) quick() { b.sizes, b.runs = []int{0, 1000}, 3 }

// prepare gets all that measuring needs.
func (b *bench) prepare(program string) (err error) {
	if b.unflannel, err = filepath.Abs(program); err != nil {
		return err
	}
	if _, err := os.Stat(b.unflannel); err != nil {
		return fmt.Errorf("%w (make build makes bin/unflannel)", err)
	}
	// Debian's users do not have them on their PATH.
	os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	var missing []string
	for _, name := range []string{
		"go", "awk", "grep", "strace", "nft", "iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy",
		"iptables-nft-restore", "iptables-legacy-restore",
	} {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("programs are missing: %s", strings.Join(missing, ", "))
	}
	b.leftovers = map[string]string{}
	for family := range leftovers {
		if b.leftovers[family], err = readLeftovers(family); err != nil {
			return err
		}
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "unflannel-bench"); err != nil {
		return err
	}
	// The lock of iptables-legacy is one for the whole machine.
	os.Setenv("XTABLES_LOCKFILE", b.file("lock"))
	b.floor, b.launch = b.file("floor-program"), b.file("launch-program")
	for name, path := range map[string]string{"floor": b.floor, "launch": b.launch} {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./bench/"+name)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	b.perf = perfCounts(b.dir)
	return nil
}

// all measures everything and writes the tables.
func (b *bench) all() error {
	fmt.Println(b.machine())
	var all []result
	for _, v := range variants {
		var results []result
		for _, size := range b.sizes {
			begin := time.Now()
			s := &netnstest.Stage{Output: os.Stderr}
			if err := s.Run(func() { results = append(results, b.measure(s, v.name, size)...) }); err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "%s, %d rules: measured in %s\n", v.title, size, time.Since(begin).Round(time.Second))
		}
		fmt.Printf("\n%s:\n\n", v.title)
		writeTable(os.Stdout, results)
		all = append(all, results...)
	}
	fmt.Println("\nTargets:")
	fmt.Println()
	b.writeTargets(os.Stdout, all)
	return nil
}

// machine says in general terms where this was measured, and how.
func (b *bench) machine() string {
	var u unix.Utsname
	_ = unix.Uname(&u)
	release := unix.ByteSliceToString(u.Release[:])
	if i := strings.IndexFunc(release, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }); i > 0 {
		release = release[:i]
	}
	versions := []string{}
	for _, command := range [][]string{{"iptables-nft", "--version"}, {"nft", "--version"}} {
		out, _ := exec.Command(command[0], command[1:]...).Output()
		fields := strings.Fields(string(out))
		if len(fields) > 1 {
			versions = append(versions, fields[0]+" "+fields[1])
		}
	}
	calls := "System calls are counted by perf."
	if !b.perf {
		calls = "System calls are counted by strace, without " + strings.Join(ownTiming, ", ") +
			": those of Go's runtime, which are many more under strace."
	}
	return fmt.Sprintf("Linux %s, %s, %d CPUs; %s; %s. Medians of %d runs, the ways in turn; "+
		"times and memory are those of all processes together and of the largest one; × is the ratio to %s; "+
		"read is what was read over netlink or of legacy tables. %s",
		release, runtime.GOARCH, runtime.NumCPU(), strings.Join(versions, ", "), runtime.Version(), b.runs, clean, calls)
}
