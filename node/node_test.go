package node

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unflannel/unflannel/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

func TestDevices(t *testing.T) {
	t.Parallel()
	network := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/56")}
	for _, tc := range []struct {
		name string
		ip   []string // arguments of ip, one call each
		want []string // a part of each warning
	}{
		{"none", nil, nil},
		{"vxlan", []string{"link add flannel.1 type vxlan id 1 dstport 8472", "link add flannel-v6.1 type vxlan id 2 dstport 8472"}, []string{"flannel.1", "flannel-v6.1"}},
		{"others", []string{"link add flannel type bridge", "link add flannel.x type bridge", "link add my-flannel.1 type bridge", "link add vxlan.calico type vxlan id 3 dstport 4789"}, nil},
		{"bridge with an address of Flannel's", []string{"link add cni0 type bridge", "addr add 10.244.1.1/24 dev cni0"}, []string{"cni0"}},
		{"bridge with an IPv6 address of Flannel's", []string{"link add cni0 type bridge", "link set cni0 up", "addr add fd00:10:244:1::1/64 dev cni0"}, []string{"cni0"}},
		{"somebody else's bridge", []string{"link add cni0 type bridge", "addr add 10.88.0.1/16 dev cni0"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			for _, args := range tc.ip {
				ns.MustRun("", "ip", strings.Fields(args)...)
			}
			ns.Do(func() {
				warnings, err := Devices(network)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, warnings, tc.want)
			})
		})
	}
}

func TestSavedRules(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"none", nil, nil},
		{"clean", map[string]string{"etc/iptables/rules.v4": "*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n", "etc/nftables.conf": "flush ruleset\n"}, nil},
		{"Debian", map[string]string{
			"etc/iptables/rules.v4": "*nat\n:FLANNEL-POSTRTG - [0:0]\nCOMMIT\n",
			"etc/iptables/rules.v6": "*filter\n-A FORWARD -s fd00::/56 -m comment --comment \"flanneld forward\" -j ACCEPT\nCOMMIT\n",
		}, []string{"/etc/iptables/rules.v4", "/etc/iptables/rules.v6"}},
		{"Red Hat", map[string]string{"etc/sysconfig/iptables": "-A POSTROUTING -m comment --comment \"flannel masq\" -j MASQUERADE"}, []string{"/etc/sysconfig/iptables"}},
		{"nftables", map[string]string{"etc/nftables.conf": "table ip flannel-ipv4 {\n}\n"}, []string{"/etc/nftables.conf"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for name, text := range tc.files {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			warnings, err := SavedRules(root)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, path := range tc.want {
				want = append(want, root+path)
			}
			compare(t, warnings, want)
		})
	}
}

// TestSavedRulesUnreadable: a file that can't be read is an error, and the others
// are read all the same.
func TestSavedRulesUnreadable(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "etc/iptables/rules.v4"), 0o755); err != nil { // a directory
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/nftables.conf"), []byte("flannel-ipv6"), 0o644); err != nil {
		t.Fatal(err)
	}
	warnings, err := SavedRules(root)
	if err == nil || !strings.Contains(err.Error(), "rules.v4") {
		t.Errorf("error is %v", err)
	}
	compare(t, warnings, []string{"nftables.conf"})
}

// compare fails the test unless each warning has its part.
func compare(t *testing.T, warnings, want []string) {
	t.Helper()
	if len(warnings) != len(want) {
		t.Errorf("warnings %q, want %q", warnings, want)
		return
	}
	for i := range want {
		if !strings.Contains(warnings[i], want[i]) {
			t.Errorf("warning %q, want %q in it", warnings[i], want[i])
		}
	}
}
