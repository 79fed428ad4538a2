// Package cputime is for tests that say how much work something may be. The clock on the wall also counts what the
// machine does for others; the processor's time does not, so that a bound on it holds on a busy machine too.
package cputime

import (
	"slices"
	"syscall"
	"testing"
	"time"
)

// AtRest is what a process that has nothing to do uses of a processor in so long: the median of five such times, since
// what happens once, as clearing away what ran before, is not what it costs to wait.
func AtRest(t testing.TB, window time.Duration) time.Duration {
	t.Helper()
	var all [5]time.Duration
	for i := range all {
		before := Used(t)
		<-time.After(window)
		all[i] = Used(t) - before
	}
	t.Logf("%v of processor time, in %v each", all, window)
	slices.Sort(all[:])
	return all[len(all)/2]
}

// Used is what this process has had of all processors.
func Used(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
