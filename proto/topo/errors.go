package topo

import (
	"errors"
	"fmt"

	"softib/proto/ib"
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

// What else can be wrong with a file.
var (
	ErrSyntax       = errors.New("syntax error")
	ErrDuplicateID  = errors.New("duplicate node id")
	ErrOneSided     = errors.New("one-sided cable")
	ErrGUIDMismatch = errors.New("two GUIDs for one port")
	ErrNoSwitch     = errors.New("no switch")
	ErrUnsupported  = errors.New("unsupported statement")
)

// ParseError says where a file is wrong, what stands there and what was expected.
type ParseError struct {
	File string
	// Line and Col count from 1; Col is 0 when the whole line or file is meant.
	Line, Col int
	// Word is the offending text.
	Word string
	// Err is the kind of mistake, or the error of the graph that found it.
	Err    error
	Detail string
}

func (e *ParseError) Error() string {
	at := fmt.Sprintf("%s:%d", e.File, e.Line)
	if e.Col > 0 {
		at += fmt.Sprintf(":%d", e.Col)
	}
	if e.Detail == "" {
		return fmt.Sprintf("%s: %v", at, e.Err)
	}
	return fmt.Sprintf("%s: %v: %s", at, e.Err, e.Detail)
}

// Unwrap is the kind of mistake.
func (e *ParseError) Unwrap() error { return e.Err }

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
	return fmt.Sprintf("topo: %v: the fabric needs %d LIDs, one for each switch and cabled host port; a subnet "+
		"has %d (0x0001 to 0x%04X); use fewer hosts or switches",
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
