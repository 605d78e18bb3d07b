package file

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"empty": {}, "small": []byte("nat\n"), "large": bytes.Repeat([]byte("0123456789"), 10_000)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes, want %d, %v", name, len(got), len(content), err)
		}
	}
	if got, err := Read(pipe); err != nil || len(got) != 0 {
		t.Errorf("a pipe without writer: %q, %v", got, err)
	}
	for path, want := range map[string]error{filepath.Join(dir, "none"): fs.ErrNotExist, dir: unix.EISDIR} {
		var e *fs.PathError
		if _, err := Read(path); !errors.Is(err, want) || !errors.As(err, &e) || e.Path != path {
			t.Errorf("%s: error %v, want %v", path, err, want)
		}
	}
}
