package trace

import (
	"bytes"
	"encoding/json"
	"io"

	"softib/proto/ib"
	"softib/proto/wire"
)

// JSON writes one event per line as a JSON object. Keys come in a fixed order
// and are absent where they have no meaning, so that equal runs give equal
// bytes.
type JSON struct {
	w     io.Writer
	names map[portKey]string
	buf   []byte       // the packet's bytes
	line  bytes.Buffer // where enc writes, so that w sees one call per event
	enc   *json.Encoder
	err   error
}

// portKey is what a port is known by.
type portKey struct {
	node uint32
	port ib.PortNum
}

func (e *Event) key() portKey { return portKey{e.Node, e.Port} }

// NewJSON writes to w.
func NewJSON(w io.Writer) *JSON {
	j := &JSON{w: w, names: map[portKey]string{}}
	j.enc = json.NewEncoder(&j.line)
	j.enc.SetEscapeHTML(false) // a packet's text reads "1 > 2"
	return j
}

// jsonEvent is the form of a line; its order is that of the keys.
type jsonEvent struct {
	TimePS int64       `json:"t_ps"`
	Kind   string      `json:"kind"`
	Node   uint32      `json:"node"`
	Port   uint8       `json:"port"`
	Name   string      `json:"name,omitempty"`
	Dir    string      `json:"dir,omitempty"`
	Reason string      `json:"reason,omitempty"`
	What   string      `json:"what,omitempty"`
	From   string      `json:"from,omitempty"`
	To     string      `json:"to,omitempty"`
	QP     *uint32     `json:"qp,omitempty"`
	Packet *jsonPacket `json:"packet,omitempty"`
	Link   *jsonLink   `json:"link,omitempty"`
	Note   string      `json:"note,omitempty"`
}

// jsonPacket has the fields that one filters by; Text is all of them.
type jsonPacket struct {
	SLID    uint16  `json:"slid"`
	DLID    uint16  `json:"dlid"`
	VL      uint8   `json:"vl"`
	SL      uint8   `json:"sl"`
	Bytes   int     `json:"bytes"`
	Opcode  string  `json:"opcode,omitempty"`
	DestQP  *uint32 `json:"dest_qp,omitempty"`
	PSN     *uint32 `json:"psn,omitempty"`
	Payload int     `json:"payload"`
	Text    string  `json:"text"`
}

type jsonLink struct {
	Op    string `json:"op"`
	VL    uint8  `json:"vl"`
	FCTBS uint16 `json:"fctbs"`
	FCCL  uint16 `json:"fccl"`
}

// Port gives a port a name, for the events that follow.
func (j *JSON) Port(node uint32, port ib.PortNum, name string) {
	j.names[portKey{node, port}] = name
}

// Write writes one event. After an error of the underlying writer it writes no
// more and returns that error again.
func (j *JSON) Write(e *Event) error {
	if j.err != nil {
		return j.err
	}
	v := jsonEvent{
		TimePS: int64(e.Time), Kind: e.Kind.String(), Node: e.Node, Port: uint8(e.Port), Name: j.names[e.key()],
		Dir: e.Dir.String(), Reason: e.Reason.String(), Note: e.Note,
	}
	switch e.Kind {
	case Packet, Drop:
		j.buf = e.appendBytes(j.buf[:0])
		v.Packet = packetJSON(e.Packet, j.buf)
	case Link:
		v.Link = &jsonLink{Op: e.Link.Op.String(), VL: uint8(e.Link.VL), FCTBS: e.Link.FCTBS, FCCL: e.Link.FCCL}
	case State:
		v.What, v.From, v.To = e.What, e.From, e.To
		if e.QP != 0 {
			qp := uint32(e.QP)
			v.QP = &qp
		}
	}
	j.line.Reset()
	if j.err = j.enc.Encode(&v); j.err == nil {
		_, j.err = j.w.Write(j.line.Bytes())
	}
	return j.err
}

// packetJSON describes a packet by its decoded form if there is one, else by
// what its bytes say, which may be no more than their number.
func packetJSON(p *wire.Packet, b []byte) *jsonPacket {
	if len(b) == 0 {
		return nil
	}
	v := &jsonPacket{Bytes: len(b), Text: wire.Sprint(b)}
	if p == nil {
		p = new(wire.Packet)
		if p.Parse(b) != nil {
			return v
		}
	}
	v.SLID, v.DLID = uint16(p.LRH.SLID), uint16(p.LRH.DLID)
	v.VL, v.SL = uint8(p.LRH.VL), uint8(p.LRH.SL)
	v.Payload = len(p.Payload)
	if p.LRH.LNH >= wire.LNHLocal {
		qp, psn := uint32(p.BTH.DestQP), uint32(p.BTH.PSN)
		v.Opcode, v.DestQP, v.PSN = p.BTH.Opcode.String(), &qp, &psn
	}
	return v
}
