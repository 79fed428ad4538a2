package listening

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// On looks for a socket in state LISTEN (0A) in the kernel's tables.
func On(port int) bool { return In("/proc/net", port) }

// In does so in the tables of another network namespace, which a folder has.
func In(folder string, port int) bool {
	want := fmt.Sprintf(":%04X", port)
	for _, name := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile(filepath.Join(folder, name))
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[1], want) && f[3] == "0A" {
				return true
			}
		}
	}
	return false
}
