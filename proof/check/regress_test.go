package check

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestOnceFailed runs the small scenarios, under testdata, in which torture has found
// bugs that are fixed since. Each is named after its bug.
func TestOnceFailed(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var sc Scenario
			if err := json.Unmarshal(b, &sc); err != nil {
				t.Fatal(err)
			}
			res := Run(&sc)
			for _, v := range res.Violations {
				t.Error(v)
			}
			if res.Ops == 0 || res.Hops == 0 {
				t.Errorf("%d ops, %d hops: the scenario does nothing", res.Ops, res.Hops)
			}
		})
	}
}
