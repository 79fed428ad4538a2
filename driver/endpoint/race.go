//go:build race

package endpoint

const racing = true
