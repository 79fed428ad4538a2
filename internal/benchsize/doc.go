// Package benchsize makes benchmarks small where they are not to measure but to show that they still run: make test
// runs every benchmark once, with -short.
package benchsize
