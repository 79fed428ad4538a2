//go:build !plant

package tunnel

import (
	"os/exec"
	"testing"
)

// TestPlanted builds the package once more with bugs that can be switched on, and wants torture to find each
// (plant_on_test.go).
func TestPlanted(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the package a second time")
	}
	out, err := exec.Command("go", "test", "-tags", "plant", "-run", "^TestPlantedBugs$", "-count=1", "-v",
		".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
