package dropin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// TestExecKeepsFiles has a program with a long environment, for which Exec needs memory, become another while the
// collector runs all the time: the files that the other is given have to be open there, though nobody else holds them.
func TestExecKeepsFiles(t *testing.T) {
	const role = "SOFTIB_TEST_EXEC"
	if dir := os.Getenv(role); dir != "" {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		env := []string{"PATH=" + os.Getenv("PATH")}
		for i := range 90_000 {
			env = append(env, fmt.Sprintf("V%d=", i))
		}
		go func() {
			for {
				runtime.GC()
			}
		}()
		t.Fatal(Set{dir}.Exec(Entry{Tree: dir, Net: f}, "/bin/true", []string{"true"}, env))
	}
	dir := t.TempDir()
	// softib-enter -t TREE -w DESCRIPTOR ...
	script := "#!/bin/sh\ntest -e /proc/self/fd/$4 && echo open || echo closed\n"
	if err := os.WriteFile(filepath.Join(dir, enterer), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), role+"="+dir)
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "open\n" {
			t.Fatalf("%q, %v", out, err)
		}
	}
}
