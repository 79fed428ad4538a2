package benchsize

import "testing"

// Of is what a benchmark measures, or, with -short, something of the same kind that takes no time.
func Of[T any](measured, tiny T) T {
	if testing.Short() {
		return tiny
	}
	return measured
}

// Tree is a fat tree that a benchmark measures, or, with -short, one of 32 hosts.
func Tree(spec string) string { return Of(spec, "fat-tree:radix=8,levels=2") }
