package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// path takes a path.
func path(to *string) func(string) error {
	return func(value string) error {
		*to = value
		return nonEmpty(value)
	}
}

// nonEmpty refuses an empty path. It is the unset variable of a script, and to go on
// as if the flag were missing would work in another place than was meant.
func nonEmpty(path string) error {
	if path == "" {
		return errors.New("the path is empty")
	}
	return nil
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
