package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/unflannel/unflannel"
)

// undo is the file of --save. It is made before anything is removed, so that a
// place that cannot be written to costs nothing, and never replaces another: a
// second run, which removes nothing, must not wipe out what the first one saved.
type undo struct{ path string }

func newUndo(path string) (*undo, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("save what is removed: %w: give a new file, or move that one away", err)
	}
	if err != nil {
		return nil, fmt.Errorf("save what is removed: %w", err)
	}
	return &undo{path}, f.Close()
}

// write saves what was removed and returns a line for each file. The first goes to
// the file itself; each further family and backend, which another program has to
// bring back, to a file of the same name with these added.
func (u *undo) write(r *unflannel.Report) ([]string, error) {
	var lines []string
	for i, s := range r.Undo() {
		path := u.path
		if i > 0 {
			path += "." + s.Backend + "." + string(s.Family)
		}
		if err := writeSaved(path, s); err != nil {
			return lines, fmt.Errorf("save what was removed: %w", err)
		}
		lines = append(lines, fmt.Sprintf("saved; to bring it back: %s --noflush %s", s.Program(), path))
	}
	if len(lines) == 0 { // nothing to bring back
		return nil, os.Remove(u.path)
	}
	return lines, nil
}

func writeSaved(path string, s unflannel.Saved) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err = s.WriteTo(f); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
