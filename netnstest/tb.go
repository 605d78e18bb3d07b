package netnstest

import "os"

// TB is what this package needs of a test. Those of package testing have it; a
// program that is no test can bring its own.
type TB interface {
	Helper()
	Cleanup(func())
	Log(args ...any)
	Errorf(format string, args ...any)
	// Fatalf does not return: it ends the calling goroutine by runtime.Goexit.
	Fatalf(format string, args ...any)
}

// NeedKernel skips a test where this machine runs the program of another
// architecture, by QEMU's emulation of single programs: the kernel is this machine's
// then, and nobody translates what iptables and nf_tables are told. Who runs tests
// so has to say it, in the environment variable NETNSTEST_SKIP. New calls it.
func NeedKernel(t TB) {
	t.Helper()
	if os.Getenv("NETNSTEST_SKIP") == "" {
		return
	}
	if s, ok := t.(interface{ Skip(args ...any) }); ok {
		s.Skip("expected: no network namespaces under emulation (NETNSTEST_SKIP)")
	}
}
