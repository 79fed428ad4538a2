package proto

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"softib/node/agent"
	"softib/node/cm"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/mad"
)

// Version is that of the messages and of everything in shared memory. Both ends must have the same.
const Version = 10

// messageMax bounds a message.
const messageMax = 64 << 10

// fdsMax bounds the descriptors beside one.
const fdsMax = 4

// ErrMessage is matched by messages that are not as they must be.
var ErrMessage = errors.New("bad message")

// Message is one record; the field that is set says what it is.
type Message struct {
	Hello    *Hello   `json:",omitempty"`
	Ask      *Ask     `json:",omitempty"`
	Welcome  *Welcome `json:",omitempty"`
	Answer   *Answer  `json:",omitempty"`
	Outgoing *Ring    `json:",omitempty"` // descriptors: the ring, the receiver's page
	Incoming *Ring    `json:",omitempty"` // descriptors: the ring, the sender's page, and its origin if it is checked
	Line     *Line    `json:",omitempty"` // descriptors: with the first one, the socket of all
	// Pipes is a ring for whose payloads the process would have pipes, since its receiver cannot read its memory. The
	// daemon says the same to both ends, with the descriptors, if it gives some.
	Pipes   uint32     `json:",omitempty"`
	Gone    uint32     `json:",omitempty"` // a ring whose other end is no more, or such a line
	Port    *Port      `json:",omitempty"`
	Refusal string     `json:",omitempty"` // why the conversation ends
	Rejoin  ib.PortNum `json:",omitempty"` // the port whose manager wants clients to register again
	// Violation is a packet with a wrong key, for the adapter's counters and its manager.
	Violation *agent.Notice `json:",omitempty"`
	Heard     *Heard        `json:",omitempty"`
	Join      *Join         `json:",omitempty"`
	Joined    *Joined       `json:",omitempty"`
	// Dead is a line of the process's by which nothing passes.
	Dead     uint32    `json:",omitempty"`
	Leave    uint64    `json:",omitempty"` // ends what that Join began
	FindPath *FindPath `json:",omitempty"`
	Path     *Path     `json:",omitempty"`
	// Connections: a process listens and connects, and is told what comes of it.
	Listen    *Listen    `json:",omitempty"`
	Listened  *Listened  `json:",omitempty"`
	Connect   *Connect   `json:",omitempty"`
	Requested *Requested `json:",omitempty"`
	Accept    *Accept    `json:",omitempty"`
	Accepted  *Accepted  `json:",omitempty"`
	Ready     uint64     `json:",omitempty"` // the connection whose queue pair is, at the side that asked
	Closed    uint64     `json:",omitempty"` // the connection that is over, said by either
}

// Hello is how a process begins.
type Hello struct {
	Version int
	Host    string
	// Library is the release that the process's library is of.
	Library string
}

// Welcome gives a process its part of the adapter. Descriptors: its page, its slots, its ledger.
type Welcome struct {
	Version int
	Host    string
	Adapter Adapter
	Ports   []Port
	Block   uint16
}

// Adapter is what does not change.
type Adapter struct {
	NodeGUID, SystemGUID ib.GUID
	PortGUIDs            []ib.GUID
	VendorID, DeviceID   uint32
	Firmware             string
	Desc                 string
	Limits               hca.Limits
	Reorder              int // see hca.Config
}

// Port is the state of one port.
type Port struct {
	Num  ib.PortNum
	HCA  hca.Port
	Info mad.PortInfo
	// Change is how often it has changed.
	Change uint32
}

// Heard says that the process knows of a port's change.
type Heard struct {
	Num    ib.PortNum
	Change uint32
}

// Key is what a way depends on, as package endpoint has it.
type Key struct {
	Port  ib.PortNum
	DLID  ib.LID
	SL    ib.SL
	PKey  ib.PKey
	Block uint16
}

// Ask asks for a way.
type Ask struct {
	ID  uint64
	Key Key
}

// Answer is the way: the rings are those of Outgoing messages that came before.
type Answer struct {
	ID    uint64
	Slot  int
	Gen   uint32
	Rings []uint32
}

// Ring hands out one end of a ring.
type Ring struct {
	ID  uint32
	PID int // the process at the other end; 0 for the fabric, endpoint.OtherUser for another user's
	// Port is, of an incoming one, the port of the adapter that it leads to.
	Port ib.PortNum
}

// Line hands out one end of a tunnel to a process at another machine. Packets go one way; its number is one of rings.
type Line struct {
	ID uint32
	// Sends: it is the end that sends.
	Sends bool
	Peer  netip.AddrPort
	MTU   int
	// SendSecret and RecvSecret are the tunnel's, SendIndex and RecvIndex what its datagrams begin with.
	SendSecret, RecvSecret []byte
	SendIndex, RecvIndex   uint32
	// Port is, of the end that receives, the port of the adapter that it leads to, and From whose packets come by it.
	Port ib.PortNum
	From Origin
}

