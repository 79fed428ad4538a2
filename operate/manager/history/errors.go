package history

import (
	"errors"
	"fmt"
)

// Errors that callers match with errors.Is.
var (
	// ErrCorrupt is a store whose file is not what was written.
	ErrCorrupt = errors.New("the history file is damaged")
	// ErrInUse is a store that another process has open.
	ErrInUse = errors.New("another process has the history file open")
	// ErrNewer is a store that a later version wrote.
	ErrNewer = errors.New("the history file is of a later version")
	// ErrClosed is a store that was closed.
	ErrClosed = errors.New("the history is closed")
	// ErrNotSaved is a chunk that could not be written; it is kept in memory and tried again.
	ErrNotSaved = errors.New("history could not be saved")
	// ErrUnknownPort is a port that PortIDs never gave out.
	ErrUnknownPort = errors.New("no such port in the history")
	// ErrBadQuery is a question that makes no sense.
	ErrBadQuery = errors.New("bad history query")
)

// damageError says what in a record is wrong. It is an ErrCorrupt.
type damageError struct {
	where string
	value uint64
	what  string
}

func (e *damageError) Error() string {
	return fmt.Sprintf("history: %s: %d %s: %v", e.where, e.value, e.what, ErrCorrupt)
}

func (e *damageError) Unwrap() error { return ErrCorrupt }

func damage(where string, value uint64, what string) error {
	return &damageError{where, value, what}
}

// FileError is what went wrong with the store's file, and what to do about it.
type FileError struct {
	Path string
	Err  error
}

func (e *FileError) Error() string {
	s := fmt.Sprintf("history: %s: %v", e.Path, e.Err)
	switch {
	case errors.Is(e.Err, ErrCorrupt), errors.Is(e.Err, ErrNewer):
		return s + ": move the file away, a new one is begun in its place"
	case errors.Is(e.Err, ErrInUse):
		return s + ": stop that process, or give this one another file"
	}
	return s
}

func (e *FileError) Unwrap() error { return e.Err }
