package unflannel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// warn adds a warning that the report does not have yet.
func (r *Report) warn(format string, args ...any) {
	if w := fmt.Sprintf(format, args...); !slices.Contains(r.Warnings, w) {
		r.Warnings = append(r.Warnings, w)
	}
}

// warnOfPolicy warns where FORWARD drops what no rule accepts, and Flannel's rules
// are what accepted the pods' traffic.
func (r *Report) warnOfPolicy(w *work) {
	for _, t := range w.snapshot.Tables {
		i := slices.IndexFunc(t.Chains, func(c *Chain) bool { return c.Hook == "forward" && c.Policy == "DROP" })
		if t.Name != "filter" || i < 0 {
			continue
		}
		var accepted []netip.Prefix
		for _, f := range slices.Concat(w.removed, w.found) {
			if f.Family == t.Family && f.Table == t.Name && f.State != StateSuspected && strings.HasSuffix(f.Rule, "-j ACCEPT") {
				accepted = union(accepted, f.Networks)
			}
		}
		for _, network := range accepted {
			r.warn("the policy of %s in table %s %s (%s) is DROP, and Flannel's rules are what let the traffic of %s through: "+
				"without them another rule has to, or pods lose it", t.Chains[i].Name, t.Family, t.Name, w.backend.Name(), network)
		}
	}
}
