package madrpc

import (
	"errors"
	"fmt"

	"softib/proto/mad"
)

// Reasons, for errors.Is.
var (
	// ErrAgent is an agent that is not registered.
	ErrAgent = errors.New("no such agent")
	// ErrInUse is a class and method that another agent has registered for. The
	// error is an *InUseError.
	ErrInUse = errors.New("already registered")
	// ErrRegistration is a registration that contradicts itself.
	ErrRegistration = errors.New("bad registration")
	// ErrLength is a message that is too short or too long.
	ErrLength = errors.New("bad length")
	// ErrClass is a class that the agent may not send.
	ErrClass = errors.New("class not for this agent")
	// ErrDuplicate is a transaction that is still going on.
	ErrDuplicate = errors.New("transaction in use")
)

// InUseError says who has the class and method that was asked for.
type InUseError struct {
	Class   mad.Class
	Version uint8
	OUI     [3]byte // of vendor classes from 0x30 on
	Method  mad.Method
	Owner   AgentID
	Name    string // the owner's, as it registered
}

func (e *InUseError) Error() string {
	who := fmt.Sprintf("agent %d", e.Owner)
	if e.Name != "" {
		who += " (" + e.Name + ")"
	}
	what := fmt.Sprintf("class 0x%02x (%s) version %d", uint8(e.Class), e.Class, e.Version)
	if needsOUI(e.Class) {
		what += fmt.Sprintf(" OUI %02x%02x%02x", e.OUI[0], e.OUI[1], e.OUI[2])
	}
	return fmt.Sprintf("madrpc: %s method %s: %v by %s; unregister that one first, or register without this "+
		"method to send only",
		what, e.Method, ErrInUse, who)
}

// Is makes the error match ErrInUse.
func (e *InUseError) Is(target error) bool { return target == ErrInUse }
