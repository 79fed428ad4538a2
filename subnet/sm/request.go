package sm

import (
	"encoding/binary"
	"math"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// request is a datagram of a sweep that waits for its answer: what it is about. The bytes are
// with whoever repeats them.
type request struct {
	what  what
	set   bool
	tries uint8 // how often a write was repeated
	port  ib.PortNum
	attr  mad.AttrID
	node  int32
	mod   uint32
	extra int32
	// phase is the number of the phase that sent it, of all that ever ran.
	phase uint32
	// to is where it went, for those that are no directed SMPs.
	to mad.Envelope
}

// what tells a phase's requests apart.
type what uint8

const (
	askSelf what = iota
	askNeighbor
	askDesc
	askSwitch
	askPort
	askMlnx
	askManager
	askTable
	tell
	tellReport
	askRecords
)

// requests are those under way.
type requests struct {
	madrpc.Asked[request]
	writes [][mad.Size]byte // of a sweep, by the lower half of their cookies
}

// write is the place for the bytes of a write, until its answer comes.
func (q *requests) write(cookie uint64) *[mad.Size]byte {
	if n := q.Cap() - len(q.writes); n > 0 {
		q.writes = append(q.writes, make([][mad.Size]byte, n)...)
	}
	return &q.writes[uint32(cookie)]
}

// repeat is a write of a sweep that was not answered in time, to be sent again.
type repeat struct {
	req  request
	data [mad.Size]byte
}

// sendAgain has a write repeated that was not answered; false if that was done often enough. It is the manager itself
// that repeats writes, not who carries them: once another manager has been at work, a copy of what was planned before
// would spoil tables that have been read since.
func (s *sweep) sendAgain(r *request, data *[mad.Size]byte) bool {
	if !r.set || s.abandon || s.stopped || int(r.tries) >= min(s.m.cfg.Retries, math.MaxUint8) {
		return false
	}
	s.blind = s.blind || r.attr == mad.AttrLFT
	s.repeats = append(s.repeats, repeat{*r, *data})
	s.repeats[len(s.repeats)-1].req.tries++
	return true
}

// nextRepeat is the next write to be sent again.
func (s *sweep) nextRepeat(r *request) bool {
	if s.abandon || s.blind || len(s.repeats) == 0 {
		return false
	}
	*r = s.repeats[0].req
	s.m.buf = s.repeats[0].data
	s.repeats = s.repeats[1:]
	s.writing++
	return true
}

// smpHeader is the part of a directed SMP's header that never changes.
var smpHeader = [8]byte{mad.BaseVersion, byte(mad.ClassSMDirect), 1, byte(mad.MethodGet)}

// directed writes a directed-route SMP for the agent at the end of path into m.buf. The
// attribute's bytes are cleared and returned, to be filled.
func (m *Manager) directed(r *request, path []ib.PortNum, key uint64) []byte {
	b := m.buf[:mad.Size]
	clear(b)
	copy(b, smpHeader[:])
	if r.set {
		b[3] = byte(mad.MethodSet)
	}
	b[7] = byte(len(path))
	binary.BigEndian.PutUint16(b[16:], uint16(r.attr))
	binary.BigEndian.PutUint32(b[20:], r.mod)
	binary.BigEndian.PutUint64(b[24:], key)
	b[32], b[33], b[34], b[35] = 0xFF, 0xFF, 0xFF, 0xFF // the route is directed all the way
	for i, p := range path {
		b[129+i] = byte(p)
	}
	return b[mad.SMPDataOff : mad.SMPDataOff : mad.SMPDataOff+mad.SMPDataLen]
}

// pathTo is the directed route to a port's agent. It is valid until the next call.
func (s *sweep) pathTo(node int32, port ib.PortNum) []ib.PortNum {
	n := s.nodes[node]
	if n.IsSwitch() || node == s.self.Node && (port == s.self.Port || !n.Ports[port].Up()) {
		return s.paths[node]
	}
	p := &n.Ports[port]
	if p.Peer == subnet.None {
		return nil
	}
	s.scratch = append(append(s.scratch[:0], s.paths[p.Peer]...), p.PeerPort)
	return s.scratch
}

// smp fills in a request to the agent of a port's node and returns where its attribute is to be appended.
func (s *sweep) smp(r *request) []byte {
	return s.m.directed(r, s.pathTo(r.node, r.port), s.mkeyFor(r))
}
