// Package unflannel finds what Flannel left in a Linux node's firewall and
// removes it, and nothing else.
//
// When a Kubernetes node moves from Flannel to another network, Flannel's rules
// stay: FLANNEL-POSTRTG goes on masquerading traffic between pods, so that
// network policies no longer see where it came from, and FLANNEL-FWD goes on
// accepting the whole pod network before any policy is asked.
//
// The work is divided in three:
//
//   - A [Backend] reads chains and their references from one of the kernel's
//     packet filters and deletes what it is told to. Package nft speaks to
//     nf_tables, package legacy to the older ip_tables and ip6_tables.
//   - The catalogue (catalogue.go) alone says what is Flannel's.
//   - [Check] and [Clean] read, decide, remove, and read again until nothing is
//     left or what is left has a reason, over any number of backends.
package unflannel
