//go:build dropin

package dropin

import (
	"embed"
	"io/fs"
)

//go:embed built
var built embed.FS

// embedded is what scripts/dropin.sh built.
func embedded() fs.FS {
	files, err := fs.Sub(built, "built")
	if err != nil {
		panic(err) // the name is a constant
	}
	return files
}
