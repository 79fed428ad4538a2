package verbs

import (
	"errors"
	"fmt"

	"softib/node/hca"
)

// Kinds of refusal, for errors.Is. They stand for the errno values that libibverbs documents.
var (
	ErrInvalid      = errInvalid      // EINVAL
	ErrNoMemory     = errNoMemory     // ENOMEM
	ErrBusy         = errBusy         // EBUSY: something else still uses it
	ErrNotSupported = errNotSupported // EOPNOTSUPP
	ErrDestroyed    = errDestroyed    // EINVAL: closed before
	ErrFull         = errFull         // ENOMEM: poll completions first
	ErrState        = errState        // EINVAL: not in this state
)

// ErrClosed is matched by the errors of calls that outlive their device.
var ErrClosed = errors.New("device is closed")

var (
	errInvalid, errNoMemory, errBusy       = hca.ErrInvalid, hca.ErrNoMemory, hca.ErrBusy
	errNotSupported, errDestroyed          = hca.ErrNotSupported, hca.ErrDestroyed
	errFull, errState                error = hca.ErrFull, hca.ErrState
)

// AttrError is a verb that was refused because of one attribute. Nothing has changed then.
type AttrError struct {
	Verb string // the verb, by its libibverbs name, such as "modify_qp"
	Attr string // the attribute likewise, such as "path_mtu"
	Got  any    // what was passed
	Want string // what would have been accepted
	Kind error  // one of the errors above
}

func (e *AttrError) Error() string {
	return fmt.Sprintf("verbs: %s: %s: %s = %v, want %s", e.Verb, e.Kind, e.Attr, e.Got, e.Want)
}

// Unwrap lets errors.Is match the kind.
func (e *AttrError) Unwrap() error { return e.Kind }

// refused is an error of the engine as programs see it.
func refused(err error) error {
	if err == nil {
		return nil
	}
	return refusal(err)
}

func refusal(err error) error {
	if e, ok := err.(*hca.AttrError); ok { //nolint:errorlint // the engine wraps none
		return (*AttrError)(e)
	}
	return err
}
