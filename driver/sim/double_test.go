package sim

import (
	"testing"

	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/wire"
)

// source is a host that sends packets of one size to one LID, as many as it may.
type source struct {
	dlid    ib.LID
	slid    ib.LID
	sl      ib.SL
	op      wire.Opcode
	pkey    ib.PKey
	size    int
	left    int // packets still to send
	parked  bool
	psn     ib.PSN
	payload []byte

	got      uint64
	gotBytes uint64
	lastPSN  map[ib.LID]ib.PSN // by sender; nil when order is not looked at
	disorder int
	gotPSN   []ib.PSN
	keepPSN  bool
	send     hca.Send
}

func (h *source) HandlePacket(now ib.Time, port ib.PortNum, p *wire.Packet) {
	h.got++
	h.gotBytes += uint64(len(p.Payload))
	if h.lastPSN != nil {
		if last, seen := h.lastPSN[p.LRH.SLID]; seen && p.BTH.PSN != last.Add(1) {
			h.disorder++
		}
		h.lastPSN[p.LRH.SLID] = p.BTH.PSN
	}
	if h.keepPSN {
		h.gotPSN = append(h.gotPSN, p.BTH.PSN)
	}
}

func (h *source) NextSend() (*hca.Send, bool) {
	if h.left == 0 || h.parked {
		return nil, false
	}
	h.send = hca.Send{Port: 1, SL: h.sl, DLID: h.dlid}
	return &h.send, true
}

func (h *source) Emit(now ib.Time, s *hca.Send, p *wire.Packet, buf []byte) bool {
	p.LRH = wire.LRH{SL: h.sl, LNH: wire.LNHLocal, DLID: h.dlid, SLID: h.slid}
	p.BTH = wire.BTH{Opcode: h.op, PKey: h.pkey, DestQP: 7, PSN: h.psn}
	p.Payload = h.payload[:h.size]
	p.Seal()
	h.psn = h.psn.Add(1)
	h.left--
	return true
}

func (h *source) Park(*hca.Send)            { h.parked = true }
func (h *source) Unpark(*hca.QP)            { h.parked = false }
func (h *source) NextDeadline() ib.Time     { return ib.Never }
func (h *source) HandleTimeout(now ib.Time) {}
func (h *source) HasEvent() bool            { return false }

var shared [4096]byte

func newSource(*topo.Node) Host {
	return &source{
		op: wire.MakeOpcode(wire.UC, wire.OpSendOnly), pkey: ib.PKeyDefault,
		size: 4096, payload: shared[:],
	}
}

// build makes a fabric of sources that is up.
func build(tb testing.TB, spec string, cfg Config) *Sim {
	tb.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		tb.Fatal(err)
	}
	if cfg.NewHost == nil {
		cfg.NewHost = newSource
	}
	s, err := New(g, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := s.BringUp(); err != nil {
		tb.Fatal(err)
	}
	for i := range s.NumHosts() {
		if h, ok := s.Host(i).(*source); ok {
			h.slid = s.LID(topo.PortRef{Node: s.HostNode(i).Index, Port: 1})
		}
	}
	return s
}

// src is the i-th host.
func (s *Sim) src(i int) *source { return s.Host(i).(*source) }

// flow has host a send n packets to host b.
func (s *Sim) flow(a, b, n int) {
	h := s.src(a)
	h.dlid = s.src(b).slid
	h.left = n
	s.Wake(a)
}
