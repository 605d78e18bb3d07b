package unflannel

import "strings"

// Error says what was tried, where, and what came of it. It wraps the kernel's
// or the program's own error, so that errors.Is finds an errno (or fs.ErrPermission,
// fs.ErrNotExist, context.DeadlineExceeded) and [ErrConflict] in it.
type Error struct {
	Op      string // what was tried: "read chain", "delete rules", …
	Backend string
	Family  Family // "" where it concerns no single family
	Table   string // "" where it concerns no single table
	Chain   string // "" where it concerns no single chain
	Err     error  // what the kernel or the program said
	Advice  string // what the user can do about it; "" where there is nothing
}

// Error returns one line: operation, place, cause and advice.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Chain != "" {
		b.WriteString(" " + e.Chain)
	}
	if e.Table != "" {
		b.WriteString(" in table " + string(e.Family) + " " + e.Table)
	} else if e.Family != "" {
		b.WriteString(" of family " + string(e.Family))
	}
	b.WriteString(" (" + e.Backend + "): ")
	if e.Err != nil {
		b.WriteString(e.Err.Error())
	}
	if e.Advice != "" {
		b.WriteString("; " + e.Advice)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
