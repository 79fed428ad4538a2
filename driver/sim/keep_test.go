package sim

import (
	"testing"

	"softib/fabric"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
)

// full is a host that takes nothing until it is told to.
type full struct {
	source
	kept []fabric.Kept
}

func (h *full) Keep(at uint32, _ ib.PortNum, f *link.Frame) {
	h.kept = append(h.kept, fabric.Kept{Place: at, Frame: f})
}

func (h *full) AppendKept(kept []fabric.Kept) []fabric.Kept { return append(kept, h.kept...) }

// TestFullHost: a host without room holds up who sends to it, without loss, be it by credits or by pauses, and all
// arrives when it has room again.
func TestFullHost(t *testing.T) {
	for name, port := range map[string]link.Config{"credits": {}, "pauses": {Flow: link.Pause}} {
		t.Run(name, func(t *testing.T) {
			hosts := 0
			s := build(t, "star:2", Config{Port: port, NewHost: func(n *topo.Node) Host {
				if hosts++; hosts == 2 {
					return &full{source: *newSource(n).(*source)}
				}
				return newSource(n)
			}})
			const sent = 2000
			a, b := s.src(0), s.Host(1).(*full)
			a.dlid, a.left = s.LID(topo.PortRef{Node: s.HostNode(1).Index, Port: 1}), sent
			s.Wake(0)
			s.RunUntilIdle(s.Now() + 10*ib.Millisecond)
			if len(b.kept) == 0 || a.left == 0 {
				t.Fatalf("%d packets are kept and %d not sent: want some of both", len(b.kept), a.left)
			}
			got := 0
			for len(b.kept) > 0 {
				if err := s.Audit(); err != nil {
					t.Fatal(err)
				}
				got += len(b.kept)
				for kept := b.AppendKept(nil); len(kept) > 0; kept = kept[1:] {
					s.Taken(kept[0].Place, kept[0].Frame)
				}
				b.kept = nil
				s.RunUntilIdle(s.Now() + 10*ib.Millisecond)
			}
			if got != sent {
				t.Errorf("%d of %d packets arrived: %v", got, sent, s.Drops())
			}
		})
	}
}
