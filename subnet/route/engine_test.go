package route

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"softib/proto/topo"
)

// The words of a refusal name switches by number, or as whoever shows them likes.
func TestUnfitNamed(t *testing.T) {
	g, err := topo.ParseSpec("torus:4x4")
	if err != nil {
		t.Fatal(err)
	}
	_, err = fatTree{}.Compute(FromGraph(g), Options{})
	e, ok := errors.AsType[*UnfitError](err)
	if !ok || !errors.Is(err, ErrUnfit) || !strings.Contains(e.Why, "switch 0 and switch 1 ") {
		t.Fatalf("ftree says %v of a torus", err)
	}
	named := e.Named(func(s int32) string { return fmt.Sprintf("<%d>", s) })
	if want := strings.NewReplacer("switch 0", "<0>", "switch 1", "<1>").Replace(e.Why); named != want {
		t.Errorf("with names: %q, want %q", named, want)
	}
	if e := (&UnfitError{Engine: "x", Why: "why"}); e.Named(nil) != "why" {
		t.Errorf("a plain one says %q", e.Named(nil))
	}
}
