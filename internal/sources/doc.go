// Package sources is for tests that build commands of this module and run them: go test takes the result of a former
// run for one of now unless the test has looked at what the command is made of.
package sources