// Origin is whose packets may come by a line: those of one block of queue pairs of a port, to one address, with one
// key.
type Origin struct {
	LID, DLID ib.LID
	LMC       uint8
	SL        ib.SL
	PKey      ib.PKey
	GIDs      []ib.GID
	Block     uint16
}

// Join asks for the port's membership in a multicast group, which lasts until Leave or the end of the conversation. Of
// the record the MGID, the partition, the Q_Key and the join state count.
type Join struct {
	ID   uint64
	Port ib.PortNum
	Want mad.MCMemberRecord
}

// Joined is the answer: the group as the administrator has it, or why there is no membership.
type Joined struct {
	ID  uint64
	Got mad.MCMemberRecord
	Why string `json:",omitempty"`
}

// FindPath asks the administrator for a path from a port. Of the record the DGID, the partition and the service count.
type FindPath struct {
	ID   uint64
	Port ib.PortNum
	Want mad.PathRecord
}

// Path is the answer: the path, or why there is none.
type Path struct {
	ID  uint64
	Got mad.PathRecord
	Why string `json:",omitempty"`
}

// Listen has the connection manager of a port take requests for a service.
type Listen struct {
	ID        uint64
	Port      ib.PortNum
	ServiceID uint64
}

// Listened is the answer.
type Listened struct {
	ID  uint64
	Why string `json:",omitempty"` // if it does not
}

// Connect asks for a connection, whose number is ID; Accepted or Closed answers it.
type Connect struct {
	ID        uint64
	Port      ib.PortNum
	Path      mad.PathRecord
	ServiceID uint64
	QPN       ib.QPN
	SRQ       bool
	Private   []byte
}

// PassiveConn is set in the numbers of connections that others have asked for, which the daemon makes.
const PassiveConn = 1 << 63

// Requested is somebody's wish for a connection: the process answers with Accept or Closed.
type Requested struct {
	Listen  uint64
	Conn    uint64
	GID     ib.GID
	Private []byte
	Attrs   [3]cm.QPAttr
}

// Accept answers that the queue pair is ready.
type Accept struct {
	Conn    uint64
	QPN     ib.QPN
	SRQ     bool
	Private []byte
}

// Accepted is a connection that the other side has agreed to: the process answers with Ready or Closed.
type Accepted struct {
	Conn    uint64
	Private []byte
	Attrs   [3]cm.QPAttr
}

// Conn is one end of a conversation. Sending and receiving may go on at once, each by one caller.
type Conn struct {
	c   *net.UnixConn
	buf []byte
	oob []byte
}

// NewConn speaks over c, which must be of kind unixpacket.
func NewConn(c *net.UnixConn) *Conn {
	return &Conn{c: c, buf: make([]byte, messageMax+1), oob: make([]byte, unix.CmsgSpace(4*fdsMax))}
}

// Send sends a message and descriptors, which stay the caller's.
func (c *Conn) Send(m *Message, fds ...int) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	if len(b) > messageMax {
		return fmt.Errorf("attach: a message of %d bytes: want at most %d: %w", len(b), messageMax, ErrMessage)
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	_, _, err = c.c.WriteMsgUnix(b, oob, nil)
	return err
}

// Receive waits for a message. The descriptors are the caller's to close.
func (c *Conn) Receive() (*Message, []int, error) {
	n, oobn, flags, _, err := c.c.ReadMsgUnix(c.buf, c.oob)
	if err != nil {
		return nil, nil, err
	}
	fds, err := rights(c.oob[:oobn])
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = fmt.Errorf("attach: too many descriptors: %w", ErrMessage)
	}
	var m *Message
	if err == nil {
		m, err = Parse(c.buf[:n])
	}
	if err != nil {
		CloseAll(fds)
		return nil, nil, err
	}
	return m, fds, nil
}

// Parse reads one record.
func Parse(b []byte) (*Message, error) {
	if len(b) == 0 {
		return nil, os.ErrClosed // the end of a conversation
	}
	if len(b) > messageMax {
		return nil, fmt.Errorf("attach: a message of more than %d bytes: %w", messageMax, ErrMessage)
	}
	var m Message
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("attach: %w: %w", ErrMessage, err)
	}
	return &m, nil
}

func rights(oob []byte) (fds []int, err error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("attach: %w: %w", ErrMessage, err)
	}
	for i := range msgs {
		f, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue // of another kind
		}
		fds = append(fds, f...)
	}
	return fds, nil
}

// CloseAll closes descriptors.
func CloseAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Close ends the conversation.
func (c *Conn) Close() error { return c.c.Close() }
