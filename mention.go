package unflannel

import "strings"

// mentionsFlannel reports whether a rule that is not Flannel's names it: in a
// comment, in an interface, or by a chain of a similar name.
func mentionsFlannel(r Rule) bool {
	if hasFlannel(r.In.Value) || hasFlannel(r.Out.Value) || hasFlannel(r.Target.Name) {
		return true
	}
	for _, m := range r.Matches {
		if hasFlannel(m.Args) {
			return true
		}
	}
	return false
}

func hasFlannel(s string) bool { return strings.Contains(strings.ToLower(s), "flannel") }
