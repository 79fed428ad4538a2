package ibswitch

import (
	"testing"

	"softib/node/agent"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
)

// BenchmarkHandleMAD is what the requests of a bring-up cost a switch of 64 ports.
func BenchmarkHandleMAD(b *testing.B) {
	s := New(Config{Ports: 64, Port: link.Config{VLCap: 8}}, new(link.Pool))
	for p := ib.PortNum(1); p <= 64; p++ {
		s.Port(p).SetRate(hdr)
		s.Port(p).Train()
		s.Port(p).LinkUp(0)
	}
	g := agent.New(NewNode(s, NodeConfig{Identity: agent.Identity{GUID: 0x100, Desc: "leaf1"}}))
	lft, sl := mad.LFT{}, mad.SLtoVL{1}
	pi := mad.PortInfo{NeighborMTU: ib.MTU4096, OperationalVLs: 4}
	for _, tc := range []struct {
		name string
		smp  mad.SMP
	}{
		{"GetNodeInfo", mad.SMP{Method: mad.MethodGet, Attr: mad.AttrNodeInfo}},
		{"GetSwitchInfo", mad.SMP{Method: mad.MethodGet, Attr: mad.AttrSwitchInfo}},
		{"GetPortInfo", mad.SMP{Method: mad.MethodGet, Attr: mad.AttrPortInfo, Modifier: 17}},
		{"SetPortInfo", mad.SMP{Method: mad.MethodSet, Attr: mad.AttrPortInfo, Modifier: 17, Data: pi.Append(nil)}},
		{"SetLFT", mad.SMP{Method: mad.MethodSet, Attr: mad.AttrLFT, Modifier: 100, Data: lft.Append(nil)}},
		{"SetSLtoVLAll", mad.SMP{Method: mad.MethodSet, Attr: mad.AttrSLtoVL,
			Modifier: mad.SLtoVLAllInputs | mad.SLtoVLAllOutputs, Data: sl.Append(nil)}},
	} {
		b.Run(tc.name, func(b *testing.B) {
			req, err := tc.smp.Append(nil)
			if err != nil {
				b.Fatal(err)
			}
			resp := make([]byte, mad.Size)
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := g.HandleMAD(0, 1, req, resp); !ok || mad.View(resp).Status() != mad.StatusOK {
					b.Fatal("no good answer")
				}
			}
		})
	}
	b.Run("PollTrap", func(b *testing.B) {
		buf := make([]byte, mad.Size)
		for b.Loop() {
			if _, ok := g.PollTrap(0, buf); ok {
				b.Fatal("a trap without a manager")
			}
		}
	})
}
