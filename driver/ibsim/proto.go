package ibsim

import (
	"encoding/binary"
	"fmt"

	"softib/proto/ib"
	"softib/proto/mad"
)

// The control datagram: a request to ibsim itself, and its answer. Numbers are in the machine's
// order, because ibsim sends its structs as they lie in memory.
const (
	ctlSize     = 80
	ctlMagic    = 0xDEADBEEF
	ctlDataSize = 64

	offCtlMagic  = 0
	offCtlClient = 4
	offCtlType   = 8
	offCtlLen    = 12
	offCtlData   = 16
)

// ctlType is what a control datagram asks for.
type ctlType uint32

// The types, in ibsim's order. An answer has the type of its request, or ctlError.
const (
	ctlError ctlType = iota
	ctlConnect
	ctlDisconnect
	ctlGetPort
	ctlGetVendor
	ctlGetGID
	ctlGetGUID
	ctlGetNodeInfo
	ctlGetPortInfo
	ctlSetIsSM
	ctlGetPKeys
	numCtlType
)

var ctlNames = [numCtlType]string{"error", "connect", "disconnect", "get port", "get vendor", "get GID", "get GUID",
	"get NodeInfo", "get PortInfo", "set IsSM", "get P_Keys"}

func (t ctlType) String() string {
	if t < numCtlType {
		return ctlNames[t]
	}
	return fmt.Sprintf("ctlType(%d)", uint32(t))
}

// native is the order of numbers in control datagrams.
var native = binary.NativeEndian

// ctl is a control datagram.
type ctl struct {
	client uint32
	typ    ctlType
	data   [ctlDataSize]byte
	// n is how much of data counts.
	n int
}

func (c *ctl) append(b []byte) []byte {
	b = native.AppendUint32(b, ctlMagic)
	b = native.AppendUint32(b, c.client)
	b = native.AppendUint32(b, uint32(c.typ))
	b = native.AppendUint32(b, uint32(c.n))
	return append(b, c.data[:]...)
}

func (c *ctl) parse(b []byte) error {
	if len(b) != ctlSize {
		return fmt.Errorf("ibsim: control datagram of %d bytes: %w: want %d", len(b), ErrProtocol, ctlSize)
	}
	if m := native.Uint32(b[offCtlMagic:]); m != ctlMagic {
		return fmt.Errorf("ibsim: control datagram with magic 0x%08x: %w: want 0x%08x", m, ErrProtocol,
			uint32(ctlMagic))
	}
	*c = ctl{client: native.Uint32(b[offCtlClient:]), typ: ctlType(native.Uint32(b[offCtlType:])),
		n: int(min(native.Uint32(b[offCtlLen:]), ctlDataSize))}
	copy(c.data[:], b[offCtlData:])
	return nil
}

// clientInfo is the data of a connect: who we are on the way there, which client we became on the way back.
type clientInfo struct {
	id   uint32 // names our socket; ibsim's number for us in the answer
	qp   uint32
	isSM uint32
	node string // up to 31 bytes
}

const (
	clientInfoSize = 44
	nodeIDSize     = 32
)

func (i *clientInfo) put(c *ctl) {
	native.PutUint32(c.data[0:], i.id)
	native.PutUint32(c.data[4:], i.qp)
	native.PutUint32(c.data[8:], i.isSM)
	copy(c.data[12:12+nodeIDSize-1], i.node)
	c.n = clientInfoSize
}

func (i *clientInfo) get(c *ctl) {
	id := c.data[12 : 12+nodeIDSize]
	n := 0
	for n < len(id) && id[n] != 0 {
		n++
	}
	*i = clientInfo{native.Uint32(c.data[0:]), native.Uint32(c.data[4:]), native.Uint32(c.data[8:]), string(id[:n])}
}

// The data datagram. Its numbers are big-endian, the LIDs in the first half of their words.
const (
	packetSize = 288

	offDLID   = 0
	offSLID   = 4
	offDQP    = 8
	offSQP    = 12
	offStatus = 16
	offLength = 24
	offMAD    = 32
)

// statusNoWay is the status of a request that comes back because it could not be delivered: ETIMEDOUT.
const statusNoWay = 110

// putPacket lays a datagram to env out in b.
func putPacket(b *[packetSize]byte, env *mad.Envelope, m *[mad.Size]byte) {
	be := binary.BigEndian
	clear(b[:offMAD])
	be.PutUint16(b[offDLID:], uint16(env.LID))
	// 0 lets ibsim fill in the LID of our port.
	if env.LID == ib.LIDPermissive {
		be.PutUint16(b[offSLID:], uint16(ib.LIDPermissive))
	}
	be.PutUint32(b[offDQP:], uint32(env.QPN))
	sqp := ib.QPNGSI
	if mad.Class(m[1]).IsSubnet() {
		sqp = ib.QPNSMI
	}
	be.PutUint32(b[offSQP:], uint32(sqp))
	be.PutUint64(b[offLength:], mad.Size)
	copy(b[offMAD:], m[:])
}

// Packet is a datagram that has come.
type Packet struct {
	// Env is its sender.
	Env  mad.Envelope
	Data [mad.Size]byte
}

// getPacket reads a datagram and reports its status.
func getPacket(b *[packetSize]byte, p *Packet) (status uint32) {
	be := binary.BigEndian
	p.Env = mad.Envelope{LID: ib.LID(be.Uint16(b[offSLID:])), QPN: ib.QPN(be.Uint32(b[offSQP:])) & ib.QPNMask}
	if p.Env.QPN == ib.QPNGSI {
		p.Env.QKey = ib.QKeyGSI
	}
	copy(p.Data[:], b[offMAD:])
	return be.Uint32(b[offStatus:])
}
