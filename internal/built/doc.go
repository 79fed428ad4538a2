// Package built is for tests that run what make builds: the command, and the drop-in libraries. Several packages have
// such tests, and one run of the whole suite (scripts/test.sh) builds them once for all; go test of one package builds
// them for itself. Whoever asks gets copies of its own, beside which it may put what it likes.
//
// It does not know what they are for, nor how they are built: that is scripts/dropin.sh, and go build without flags.
package built
