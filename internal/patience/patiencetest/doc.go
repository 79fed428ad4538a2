// Package patiencetest makes the machine of a test look as if it had much to do, or nothing: waits that ask package
// patience have to grow with that.
package patiencetest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"softib/internal/patience"
)

// Load is how many programs are said to want a processor.
type Load struct {
	t    testing.TB
	file string
}

// Pretend makes the machine look as if so many programs wanted each processor, until the test ends. It is for tests
// that run alone: all of the process sees that load.
func Pretend(t testing.TB, each int) *Load {
	t.Helper()
	l := &Load{t, filepath.Join(t.TempDir(), "loadavg")}
	l.Set(each)
	t.Cleanup(patience.Pretend(l.file))
	return l
}

// Set makes it look otherwise.
func (l *Load) Set(each int) {
	l.t.Helper()
	text := fmt.Sprintf("0.50 0.40 0.30 %d/900 12345\n", each*runtime.GOMAXPROCS(0))
	if err := os.WriteFile(l.file, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// Words are how an error tells of such a load.
func Words(each int) string {
	return fmt.Sprintf(", at a load of %d on %d processors", each*runtime.GOMAXPROCS(0), runtime.GOMAXPROCS(0))
}
