package legacy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/unflannel/unflannel"
)

// systemPath is where distributions put iptables, whatever PATH says.
var systemPath = []string{"/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin"}

// programs are the two that removing takes.
type programs struct{ save, restore program }

// errVariant is a program that writes to nf_tables, whatever its name says.
var errVariant = errors.New("it is the nf_tables variant")

// findPrograms finds the legacy variant of iptables-save and iptables-restore of
// a family, both in one directory. By name if the name says it (iptables 1.8 on),
// else the multi-call binaries behind these names, else those without a variant in
// their name: they are legacy before 1.8, and where the distribution chose so.
func (b *Backend) findPrograms(ctx context.Context, family unflannel.Family) (programs, error) {
	prefix := "iptables"
	if family == unflannel.IP6 {
		prefix = "ip6tables"
	}
	var refused []string
	for _, names := range []struct{ save, restore, multi string }{
		{save: prefix + "-legacy-save", restore: prefix + "-legacy-restore"},
		{multi: "xtables-legacy-multi"},
		{multi: "xtables-multi"},
		{save: prefix + "-save", restore: prefix + "-restore"},
	} {
		for _, dir := range b.directories() {
			p := programs{
				save:    program{path: filepath.Join(dir, names.save), root: b.HostRoot},
				restore: program{path: filepath.Join(dir, names.restore), root: b.HostRoot},
			}
			if names.multi != "" {
				path := filepath.Join(dir, names.multi)
				p.save = program{path: path, root: b.HostRoot, args: []string{prefix + "-save"}}
				p.restore = program{path: path, root: b.HostRoot, args: []string{prefix + "-restore"}}
			}
			err := b.checkPrograms(ctx, p)
			if err == nil {
				return p, nil
			}
			if err := ctx.Err(); err != nil {
				return programs{}, err
			}
			if !errors.Is(err, fs.ErrNotExist) {
				refused = append(refused, err.Error())
			}
		}
	}
	err := fmt.Errorf("%s-legacy-save and %[1]s-legacy-restore: %w", prefix, exec.ErrNotFound)
	if refused != nil {
		err = fmt.Errorf("%w; refused: %s", err, strings.Join(refused, "; "))
	}
	return programs{}, err
}

// adviceOnPrograms is for programs that findPrograms did not find.
const adviceOnPrograms = "install iptables (Debian: package iptables), or give --host-root where the host's file system is mounted"

// directories are those to search. Inside a HostRoot, PATH has no meaning.
func (b *Backend) directories() []string {
	if b.path != nil {
		return b.path
	}
	if b.HostRoot != "" {
		return systemPath
	}
	var dirs []string
	seen := map[string]bool{}
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), systemPath...) {
		if filepath.IsAbs(dir) && !seen[dir] {
			seen[dir] = true
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// checkPrograms reports what is wrong with the programs: that there are none
// (fs.ErrNotExist), or why they are not to be used.
func (b *Backend) checkPrograms(ctx context.Context, p programs) error {
	var checked string
	for _, p := range []program{p.save, p.restore} {
		real, info, err := resolve(b.HostRoot, p.path)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			return fmt.Errorf("%s: not an executable file", p)
		}
		if real == checked {
			continue
		}
		if err := b.checkVariant(ctx, p, filepath.Base(real)); err != nil {
			return err
		}
		checked = real
	}
	return nil
}

// checkVariant makes sure that a program is the legacy variant. The multi-call
// binary behind it has a name of its own, which spares asking.
func (b *Backend) checkVariant(ctx context.Context, p program, real string) error {
	switch real {
	case "xtables-legacy-multi", "xtables-multi":
		return nil
	case "xtables-nft-multi", "xtables-compat-multi":
		return fmt.Errorf("%s: %w", p, errVariant)
	}
	// Programs too old to know this option are legacy. Those of 1.4 ignore it: save
	// prints its tables and restore finds nothing in its input. Others complain.
	version, err := b.run(ctx, p, nil, "--version")
	if err != nil {
		return err
	}
	if line := firstLine(string(version)); strings.Contains(line, "nf_tables") {
		return fmt.Errorf("%s: %w (%s)", p, errVariant, line)
	}
	return nil
}
