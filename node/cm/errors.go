package cm

import (
	"errors"
	"fmt"
)

// Reasons, for errors.Is.
var (
	// ErrConn is a connection that does not exist, or no longer.
	ErrConn = errors.New("no such connection")
	// ErrListen is a listener that does not exist.
	ErrListen = errors.New("no such listener")
	// ErrState is a call that the connection's state does not allow. The error is a *StateError.
	ErrState = errors.New("not in this state")
	// ErrInUse is a service ID that another listener has.
	ErrInUse = errors.New("service ID in use")
	// ErrParam is a parameter that does not fit its field. The error is a *ParamError.
	ErrParam = errors.New("bad parameter")
)

// StateError says what was tried, and in which state.
type StateError struct {
	Call  string
	ID    ConnID
	State State
	Want  string
}

func (e *StateError) Error() string {
	return fmt.Sprintf("cm: %s of connection 0x%08x: state is %s, want %s", e.Call, uint32(e.ID), e.State, e.Want)
}

// Is makes the error match ErrState.
func (e *StateError) Is(target error) bool { return target == ErrState }

// ParamError says which parameter does not fit.
type ParamError struct {
	Call, Field string
	Got         uint64
	Want        string
}

func (e *ParamError) Error() string {
	return fmt.Sprintf("cm: %s: %s is %d, want %s", e.Call, e.Field, e.Got, e.Want)
}

// Is makes the error match ErrParam.
func (e *ParamError) Is(target error) bool { return target == ErrParam }
