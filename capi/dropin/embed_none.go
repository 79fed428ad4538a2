//go:build !dropin

package dropin

import "io/fs"

// embedded is nothing: the drop-in libraries lie beside the program, or nowhere.
func embedded() fs.FS { return nil }
