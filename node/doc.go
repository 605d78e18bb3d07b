// Package node looks for what else of Flannel's is on a node beside its rules:
// things that are not unflannel's to remove, but that an operator has to know of.
package node
