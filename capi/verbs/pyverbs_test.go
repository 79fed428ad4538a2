package verbs

import (
	"testing"

	"softib/internal/rdmacore"
)

// TestRDMACore runs rdma-core's own tests of libibverbs. What they do not skip has to pass, and must not become less.
// Those that need a network interface are run by internal/fieldtest.TestRoCE.
func TestRDMACore(t *testing.T) {
	line, err := rdmacore.Tests(t.TempDir(), "softib0")
	if err != nil {
		t.Fatal(err)
	}
	out := newWorld(t, "star:2").run(t, "h1", line[0], line[1:]...)
	o := rdmacore.Read(out)
	if len(o.Passed) < 135 || len(o.Failed) > 0 {
		t.Errorf("%d tests passed, want 135 at least; failed: %q\n%s", len(o.Passed), o.Failed, out)
	}
	t.Logf("%d passed, %d skipped", len(o.Passed), len(o.Skipped))
}
