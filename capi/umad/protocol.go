package umad

import (
	"encoding/binary"
	"errors"
	"fmt"

	"softib/proto/ib"
	"softib/proto/mad"
)

// Layouts are those of clib/protocol.h and clib/abi.h.
const (
	protocolMagic   = 0x534F4655
	protocolVersion = 1

	requestSize = 184
	replySize   = 32
	caSize      = 128
	portSize    = 80
	recordHead  = 64 // struct ib_user_mad

	hostMax  = 128 // with its final zero
	textMax  = 512
	agentMax = 32
	portMax  = 9        // the last port number that libibumad's structures hold
	longMax  = 64 << 20 // the longest message
)

// op is what a request asks for.
type op uint16

const (
	opCA op = iota + 1
	opOpen
	opRegister
	opUnregister
	opIsSM
	opClosed
	numOp
)

var opNames = [numOp]string{opCA: "CA", opOpen: "Open", opRegister: "Register", opUnregister: "Unregister",
	opIsSM: "IsSM", opClosed: "Closed"}

func (o op) String() string {
	if o > 0 && o < numOp {
		return opNames[o]
	}
	return fmt.Sprintf("op(%d)", uint16(o))
}

// Reasons why a request or a record is no such thing, for errors.Is.
var (
	errNotRequest = errors.New("not a request")
	errVersion    = errors.New("another version of the protocol")
	errNotRecord  = errors.New("not a record")
)

var native = binary.NativeEndian

// request is struct softib_request.
type request struct {
	op           op
	token        uint64
	port         uint32
	agent        uint32
	class        uint8
	classVersion uint8
	rmppVersion  uint8
	flags        uint32
	methods      [2]uint64
	oui          uint32
	host         string
}

// parseRequest reads a request. Of another version it reads nothing but that.
func parseRequest(b []byte) (r request, err error) {
	if len(b) < 8 || native.Uint32(b) != protocolMagic {
		return r, fmt.Errorf("umad: %w: %d bytes, want the magic 0x%08x first", errNotRequest, len(b), protocolMagic)
	}
	r.op = op(native.Uint16(b[6:]))
	if v := native.Uint16(b[4:]); v != protocolVersion {
		return r, fmt.Errorf("umad: %w: the library speaks version %d, this fabric %d; next: restart the fabric "+
			"with the softib that started the program",
			errVersion, v, protocolVersion)
	}
	if len(b) != requestSize {
		return r, fmt.Errorf("umad: %w: %d bytes, want %d", errNotRequest, len(b), requestSize)
	}
	r.token = native.Uint64(b[8:])
	r.port = native.Uint32(b[16:])
	r.agent = native.Uint32(b[20:])
	r.class, r.classVersion, r.rmppVersion = b[24], b[25], b[26]
	r.flags = native.Uint32(b[28:])
	r.methods = [2]uint64{native.Uint64(b[32:]), native.Uint64(b[40:])}
	r.oui = native.Uint32(b[48:])
	host := b[56 : 56+hostMax]
	for i, c := range host {
		if c == 0 {
			r.host = string(host[:i])
			return r, nil
		}
	}
	return r, fmt.Errorf("umad: %w: the host's name does not end within %d bytes", errNotRequest, hostMax)
}

// appendRequest writes a request after b.
func appendRequest(b []byte, r *request) []byte {
	at := len(b)
	b = append(b, make([]byte, requestSize)...)
	p := b[at:]
	native.PutUint32(p, protocolMagic)
	native.PutUint16(p[4:], protocolVersion)
	native.PutUint16(p[6:], uint16(r.op))
	native.PutUint64(p[8:], r.token)
	native.PutUint32(p[16:], r.port)
	native.PutUint32(p[20:], r.agent)
	p[24], p[25], p[26] = r.class, r.classVersion, r.rmppVersion
	native.PutUint32(p[28:], r.flags)
	native.PutUint64(p[32:], r.methods[0])
	native.PutUint64(p[40:], r.methods[1])
	native.PutUint32(p[48:], r.oui)
	copy(p[56:56+hostMax-1], r.host)
	return b
}

// reply is struct softib_reply and what follows it.
type reply struct {
	op      op
	errno   uint32
	token   uint64
	agent   uint32
	payload []byte // of an error, its words
}

func appendReply(b []byte, r *reply) []byte {
	b = native.AppendUint32(b, protocolMagic)
	b = native.AppendUint16(b, protocolVersion)
	b = native.AppendUint16(b, uint16(r.op))
	b = native.AppendUint32(b, r.errno)
	b = native.AppendUint32(b, uint32(len(r.payload)))
	b = native.AppendUint64(b, r.token)
	b = native.AppendUint32(b, r.agent)
	b = native.AppendUint32(b, 0)
	return append(b, r.payload...)
}

