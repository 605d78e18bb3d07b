package netnstest

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
