package live

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/verbs"
)

// What went by each level and lane of a port adds up to all that went by it.
func TestLanesAddUp(t *testing.T) {
	f := bringUp(t, "star:2")
	a, b := newEnd(t, f.hosts[0].Device(), 4096), newEnd(t, f.hosts[1].Device(), 4096)
	connect(t, a, b)
	for range 20 {
		if err := a.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
			SGList: a.mr.SGEs(0, 4096), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}); err != nil {
			t.Fatal(err)
		}
		waitOne(t, a)
	}
	x := f.graph.Nodes[f.hosts[0].topo.Index].Ports[1]
	for _, at := range []struct {
		node int
		port ib.PortNum
	}{{f.hosts[0].topo.Index, 1}, {x.Peer, x.PeerPort}} {
		read := func(id mad.AttrID) ([]byte, *mad.CounterAttr) {
			attr := mad.CounterAttrByID(id)
			var data [192]byte
			attr.SetPortSelect(data[:], uint8(at.port))
			return ask(t, f, mad.ClassPerf, mad.MethodGet, at.node, at.port, id, 0, data[:]), attr
		}
		sum := func(id mad.AttrID) (n uint64) {
			data, attr := read(id)
			for _, row := range attr.Rows {
				n += row.Field.Get(data, row.Elem)
			}
			return n
		}
		data, attr := read(mad.AttrPortCountersExtended)
		c, err := attr.Counters(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			id   mad.AttrID
			want ib.Counter
		}{
			{mad.AttrPortXmitDataSL, ib.PortXmitData}, {mad.AttrPortRcvDataSL, ib.PortRcvData},
			{mad.AttrPortVLOpPackets, ib.PortRcvPkts}, {mad.AttrPortVLOpData, ib.PortRcvData},
		} {
			if got := sum(tc.id); got != c[tc.want] || got == 0 {
				t.Errorf("node %d port %d: %s adds up to %d, %v is %d", at.node, at.port,
					mad.AttrName(mad.ClassPerf, tc.id), got, tc.want, c[tc.want])
			}
		}
	}
}
