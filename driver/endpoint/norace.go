//go:build !race

package endpoint

const racing = false
