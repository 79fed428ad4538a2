//go:build dropin

package umad

import _ "embed"

// embedded is the drop-in that scripts/dropin.sh built.
//
//go:embed built/libibumad.so.3
var embedded []byte
