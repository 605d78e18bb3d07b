package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
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

	backends  []string
	families  []unflannel.Family
	networks  []netip.Prefix
	dryRun    bool
	netns     string
	hostRoot  string
	lockWait  time.Duration
	settle    time.Duration
	flush     bool
	save      string
	timeout   time.Duration
	output    string
	termLog   string
	verbose   bool
	logFormat string
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
		networks, err := readSubnetEnv(value)
		s.networks = append(s.networks, networks...)
		return err
	})
	fs.Func("netns", "work in the network namespace at this `path`", nonEmpty(&s.netns))
	fs.DurationVar(&s.timeout, "timeout", time.Minute, "give up after this `duration`, --settle not counted; what is not done stays as it was")
	fs.Var(choiceFlag{"output", outputs, &s.output}, "output", "print the result as `format` text or json")
	fs.StringVar(&s.termLog, "termination-log", defaultTermLog, "write the summary to the file at this `path` too, if it exists; empty: nowhere")
	fs.Var(choiceFlag{"log format", logFormats, &s.logFormat}, "log-format", "log as `format` text or json")
	fs.BoolVar(&s.verbose, "v", false, "log every step to standard error")
	fs.Func("host-root", "run the iptables-legacy programs of the host whose root is mounted at this `directory`", directory(&s.hostRoot))
	if s.verb == "clean" {
		fs.BoolVar(&s.dryRun, "dry-run", false, "remove nothing, say what would be removed, and exit as check does")
		fs.Func("save", "write what was removed to this new `file`, for iptables-restore --noflush to bring back", nonEmpty(&s.save))
		fs.BoolVar(&s.flush, "flush-conntrack", false, "end connections between Flannel's pods that were masqueraded: they keep the wrong address for as long as they live")
		fs.DurationVar(&s.settle, "settle", 0, "watch for this `duration` afterwards whether leftovers come back, as they do while flanneld runs; 12s is enough")
		fs.DurationVar(&s.lockWait, "lock-wait", legacy.DefaultLockWait, "wait this `duration` for the lock of iptables-legacy")
	}
	return fs
}

var errHelp = errors.New("help wanted")

// parse reads the flags that follow the verb.
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

// spelled turns an error of the flag package into one line with the flags as the
// user writes them, and with the right spelling where the package is silent.
func spelled(message string) string {
	message = strings.NewReplacer(" flag -", " flag --", "argument: -", "argument: --", " for -", " for --").Replace(message)
	if value, ok := strings.CutSuffix(message, ": parse error"); ok {
		if strings.HasPrefix(value, "invalid boolean") {
			return value + ": give it without a value"
		}
		return value + ": give a number and a unit, such as 30s or 2m"
	}
	return message
}

// nonEmpty takes a path. An empty one is the unset variable of a script, and to go on
// as if the flag were missing would work in another place than was meant.
func nonEmpty(path *string) func(string) error {
	return func(value string) error {
		if value == "" {
			return errors.New("the path is empty")
		}
		*path = value
		return nil
	}
}

// directory takes the path of a directory that exists, as far as may be seen.
func directory(path *string) func(string) error {
	return func(value string) error {
		info, err := os.Stat(value)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return err
		}
		if err == nil && !info.IsDir() {
			return errors.New("it is not a directory")
		}
		return nonEmpty(path)(value)
	}
}

// listFlag is a list of known words, separated by commas.
type listFlag struct {
	what  string
	known []string
	set   func([]string)
}

func (f listFlag) String() string { return strings.Join(f.known, ",") }

func (f listFlag) Set(value string) error {
	list := strings.Split(value, ",")
	for i, word := range list {
		if !slices.Contains(f.known, word) {
			return errors.New(unknown(f.what, word, f.known))
		}
		if slices.Contains(list[:i], word) {
			return fmt.Errorf("%s %s is named twice", f.what, word)
		}
	}
	f.set(list)
	return nil
}

// choiceFlag is one of several words.
type choiceFlag struct {
	what  string
	known []string
	value *string
}

func (f choiceFlag) String() string {
	if f.known == nil { // the flag package asks the zero value
		return ""
	}
	return f.known[0]
}

func (f choiceFlag) Set(value string) error {
	if !slices.Contains(f.known, value) {
		return errors.New(unknown(f.what, value, f.known))
	}
	*f.value = value
	return nil
}

func flagNames(fs *flag.FlagSet) []string {
	var names []string
	fs.VisitAll(func(f *flag.Flag) { names = append(names, dashed(f.Name)) })
	return names
}

// dashed is a flag as the user writes it.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// unknown says that a word is not known, and which word was perhaps meant, or
// which are known.
func unknown(what, word string, known []string) string {
	best, distance := "", 3
	for _, k := range known {
		if d := editDistance(word, k); d < distance {
			best, distance = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf("unknown %s %q: did you mean %s?", what, word, best)
	}
	return fmt.Sprintf("unknown %s %q: use %s", what, word, strings.Join(known, ", "))
}

// editDistance is the number of letters to insert, delete or change.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
