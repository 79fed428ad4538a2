package built

import (
	"bufio"
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"softib/internal/patience"
)

const progressScript = "../../scripts/progress.sh"

// TestProgress: make build counts the packages that go build -v names, and passes on what else it says.
func TestProgress(t *testing.T) {
	for _, c := range []struct{ name, said, out, errs string }{
		{"nothing to do", "", "  packages compiled: 0\n", ""},
		{"packages", "internal/goarch\ngithub.com/spf13/cobra\nsoftib/proto/ib\ngo.etcd.io/bbolt\n" +
			"golang.org/x/sys/unix\n", "  packages compiled: 5\n", ""},
		{"a failure", "softib/proto/ib\n# softib/node/hca\nnode/hca/a.go:3:7: undefined: x\n\t100 %s of \\n\n",
			"  packages compiled: 1\n", "# softib/node/hca\nnode/hca/a.go:3:7: undefined: x\n\t100 %s of \\n\n"},
		{"a last line that does not end", "softib/proto/ib\ngo: no such tool", "  packages compiled: 1\n",
			"go: no such tool\n"},
		{"a last package whose line does not end", "softib/proto/ib", "  packages compiled: 1\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), progressScript)
			var out, errs bytes.Buffer
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.said), &out, &errs
			if err := cmd.Run(); err != nil {
				t.Error(err)
			}
			// How far it is shows each second, which may pass at any line.
			lines := strings.SplitAfter(out.String(), "\n")
			if last := strings.Join(lines[max(len(lines)-2, 0):], ""); last != c.out || errs.String() != c.errs {
				t.Errorf("%q and %q, want %q and %q", out.String(), errs.String(), c.out, c.errs)
			}
		})
	}
}

// TestProgressWhileBuilding: a build that takes long shows how far it is before it ends.
func TestProgressWhileBuilding(t *testing.T) {
	ctx, cancel := patience.Context(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, progressScript)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	shown, built := make(chan string, 1), 0
	lines := bufio.NewReader(out)
	go func() {
		line, _ := lines.ReadString('\n')
		shown <- line
	}()
	for at := time.NewTicker(20 * time.Millisecond); ; {
		select {
		case line := <-shown:
			var count, now int
			if _, err := fmt.Sscanf(line, "  packages compiled: %d, now softib/p%d\n", &count, &now); err != nil ||
				count != now || count < 1 || count > built {
				t.Errorf("after %d packages: %q, %v", built, line, err)
			}
			in.Close()
			if end, _ := lines.ReadString('\n'); end != fmt.Sprintf("  packages compiled: %d\n", built) &&
				!strings.Contains(end, ", now ") { // another second has passed
				t.Errorf("at its end: %q", end)
			}
			_, _ = lines.WriteTo(new(bytes.Buffer))
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			return
		case <-at.C:
			built++
			fmt.Fprintf(in, "softib/p%d\n", built)
		}
	}
}
