package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel"
)

// undo is the file of --save. It is made before anything is removed, so that a
// place that cannot be written to costs nothing, and never replaces another: a
// second run, which removes nothing, must not wipe out what the first one saved.
type undo struct{ file *os.File }

func newUndo(path string) (*undo, error) {
	for _, backend := range backendNames {
		for _, family := range familyNames {
			part := undoPart(path, backend, family)
			if _, err := os.Lstat(part); err == nil {
				return nil, notSaved(&os.PathError{Op: "open", Path: part, Err: unix.EEXIST})
			}
		}
	}
	f, err := createNew(path)
	if err != nil {
		return nil, notSaved(err)
	}
	return &undo{f}, nil
}

func notSaved(err error) error {
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("save what is removed: %w; nothing was removed: give a new file, or move that one away", err)
	}
	return fmt.Errorf("save what is removed: %w; nothing was removed", err)
}

// undoPart is the file of a family and backend that another program has to bring back
// than what is in the file itself.
func undoPart(path, backend, family string) string { return path + "." + backend + "." + family }

func createNew(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// write saves what was removed and returns a line for each file.
func (u *undo) write(r *unflannel.Report) ([]string, error) {
	var lines []string
	saved := r.Undo()
	for i, s := range saved {
		f := u.file
		if i > 0 {
			var err error
			if f, err = createNew(undoPart(u.file.Name(), s.Backend, string(s.Family))); err != nil {
				return lines, fmt.Errorf("save what was removed: %w", err)
			}
		}
		if err := writeSaved(f, s); err != nil {
			return lines, fmt.Errorf("save what was removed: %w", err)
		}
		lines = append(lines, fmt.Sprintf("saved; to bring it back: %s --noflush %s", s.Program(), f.Name()))
	}
	if len(saved) == 0 { // nothing to bring back
		return nil, errors.Join(u.file.Close(), os.Remove(u.file.Name()))
	}
	return lines, nil
}

func writeSaved(f *os.File, s unflannel.Saved) error {
	_, err := s.WriteTo(f)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
