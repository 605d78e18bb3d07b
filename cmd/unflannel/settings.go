package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/legacy"
)

var verbs = []string{"check", "clean", "version", "help"}

// settings are what the command line says.
type settings struct {
	verb string

	backends   []string
	families   []unflannel.Family
	networks   []netip.Prefix
	subnetEnvs []string
	dryRun     bool
	netns      string
	hostRoot   string
	lockWait   time.Duration
	settle     time.Duration
	flush      bool
	save       string
	timeout    time.Duration
	output     string
	termLog    string
	verbose    bool
	logFormat  string
}

var (
	backendNames = []string{"nft", "legacy"}
	familyNames  = []string{string(unflannel.IP), string(unflannel.IP6)}
	outputs      = []string{"text", "json"}
	logFormats   = []string{"text", "json"}
)

// defaultTermLog is where Kubernetes reads a container's last words from.
const defaultTermLog = "/dev/termination-log"

// flags defines the flags of a verb. A usage text names the flag's value in
// backquotes.
func (s *settings) flags() *flag.FlagSet {
	fs := flag.NewFlagSet(s.verb, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // errors are returned, help is our own
	fs.Usage = func() {}
	s.backends, s.families = backendNames, []unflannel.Family{unflannel.IP, unflannel.IP6}
	fs.Var(listFlag{"backend", backendNames, func(l []string) { s.backends = l }}, "backend",
		"work only in these packet filters: nft, legacy; a `list` with commas")
	fs.Var(listFlag{"family", familyNames, func(l []string) {
		s.families = nil
		for _, f := range l {
			s.families = append(s.families, unflannel.Family(f))
		}
	}}, "family", "work only on these families: ip, ip6; a `list` with commas")
	fs.Func("network", "treat rules without a comment as Flannel's if they are in its shapes and for this `cidr`; may be given more than once", func(value string) error {
		network, err := parseNetwork(value)
		s.networks = append(s.networks, network)
		return err
	})
	fs.Func("subnet-env", "as --network, with the networks in Flannel's own `file` (/run/flannel/subnet.env)", func(value string) error {
		s.subnetEnvs = append(s.subnetEnvs, value)
		return nonEmpty(value)
	})
	fs.Func("netns", "work in the network namespace at this `path`", path(&s.netns))
	fs.DurationVar(&s.timeout, "timeout", time.Minute, "give up after this `duration`, --settle not counted; what is not done stays as it was")
	fs.Var(choiceFlag{"output", outputs, &s.output}, "output", "print the result as `format` text or json")
	fs.StringVar(&s.termLog, "termination-log", defaultTermLog, "write the summary to the file at this `path` too, if it exists; empty: nowhere")
	fs.Var(choiceFlag{"log format", logFormats, &s.logFormat}, "log-format", "log as `format` text or json")
	fs.BoolVar(&s.verbose, "v", false, "log every step to standard error")
	fs.Func("host-root", "run the iptables-legacy programs of the host whose root is mounted at this `directory`", path(&s.hostRoot))
	if s.verb == "clean" {
		fs.BoolVar(&s.dryRun, "dry-run", false, "remove nothing, say what would be removed, and exit as check does")
		fs.Func("save", "write what was removed to this new `file`, for iptables-restore --noflush to bring back", path(&s.save))
		fs.BoolVar(&s.flush, "flush-conntrack", false, "end connections between Flannel's pods that were masqueraded: they keep the wrong address for as long as they live")
		fs.DurationVar(&s.settle, "settle", 0, "watch for this `duration` afterwards whether leftovers come back, as they do while flanneld runs; 12s is enough")
		fs.DurationVar(&s.lockWait, "lock-wait", legacy.DefaultLockWait, "wait this `duration` for the lock of iptables-legacy")
	}
	return fs
}

var errHelp = errors.New("help wanted")

// parse reads the flags that follow the verb. It touches no file.
func (s *settings) parse(args []string) error {
	s.output, s.logFormat = "text", "text"
	fs := s.flags()
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return errHelp
	}
	if err != nil {
		if name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); ok {
			return errors.New(unknown("flag of "+s.verb, dashed(name), flagNames(fs)))
		}
		return errors.New(spelled(err.Error()))
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: %s takes only flags", fs.Arg(0), s.verb)
	}
	if s.timeout <= 0 {
		return fmt.Errorf("--timeout %s is not a time to wait: give a duration above 0, such as 60s", s.timeout)
	}
	if s.settle < 0 {
		return fmt.Errorf("--settle %s is not a time to wait: give a duration, such as 12s", s.settle)
	}
	if s.verb == "clean" && s.lockWait <= 0 {
		return fmt.Errorf("--lock-wait %s is not a time to wait: give a duration above 0, such as 30s", s.lockWait)
	}
	return nil
}

// resolve looks at the files and directories that the flags name. It is apart from
// parse so that --help helps wherever it stands.
func (s *settings) resolve() error {
	for _, file := range s.subnetEnvs {
		networks, err := readSubnetEnv(file)
		if err != nil {
			return fmt.Errorf("--subnet-env %s: %w", file, err)
		}
		s.networks = append(s.networks, networks...)
	}
	if s.hostRoot != "" {
		if err := mustBeDirectory(s.hostRoot); err != nil {
			return fmt.Errorf("--host-root %s: %w", s.hostRoot, err)
		}
	}
	return nil
}

// mustBeDirectory fails where there is no directory, as far as may be seen.
func mustBeDirectory(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return err
	}
	if err == nil && !info.IsDir() {
		return errors.New("it is not a directory")
	}
	return nil
}
