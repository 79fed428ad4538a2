// Package cputime is for tests that say how much work something may be. The clock on the wall also counts what the
// machine does for others; the processor's time does not, so that a bound on it holds on a busy machine too.
package cputime

import (
	"syscall"
	"testing"
	"time"
)

// Used is what this process has had of all processors.
func Used(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
