package tenant

import (
	"errors"
	"fmt"
	"strings"

	"softib/proto/ib"
)

// Errors that are matched with errors.Is. Whatever the error, nothing has changed.
var (
	// ErrExists: a tenant has this name or this key already.
	ErrExists = errors.New("a tenant has it already")
	// ErrNotFound: there is no such tenant, or no such member of it.
	ErrNotFound = errors.New("no such tenant")
	// ErrReserved: the operator's partitions.conf has this key.
	ErrReserved = errors.New("the key is in partitions.conf")
	// ErrInvalid: a value that cannot be; as an *InvalidError it says which.
	ErrInvalid = errors.New("invalid")
	// ErrRefused: a node did not take what it was told, or a probe found that it does not do it; as a *RefusedError it
	// says which.
	ErrRefused = errors.New("refused by the fabric")
	// ErrUnmanaged: no subnet manager of ours is master of the fabric.
	ErrUnmanaged = errors.New("the fabric's subnet manager is not softib's")
	// ErrLocked: another process has the store open.
	ErrLocked = errors.New("the store is in use by another process")
	// ErrCorrupt: the store's file is damaged.
	ErrCorrupt = errors.New("the store is damaged")
	// ErrStore: the store cannot be written.
	ErrStore = errors.New("the store cannot be written")
	// ErrClosed: the book was closed.
	ErrClosed = errors.New("the book of tenants is closed")
	// ErrUnchanged is what an edit returns that finds nothing to do: the call succeeds and nothing is written.
	ErrUnchanged = errors.New("nothing to change")
)

// InvalidError is a value that cannot be.
type InvalidError struct{ Field, Value, Want string }

func (e *InvalidError) Error() string {
	return fmt.Sprintf("tenant: %s %s: want %s", e.Field, e.Value, e.Want)
}

// Is makes it match ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

func invalid(field, value, want string) error { return &InvalidError{field, value, want} }

// NotMemberError is a port that is no member of a tenant. It matches ErrNotFound.
type NotMemberError struct {
	GUID   ib.GUID
	Tenant string
}

func (e *NotMemberError) Error() string {
	return fmt.Sprintf("tenant: port %v is no member of %s: %v", e.GUID, e.Tenant, ErrNotFound)
}

// Is makes it match ErrNotFound.
func (e *NotMemberError) Is(target error) bool { return target == ErrNotFound }

// Refusal is a node that did not do its part.
type Refusal struct {
	// Node is its name, as people know it, with the port where there is one.
	Node string
	// Why says what it refused, and how.
	Why string
}

func (r Refusal) String() string { return r.Node + ": " + r.Why }

// RefusedError is who refused.
type RefusedError struct {
	Refusals []Refusal
	// Left are nodes that could not be told to be as before either: they were silent. The subnet manager tells them as
	// soon as they answer.
	Left []Refusal
	late error // that of a change that took too long
}

// refusalsShown is how many an error names.
const refusalsShown = 4

func (e *RefusedError) Error() string {
	text := "tenant: nothing was changed: " + listed(e.Refusals)
	if len(e.Left) > 0 {
		text += "; what it was before is put in force again as soon as they answer: " + listed(e.Left)
	}
	return text
}

func listed(list []Refusal) string {
	var b strings.Builder
	for i, r := range list {
		if i == refusalsShown {
			fmt.Fprintf(&b, "; and %d more", len(list)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(r.String())
	}
	return b.String()
}

// Is makes it match ErrRefused.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// Unwrap makes a change that took too long match context.DeadlineExceeded.
func (e *RefusedError) Unwrap() error { return e.late }