// appendName writes a name into a field of n bytes; the last one stays 0.
func appendName(b []byte, n int, s string) []byte {
	at := len(b)
	b = append(b, make([]byte, n)...)
	copy(b[at:at+n-1], s)
	return b
}

// appendCA writes struct softib_ca and its ports.
func appendCA(b []byte, ca *CA) []byte {
	ports := make([]Port, 0, len(ca.Ports))
	for _, p := range ca.Ports {
		if p.Num <= portMax {
			ports = append(ports, p)
		}
	}
	b = appendName(b, 20, DeviceName)
	b = appendName(b, 20, ca.Firmware)
	b = appendName(b, 20, ca.Hardware)
	b = appendName(b, 40, ca.Type)
	b = native.AppendUint32(b, uint32(ca.NodeType))
	b = binary.BigEndian.AppendUint64(b, uint64(ca.NodeGUID))
	b = binary.BigEndian.AppendUint64(b, uint64(ca.SystemGUID))
	b = native.AppendUint32(b, uint32(len(ports)))
	b = native.AppendUint32(b, 0)
	for i := range ports {
		b = appendPort(b, &ports[i])
	}
	return b
}

func appendPort(b []byte, p *Port) []byte {
	for _, v := range [...]uint32{
		uint32(p.Num), uint32(p.LID), uint32(p.LMC), uint32(p.SMLID), uint32(p.SMSL), uint32(p.State), uint32(p.Phys),
		gigabits(p.Rate),
	} {
		b = native.AppendUint32(b, v)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(p.Capabilities))
	b = native.AppendUint32(b, uint32(len(p.PKeys)))
	b = binary.BigEndian.AppendUint64(b, p.GIDPrefix)
	b = binary.BigEndian.AppendUint64(b, uint64(p.GUID))
	b = appendName(b, 24, "InfiniBand")
	for _, k := range p.PKeys {
		b = native.AppendUint16(b, uint16(k))
	}
	for len(p.PKeys)*2%8 != 0 && len(b)%8 != 0 {
		b = append(b, 0)
	}
	return b
}

// gigabits is a rate as the kernel's sysfs shows it and libibumad cuts it: whole Gb/s.
func gigabits(r ib.LinkRate) uint32 { return uint32(r.Mbps() / 1000) }

// record is one datagram on an open port: struct ib_user_mad and the first bytes of the datagram.
type record struct {
	agent     uint32
	status    uint32
	timeoutMS uint32
	retries   uint32
	length    uint32 // head and datagram, with what lies in the file
	env       mad.Envelope
	data      []byte
}

// parseRecord reads a record; data is a part of b.
func parseRecord(b []byte) (r record, err error) {
	if len(b) < recordHead || len(b) > recordHead+mad.Size {
		return r, fmt.Errorf("umad: %w: %d bytes, want %d to %d", errNotRecord, len(b), recordHead, recordHead+mad.Size)
	}
	be := binary.BigEndian
	r = record{
		agent: native.Uint32(b), status: native.Uint32(b[4:]), timeoutMS: native.Uint32(b[8:]),
		retries: native.Uint32(b[12:]), length: native.Uint32(b[16:]),
		env: mad.Envelope{
			QPN: ib.QPN(be.Uint32(b[20:])), QKey: ib.QKey(be.Uint32(b[24:])), LID: ib.LID(be.Uint16(b[28:])),
			SL: ib.SL(b[30]), PathBits: b[31], PKeyIndex: native.Uint16(b[56:]),
		},
		data: b[recordHead:],
	}
	if b[32] != 0 {
		r.env.HasGRH = true
		r.env.GIDIndex, r.env.HopLimit, r.env.TClass = b[33], b[34], b[35]
		r.env.GID = ib.GID(b[36:52])
		r.env.FlowLabel = be.Uint32(b[52:])
	}
	return r, nil
}

// appendRecord writes a record, of data no more than fits into one.
func appendRecord(b []byte, r *record) []byte {
	at := len(b)
	b = append(b, make([]byte, recordHead)...)
	p, be := b[at:], binary.BigEndian
	native.PutUint32(p, r.agent)
	native.PutUint32(p[4:], r.status)
	native.PutUint32(p[8:], r.timeoutMS)
	native.PutUint32(p[12:], r.retries)
	native.PutUint32(p[16:], r.length)
	be.PutUint32(p[20:], uint32(r.env.QPN))
	be.PutUint32(p[24:], uint32(r.env.QKey))
	be.PutUint16(p[28:], uint16(r.env.LID))
	p[30], p[31] = byte(r.env.SL), r.env.PathBits
	if r.env.HasGRH {
		p[32], p[33], p[34], p[35] = 1, r.env.GIDIndex, r.env.HopLimit, r.env.TClass
		copy(p[36:52], r.env.GID[:])
		be.PutUint32(p[52:], r.env.FlowLabel)
	}
	native.PutUint16(p[56:], r.env.PKeyIndex)
	return append(b, r.data[:min(len(r.data), mad.Size)]...)
}
