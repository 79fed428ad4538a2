//go:build !dropin

package umad

// embedded is empty: the drop-in lies beside the program, or nowhere.
var embedded []byte
