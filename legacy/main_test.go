package legacy

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unflannel/unflannel"
	"github.com/unflannel/unflannel/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

// families are both, with iptables' name for each.
var families = []struct {
	unflannel.Family
	program string
}{{unflannel.IP, "iptables"}, {unflannel.IP6, "ip6tables"}}

// savesOf returns the test data of a family that legacy iptables loads.
func savesOf(t *testing.T, family unflannel.Family) []string {
	t.Helper()
	version := map[unflannel.Family]string{unflannel.IP: "v4", unflannel.IP6: "v6"}[family]
	var files []string
	for _, pattern := range []string{
		"../testdata/rulesets/*." + version + ".save",
		"../testdata/cases/*/*." + version + ".save",
		"testdata/*." + version + ".save",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("no test data %s: %v", pattern, err)
		}
		files = append(files, found...)
	}
	// What only iptables-nft takes, and what needs an ipset that is not loaded here.
	return slices.DeleteFunc(files, func(f string) bool {
		_, err := os.Stat(filepath.Join(filepath.Dir(f), "ipset"))
		return err == nil || strings.Contains(f, "ipv6-off-nft")
	})
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// read reads in the namespace, and fails the test if that does not work.
func read(t *testing.T, ns *netnstest.NS, b *Backend, queries ...unflannel.Query) *unflannel.Snapshot {
	t.Helper()
	var s *unflannel.Snapshot
	var err error
	ns.Do(func() { s, err = b.Read(context.Background(), queries) })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// queryAll asks for every chain of the tables in the text of iptables-save.
func queryAll(t *testing.T, family unflannel.Family, text string) []unflannel.Query {
	t.Helper()
	saved, err := parseSave([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var queries []unflannel.Query
	for _, s := range saved {
		q := unflannel.Query{Family: family, Table: s.name}
		for name := range s.policies {
			q.Chains = append(q.Chains, name)
		}
		slices.Sort(q.Chains)
		queries = append(queries, q)
	}
	return queries
}

const errnoEINVAL = unix.EINVAL
