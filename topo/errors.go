package topo

import (
	"errors"
	"fmt"

	"softib/ib"
)

// What can be wrong with a node, a port or a cable. They arrive wrapped in a
// NodeError, a PortError or a ParseError; match them with errors.Is.
var (
	ErrUnknownNode   = errors.New("unknown node")
	ErrUnknownPort   = errors.New("unknown port")
	ErrPortInUse     = errors.New("doubled cable")
	ErrSelfLoop      = errors.New("cable from a port to itself")
	ErrNotConnected  = errors.New("port has no cable")
	ErrDuplicateName = errors.New("duplicate name")
	ErrDuplicateGUID = errors.New("duplicate GUID")
	ErrNoName        = errors.New("no name")
	ErrNoGUID        = errors.New("no GUID")
	ErrNodeType      = errors.New("unknown node type")
	ErrPortCount     = errors.New("bad port count")
	ErrTooManyLIDs   = errors.New("too many LIDs")
)

// NodeError says why a node was refused.
type NodeError struct {
	Node   string
	GUID   ib.GUID
	Err    error
	Detail string
}

func (e *NodeError) Error() string {
	return fmt.Sprintf("topo: node %q (%v): %v: %s", e.Node, e.GUID, e.Err, e.Detail)
}

// Unwrap is the kind of mistake.
func (e *NodeError) Unwrap() error { return e.Err }

// PortError says why a cable or a port was refused.
type PortError struct {
	Node   string
	Port   ib.PortNum
	Err    error
	Detail string
}

func (e *PortError) Error() string {
	return fmt.Sprintf("topo: %s[%d]: %v: %s", e.Node, e.Port, e.Err, e.Detail)
}

// Unwrap is the kind of mistake.
func (e *PortError) Unwrap() error { return e.Err }

// LIDError refuses a fabric with more ports than unicast LIDs.
type LIDError struct {
	// Need counts the LIDs that the fabric would take.
	Need int
}

func (e *LIDError) Error() string {
	return fmt.Sprintf("topo: %v: the fabric needs %d LIDs, one for each switch and cabled host port; a subnet has %d (0x0001 to 0x%04X); use fewer hosts or switches",
		ErrTooManyLIDs, e.Need, int(ib.LIDUnicastMax), uint16(ib.LIDUnicastMax))
}

// Unwrap lets errors.Is find ErrTooManyLIDs.
func (e *LIDError) Unwrap() error { return ErrTooManyLIDs }

// checkLIDs refuses a count past the unicast space of IBA 4.1.3.
func checkLIDs(need int) error {
	if need > int(ib.LIDUnicastMax) {
		return &LIDError{Need: need}
	}
	return nil
}
