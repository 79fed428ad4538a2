package umad

import (
	"encoding/binary"
	"fmt"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
)

// The kernel's structures of rdma/ib_user_mad.h, ABI version 5. Numbers are of the machine's own byte order, except
// those that are on the wire as well. A test holds these places against the header itself.
const (
	abiVersion = 5

	offID        = 0
	offStatus    = 4
	offTimeout   = 8
	offRetries   = 12
	offLength    = 16
	offQPN       = 20 // big-endian, like QKey, LID and flow label
	offQKey      = 24
	offLID       = 28
	offSL        = 30
	offPathBits  = 31
	offGRH       = 32
	offGIDIndex  = 33
	offHopLimit  = 34
	offTClass    = 35
	offGID       = 36
	offFlowLabel = 52
	offPKeyIndex = 56

	hdrSizeOld = 56 // without a P_Key index
	hdrSize    = 64
)

// Registrations: struct ib_user_mad_reg_req and ib_user_mad_reg_req2.
const (
	regID      = 0
	regMethods = 4
	regQPN     = 20
	regClass   = 21
	regVersion = 22
	regOUI     = 23
	regRMPP    = 26
	regSize    = 28

	reg2QPN     = 4
	reg2Class   = 8
	reg2Version = 9
	reg2Flags   = 12
	reg2Methods = 16
	reg2OUI     = 32
	reg2RMPP    = 36
	reg2Size    = 40
)

// Commands of rdma/rdma_user_ioctl.h: direction, size, 0x1b, number.
const (
	ioctlRegister   = 3<<30 | regSize<<16 | 0x1b<<8 | 1
	ioctlUnregister = 1<<30 | 4<<16 | 0x1b<<8 | 2
	ioctlEnablePKey = 0x1b<<8 | 3
	ioctlRegister2  = 3<<30 | reg2Size<<16 | 0x1b<<8 | 4
)

var native = binary.NativeEndian

// appendHeader writes struct ib_user_mad_hdr for a message to be sent.
func appendHeader(b []byte, size int, id uint32, m *madrpc.Message) []byte {
	at := len(b)
	b = append(b, make([]byte, size)...)
	h := b[at:]
	native.PutUint32(h[offID:], id)
	native.PutUint32(h[offTimeout:], uint32(min((m.Timeout+ib.Millisecond-1)/ib.Millisecond, 1<<31-1)))
	native.PutUint32(h[offRetries:], uint32(max(0, min(m.Retries, 1<<31-1))))
	e := &m.Env
	binary.BigEndian.PutUint32(h[offQPN:], uint32(e.QPN))
	binary.BigEndian.PutUint32(h[offQKey:], uint32(e.QKey))
	binary.BigEndian.PutUint16(h[offLID:], uint16(e.LID))
	h[offSL], h[offPathBits] = byte(e.SL), e.PathBits
	if e.HasGRH {
		h[offGRH], h[offGIDIndex], h[offHopLimit], h[offTClass] = 1, e.GIDIndex, e.HopLimit, e.TClass
		copy(h[offGID:], e.GID[:])
		binary.BigEndian.PutUint32(h[offFlowLabel:], e.FlowLabel)
	}
	if size > offPKeyIndex {
		native.PutUint16(h[offPKeyIndex:], e.PKeyIndex)
	}
	return b
}

// parsed is what the kernel says about a datagram that it delivers.
type parsed struct {
	id     uint32
	status uint32 // an errno
	env    mad.Envelope
	data   []byte
}

// parse reads what a read returned.
func parse(b []byte, size int) (parsed, error) {
	if len(b) < size+mad.HeaderSize {
		return parsed{}, fmt.Errorf("umad: device gave %d bytes, want a header of %d and %d of a datagram at least",
			len(b), size, mad.HeaderSize)
	}
	p := parsed{
		id: native.Uint32(b[offID:]), status: native.Uint32(b[offStatus:]), data: b[size:],
		env: mad.Envelope{
			LID: ib.LID(binary.BigEndian.Uint16(b[offLID:])), QPN: ib.QPN(binary.BigEndian.Uint32(b[offQPN:])),
			QKey: ib.QKey(binary.BigEndian.Uint32(b[offQKey:])),
			SL:   ib.SL(b[offSL]), PathBits: b[offPathBits],
		},
	}
	if b[offGRH] != 0 {
		p.env.HasGRH, p.env.GIDIndex, p.env.HopLimit, p.env.TClass = true, b[offGIDIndex], b[offHopLimit], b[offTClass]
		copy(p.env.GID[:], b[offGID:])
		p.env.FlowLabel = binary.BigEndian.Uint32(b[offFlowLabel:])
	}
	if size > offPKeyIndex {
		p.env.PKeyIndex = native.Uint16(b[offPKeyIndex:])
	}
	return p, nil
}

// qpnFor is the special queue pair that a class travels between.
func qpnFor(c mad.Class) uint8 {
	if c.IsSubnet() {
		return 0
	}
	return 1
}

func rmppVersion(r *madrpc.Registration) byte {
	if r.RMPP {
		return mad.RMPPVersion
	}
	return 0
}

// register2 is struct ib_user_mad_reg_req2.
func register2(r *madrpc.Registration) []byte {
	b := make([]byte, reg2Size)
	native.PutUint32(b[reg2QPN:], uint32(qpnFor(r.Class)))
	b[reg2Class], b[reg2Version] = byte(r.Class), r.ClassVersion
	native.PutUint64(b[reg2Methods:], r.Methods[0])
	native.PutUint64(b[reg2Methods+8:], r.Methods[1])
	native.PutUint32(b[reg2OUI:], uint32(r.OUI[0])<<16|uint32(r.OUI[1])<<8|uint32(r.OUI[2]))
	b[reg2RMPP] = rmppVersion(r)
	return b
}

// register1 is struct ib_user_mad_reg_req, for kernels before 3.18.
func register1(r *madrpc.Registration) []byte {
	b := make([]byte, regSize)
	native.PutUint64(b[regMethods:], r.Methods[0])
	native.PutUint64(b[regMethods+8:], r.Methods[1])
	b[regQPN], b[regClass], b[regVersion] = qpnFor(r.Class), byte(r.Class), r.ClassVersion
	copy(b[regOUI:], r.OUI[:])
	b[regRMPP] = rmppVersion(r)
	return b
}
