package umad

import (
	"context"
	"errors"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
)

var (
	// ErrNoHost is a host that the fabric does not have.
	ErrNoHost = errors.New("no such host")
	// ErrNoPort is a port that the host does not have.
	ErrNoPort = errors.New("no such port")
	// ErrClosed is a session whose fabric has gone.
	ErrClosed = errors.New("session closed")
)

// Ports is the fabric as the server needs it. Its methods are called from many goroutines.
type Ports interface {
	// CA is the adapter of a host as it is now; ErrNoHost if there is none.
	CA(host string) (CA, error)
	// Open begins a session on a port; ErrNoHost, ErrNoPort.
	Open(host string, port ib.PortNum) (Session, error)
	// SetIsSM sets or clears IsSM in the port's capability mask.
	SetIsSM(host string, port ib.PortNum, on bool) error
}

// Session is one open port. Agents belong to it and end with it. Send, Recv and the others are
// called from different goroutines.
type Session interface {
	// Register makes an agent of the port's management service. The error matches madrpc's.
	Register(madrpc.Registration) (madrpc.AgentID, error)
	Unregister(madrpc.AgentID) error
	// Send takes a datagram, or a whole message that RMPP is to carry; it copies Data and does not wait.
	Send(madrpc.AgentID, madrpc.Message) error
	// Recv waits for what comes for any agent of the session. The delivery's Data are the caller's
	// until the next Recv. Its error ends the connection.
	Recv(context.Context) (madrpc.Delivery, error)
	Close() error
}

// DeviceName is what programs know a host's adapter by.
const DeviceName = "softib0"

// CA is a channel adapter: what /sys/class/infiniband would say.
type CA struct {
	NodeType             ib.NodeType
	NodeGUID, SystemGUID ib.GUID
	// Firmware and Hardware are versions, Type the name of the model.
	Firmware, Hardware, Type string
	// Ports are in order. Programs see numbers up to 9.
	Ports []Port
}

// Port is a port of an adapter.
type Port struct {
	Num          ib.PortNum
	GUID         ib.GUID
	GIDPrefix    uint64
	LID          ib.LID
	LMC          uint8
	SMLID        ib.LID
	SMSL         ib.SL
	State        ib.PortState
	Phys         ib.PhysState
	Rate         ib.LinkRate
	Capabilities mad.PortCap
	PKeys        []ib.PKey
}
