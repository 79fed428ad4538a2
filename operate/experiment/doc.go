// Package experiment is a fabric designed and a job run on it, in virtual time: what softib sim does. A Spec says what
// to build and what to run, Run does it, and a Report says what came of it, as a value that is printed, written as JSON
// and CSV, laid out as a page, and compared with others.
package experiment
