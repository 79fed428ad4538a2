package metrics

import (
	"os"
	"os/exec"
	"testing"
)

// debian finds a program of Debian's package prometheus.
func debian(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("SOFTIB_NO_PROMETHEUS") != "" {
			t.Skip(err)
		}
		t.Fatalf("%v: install Debian's prometheus, or set SOFTIB_NO_PROMETHEUS to go without", err)
	}
	return path
}
