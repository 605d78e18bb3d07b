package main

import (
	"flag"
	"fmt"
	"strings"
)

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
