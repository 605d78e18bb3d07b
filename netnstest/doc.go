// Package netnstest gives tests network namespaces of their own: made in a
// moment, filled by the real programs, compared byte by byte, and gone at the
// test's end. Namespaces are independent of each other and of the machine's, so
// that tests may run in parallel and on a machine in use.
//
// Packages that use it call [Main] from their TestMain:
//
//	func TestMain(m *testing.M) { netnstest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		t.Parallel()
//		ns := netnstest.New(t)
//		ns.LoadNFT("table ip mine {\n}\n")
//		before := ns.Dump()
//		ns.Do(something)
//		if d := netnstest.Diff(before, ns.Dump()); d != "" {
//			t.Error(d)
//		}
//	}
//
// [NewFault] joins several of them to the two nodes on which the fault shows that
// Flannel's leftovers cause.
package netnstest
