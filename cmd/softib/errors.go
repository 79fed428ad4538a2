package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"softib/operate/control"
)

// hint is an error with what to do next.
type hint struct {
	err  error
	next string
}

func (h *hint) Error() string { return h.err.Error() }
func (h *hint) Unwrap() error { return h.err }
func (h *hint) Next() string  { return h.next }

// next adds what to do next to an error.
func next(err error, format string, v ...any) error {
	return &hint{err, fmt.Sprintf(format, v...)}
}

// usageError is a command line that cannot be understood, whichever process finds that.
type usageError struct{ err error }

func (e *usageError) Error() string        { return e.err.Error() }
func (e *usageError) Unwrap() error        { return e.err }
func (e *usageError) Is(target error) bool { return target == control.ErrUsage }

// nextOf is what an error says to do next; empty if it says nothing.
func nextOf(err error) string { return control.NextOf(err) }

// printError writes an error for a person.
func printError(w io.Writer, err error) {
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	fmt.Fprintf(w, "softib: %v\n", err)
	if n := nextOf(err); n != "" {
		fmt.Fprintf(w, "next: %s\n", n)
	}
}

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
	// exitInterrupted is what a shell reports for a program that Ctrl-C ended.
	exitInterrupted = 128 + 2
)

func exitCode(err error) int {
	if errors.Is(err, control.ErrUsage) {
		return exitUsage
	}
	if errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	return exitFailed
}
