// Package tidy holds the rules of this repository that no compiler keeps:
// which package may import which, what the engines must never touch, and how
// files look. Its test runs every rule over the whole module, so a change
// that breaks one fails like any other bug.
//
// A rule is a function from a loaded Module to complaints. It reads nothing
// else, so that each rule is itself tested on planted sources that break it.
// The facts (ranks, bans, limits) are tables in rules.go; to add a package,
// give it a line there.
package tidy
