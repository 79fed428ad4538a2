package sim

import (
	"testing"

	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/wire"
)

// turns is a host with several flows, each with some packets to send, that take
// turns as those of an adapter do.
type turns struct {
	slid, dlid ib.LID
	flows      []*hca.QP
	left       map[*hca.QP]int
	parked     map[*hca.QP]bool
	ready      []*hca.QP
	sent, got  int
	names      *hca.HCA
}

// add makes a flow. Its queue pair is but a name for it.
func (h *turns) add(t *testing.T, packets int) *hca.QP {
	t.Helper()
	pd, err := h.names.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := h.names.CreateCQ(1)
	if err != nil {
		t.Fatal(err)
	}
	q, err := h.names.CreateQP(hca.QPInit{Type: hca.UD, PD: pd, SendCQ: cq, RecvCQ: cq})
	if err != nil {
		t.Fatal(err)
	}
	h.flows = append(h.flows, q)
	h.left[q] = packets
	h.ready = append(h.ready, q)
	return q
}

func (h *turns) HandlePacket(ib.Time, ib.PortNum, *wire.Packet) { h.got++ }

func (h *turns) NextSend() (*hca.Send, bool) {
	for len(h.ready) > 0 && h.left[h.ready[0]] == 0 {
		h.ready = h.ready[1:]
	}
	if len(h.ready) == 0 {
		return nil, false
	}
	return &hca.Send{QP: h.ready[0], Port: 1, DLID: h.dlid}, true
}

func (h *turns) Emit(now ib.Time, s *hca.Send, p *wire.Packet, buf []byte) bool {
	p.LRH = wire.LRH{LNH: wire.LNHLocal, DLID: h.dlid, SLID: h.slid}
	p.BTH = wire.BTH{Opcode: wire.MakeOpcode(wire.UC, wire.OpSendOnly), PKey: ib.PKeyDefault, DestQP: 7}
	p.Payload = shared[:1024]
	p.Seal()
	h.left[s.QP]--
	h.sent++
	return true
}

func (h *turns) Park(s *hca.Send) {
	h.ready = h.ready[1:]
	h.parked[s.QP] = true
}

func (h *turns) Unpark(q *hca.QP) {
	if h.parked[q] {
		delete(h.parked, q)
		h.ready = append(h.ready, q)
	}
}

func (h *turns) NextDeadline() ib.Time { return ib.Never }
func (h *turns) HandleTimeout(ib.Time) {}
func (h *turns) HasEvent() bool        { return false }

// TestNobodyStaysParked has flows lose what they had to send while they wait for room, as
// those of a failed queue pair do. The room must go to those behind them.
func TestNobodyStaysParked(t *testing.T) {
	s := build(t, "star:2", Config{NewHost: func(*topo.Node) Host {
		return &turns{names: hca.New(hca.Config{}), left: map[*hca.QP]int{}, parked: map[*hca.QP]bool{}}
	}})
	a, b := s.Host(0).(*turns), s.Host(1).(*turns)
	a.slid = s.LID(topo.PortRef{Node: s.HostNode(0).Index, Port: 1})
	a.dlid = s.LID(topo.PortRef{Node: s.HostNode(1).Index, Port: 1})
	a.add(t, 5)
	var dying []*hca.QP
	for range 8 {
		dying = append(dying, a.add(t, 1))
	}
	a.add(t, 3)
	s.Wake(0)
	for _, q := range dying {
		if !a.parked[q] {
			t.Fatalf("a flow is not parked while the queue is full")
		}
		a.left[q] = 0
	}
	if !s.RunUntilIdle(ib.Second) {
		t.Fatal("not at rest")
	}
	if len(a.parked) > 0 || a.sent != 8 || b.got != 8 {
		t.Errorf("%d flows are still parked, %d packets sent, %d received: want 0, 8, 8", len(a.parked), a.sent, b.got)
	}
}
