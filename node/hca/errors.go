package hca

import (
	"errors"
	"fmt"
)

// The kinds of failure that a verb reports, for errors.Is. They stand for the
// errno values that libibverbs documents.
var (
	ErrInvalid      = errors.New("invalid attribute")     // EINVAL
	ErrNoMemory     = errors.New("out of resources")      // ENOMEM
	ErrBusy         = errors.New("resource still in use") // EBUSY
	ErrNotSupported = errors.New("not supported")         // EOPNOTSUPP
	ErrDestroyed    = errors.New("resource is destroyed") // EINVAL
	ErrFull         = errors.New("work queue is full")    // ENOMEM
	ErrState        = errors.New("wrong state")           // EINVAL
	ErrFault        = errors.New("no memory there")       // EFAULT
)

// AttrError is a verb refused because of one attribute.
type AttrError struct {
	Verb string // the verb called, such as "modify_qp"
	Attr string // the attribute, by its libibverbs name, such as "path_mtu"
	Got  any    // what was passed
	Want string // what would have been accepted
	Kind error  // one of the sentinel errors above
}

func (e *AttrError) Error() string {
	return fmt.Sprintf("hca: %s: %s: %s = %v, want %s", e.Verb, e.Kind, e.Attr, e.Got, e.Want)
}

// Unwrap lets errors.Is match the kind.
func (e *AttrError) Unwrap() error { return e.Kind }

func badAttr(verb, attr string, got any, want string) error {
	return &AttrError{Verb: verb, Attr: attr, Got: got, Want: want, Kind: ErrInvalid}
}

func attrErr(kind error, verb, attr string, got any, want string) error {
	return &AttrError{Verb: verb, Attr: attr, Got: got, Want: want, Kind: kind}
}
