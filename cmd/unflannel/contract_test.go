package main

import (
	"flag"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unflannel/unflannel"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestReadmeFlags holds the README's table of flags and what the program takes
// together: names, values, verbs.
func TestReadmeFlags(t *testing.T) {
	t.Parallel()
	type flagOf struct{ Flag, Verbs string }
	got := map[string]flagOf{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(--?[a-z-]+)( [A-Z]+)?` \\| ([a-z, ]+) \\|").FindAllStringSubmatch(readme(t), -1) {
		got[m[1]] = flagOf{m[1] + m[2], m[3]}
	}
	want := map[string]flagOf{}
	for _, verb := range []string{"check", "clean"} {
		s := settings{verb: verb}
		s.flags().VisitAll(func(f *flag.Flag) {
			name, _, _ := strings.Cut(flagHelp(f), "\t")
			v := verb
			if known, ok := want[dashed(f.Name)]; ok {
				v = known.Verbs + ", " + verb
			}
			want[dashed(f.Name)] = flagOf{name, v}
		})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flags of the program (-) and of the README (+):\n%s", diff)
	}
}

// TestReadmeHelp: verbs and exit statuses are in the README as in the help.
func TestReadmeHelp(t *testing.T) {
	t.Parallel()
	text := readme(t)
	for _, verb := range verbs {
		contains(t, "the README", text, "| `unflannel "+verb+"` |")
		contains(t, "the help", call(t.Context(), "help").stdout, "\n  "+verb+" ")
	}
	help := call(t.Context(), "help").stdout + call(t.Context(), "help", "clean").stdout + call(t.Context(), "help", "check").stdout
	contains(t, "the help", help,
		"exit status of check: 0 nothing of Flannel's is there, 1 something is, 2 it could not be told",
		"exit status of clean: 0 nothing is left, 1 something is, 2 it failed and what is left could not be told")
	contains(t, "the README", text,
		"| 0 | nothing of Flannel's is there | nothing is left",
		"| 1 | something is | something is left",
		"| 2 | it could not be told | it failed, and what is left could not be told |")
}

// TestReadmeJSON holds the README's table of fields and the report together.
func TestReadmeJSON(t *testing.T) {
	t.Parallel()
	var got []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-zA-Z.\\[\\]]+)` \\| ").FindAllStringSubmatch(readme(t), -1) {
		got = append(got, m[1])
	}
	want := fields(reflect.TypeFor[unflannel.Report](), "")
	// Their fields are those of findings.
	want = slices.DeleteFunc(want, func(f string) bool { return strings.HasPrefix(f, "notTouched[].") })
	for _, list := range []string{"findings[]", "notTouched[]", "connections[]"} {
		if !slices.Contains(want, list) {
			want = append(want, list)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields of the report (-) and of the README (+):\n%s", diff)
	}
}

// fields are the paths of all that a type's JSON form has.
func fields(t reflect.Type, path string) []string {
	switch {
	case t.Kind() == reflect.Pointer:
		return fields(t.Elem(), path)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct && t.Elem().PkgPath() == "github.com/unflannel/unflannel":
		return fields(t.Elem(), path+"[]")
	case t.Kind() == reflect.Slice && path == "warnings":
		return []string{path + "[]"}
	case t.Kind() != reflect.Struct || t.PkgPath() != "github.com/unflannel/unflannel":
		return []string{path}
	}
	var all []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		if path != "" {
			name = path + "." + name
		}
		all = append(all, fields(t.Field(i).Type, name)...)
	}
	return all
}
