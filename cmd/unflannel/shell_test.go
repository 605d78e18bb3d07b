package main

import (
	"flag"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// flagsOf are the flags of a verb as the user writes them.
func flagsOf(verb string) []string {
	var names []string
	(&settings{verb: verb}).flags().VisitAll(func(f *flag.Flag) { names = append(names, dashed(f.Name)) })
	slices.Sort(names)
	return names
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestManPage holds the manual page and the program together.
func TestManPage(t *testing.T) {
	t.Parallel()
	page := strings.ReplaceAll(read(t, "../../man/unflannel.8"), `\-`, "-")
	var got, cleanOnly []string
	for _, m := range regexp.MustCompile(`(?m)^\.TP\n\.BI? (--?[a-z-]+).*\n(\(clean\))?`).FindAllStringSubmatch(page, -1) {
		got = append(got, m[1])
		if m[2] != "" {
			cleanOnly = append(cleanOnly, m[1])
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(flagsOf("clean"), got); diff != "" {
		t.Errorf("flags of the program (-) and of the manual page (+):\n%s", diff)
	}
	want := slices.DeleteFunc(flagsOf("clean"), func(f string) bool { return slices.Contains(flagsOf("check"), f) })
	if diff := cmp.Diff(want, cleanOnly); diff != "" {
		t.Errorf("flags of clean only (-) and those that the manual page marks (+):\n%s", diff)
	}
	for _, verb := range verbs {
		contains(t, "the manual page", page, ".B unflannel "+verb)
	}
	if out, err := exec.Command("man", "--warnings", "-l", "-Tutf8", "../../man/unflannel.8").CombinedOutput(); err == nil && strings.Contains(string(out), "warning:") {
		t.Errorf("man warns:\n%s", out)
	}
}

// TestBashCompletion completes in a real bash.
func TestBashCompletion(t *testing.T) {
	t.Parallel()
	script := `. ../../completion/unflannel.bash
COMP_WORDS=(unflannel "$@"); COMP_CWORD=$#; _unflannel; printf '%s\n' "${COMPREPLY[@]}"`
	for _, tc := range []struct {
		words string // what is typed; the last is completed
		want  []string
	}{
		{"|", []string{"check", "clean", "help", "version"}},
		{"c|", []string{"check", "clean"}},
		{"cl|", []string{"clean"}},
		{"help |", []string{"check", "clean"}},
		{"check -|", append(flagsOf("check"), "--help")},
		{"clean -|", append(flagsOf("clean"), "--help")},
		{"clean --dry-run --se|", []string{"--settle"}},
		{"clean --backend |", []string{"legacy", "nft", "nft,legacy"}},
		{"check --family ip6|", []string{"ip6"}},
		{"check --output |", []string{"json", "text"}},
		{"check --netns ../../com|", []string{"../../completion"}},
		{"check --network |", nil},
	} {
		t.Run(tc.words, func(t *testing.T) {
			t.Parallel()
			words := strings.Split(strings.TrimSuffix(tc.words, "|"), " ")
			out, err := exec.Command("bash", append([]string{"-c", script, "bash"}, words...)...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			got := strings.Fields(string(out))
			slices.Sort(got)
			slices.Sort(tc.want)
			if diff := cmp.Diff(tc.want, got, cmp.Transformer("nil", func(s []string) []string { return append([]string{}, s...) })); diff != "" {
				t.Errorf("want (-), got (+):\n%s", diff)
			}
		})
	}
}

// TestZshCompletion holds zsh's list of flags and the program together, and has a
// real zsh read the file.
func TestZshCompletion(t *testing.T) {
	t.Parallel()
	text := read(t, "../../completion/_unflannel")
	both, clean, _ := strings.Cut(text, "clean=(")
	flags := func(s string) []string {
		var names []string
		for _, m := range regexp.MustCompile(`(?m)^\t\t'\*?(--?[a-z-]+)\[`).FindAllStringSubmatch(s, -1) {
			if m[1] != "--help" {
				names = append(names, m[1])
			}
		}
		slices.Sort(names)
		return names
	}
	if diff := cmp.Diff(flagsOf("check"), flags(both)); diff != "" {
		t.Errorf("flags of check (-) and of the completion (+):\n%s", diff)
	}
	all := append(flags(both), flags(clean)...)
	slices.Sort(all)
	if diff := cmp.Diff(flagsOf("clean"), all); diff != "" {
		t.Errorf("flags of clean (-) and of the completion (+):\n%s", diff)
	}
	if out, err := exec.Command("zsh", "-n", "../../completion/_unflannel").CombinedOutput(); err != nil {
		t.Errorf("zsh: %v: %s", err, out)
	}
}
