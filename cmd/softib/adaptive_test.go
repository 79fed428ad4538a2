package main

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"softib/driver/live"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/route"
	"softib/subnet/sm"
	"softib/verbs"
)

// TestAdaptive: with up's --adaptive the manager lets switches choose. Where cables have a rate, packets of a
// connection take several ways up, and the adapters put them in order again; without it all take the one of the tables.
func TestAdaptive(t *testing.T) {
	for _, by := range []route.Choice{route.NoChoice, route.ByPacket, route.ByMessage} {
		t.Run(by.String(), func(t *testing.T) {
			const spec = "fat-tree:radix=8,levels=2"
			g, err := topo.ParseSpec(spec)
			if err != nil {
				t.Fatal(err)
			}
			f, err := newFabric(t.Context(), "t", spec, g, &sm.Config{Window: 1024, Adaptive: by}, nil, io.Discard,
				toTerminal(newTerminal(io.Discard)))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			from, to := f.Hosts()[len(f.Hosts())-1], f.Hosts()[0] // the manager is at the first leaf, and busy
			leaf := g.Nodes[from.Node().Ports[1].Peer]
			var up []topo.PortRef
			for p := range leaf.Ports {
				if port := &leaf.Ports[p]; p > 0 && port.Connected() && g.Nodes[port.Peer].IsSwitch() {
					up = append(up, topo.PortRef{Node: leaf.Index, Port: ib.PortNum(p)})
					if err := f.SetFault(up[len(up)-1], live.Fault{Rate: 200e6}); err != nil {
						t.Fatal(err)
					}
				}
			}
			chooses := func() bool {
				var req, resp [mad.Size]byte
				h := mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassSMLID, ClassVersion: 1,
					Method: mad.MethodGet, AttributeID: mad.AttrARInfo}
				copy(req[:], h.Append(nil))
				var info mad.ARInfo
				if !f.SMP(leaf.Index, 0, &req, &resp) {
					return false
				}
				_, err := info.Parse(resp[mad.SMPDataOff:][:mad.SMPDataLen])
				return err == nil && info.Enabled
			}
			for end := time.Now().Add(20 * time.Second); by != route.NoChoice && !chooses(); {
				if time.Now().After(end) {
					t.Fatal("the manager does not let switches choose")
				}
				time.Sleep(time.Millisecond)
			}
			before := f.CountersOf(up)
			const size = 1 << 20
			writeOnce(t, from.Device(), to.Device(), size)
			used := 0         // answers to the manager go there too
			var took []uint64 // bytes
			for i, c := range f.CountersOf(up) {
				took = append(took, 4*(c[ib.PortXmitData]-before[i][ib.PortXmitData]))
				if took[i] >= size/8 {
					used++
				}
			}
			// By message one WRITE goes one way; its acknowledgements go down.
			if want := by == route.ByPacket; (used > 1) != want {
				t.Errorf("packets took %d of %d ways up: %v", used, len(up), took)
			}
		})
	}
}

// writeOnce writes n bytes from one device to another's memory, and looks at them.
func writeOnce(t *testing.T, from, to verbs.Device, n int) {
	t.Helper()
	var qps [2]*verbs.QP
	var mrs [2]*verbs.MR
	var infos [2]verbs.Info
	var cq *verbs.CQ
	for i, dev := range []verbs.Device{to, from} {
		ctx := verbs.Open(dev)
		pd, err := ctx.AllocPD()
		if err == nil {
			mrs[i], err = pd.RegMR(make([]byte, n), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		}
		if err == nil {
			cq, err = ctx.CreateCQ(8)
		}
		if err == nil {
			qps[i], err = pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Caps: verbs.DefaultCaps})
		}
		if err == nil {
			infos[i], err = qps[i].Info(1, 0xFFFFF0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	o := verbs.DefaultConnect
	o.Timeout = 20 // 4 s, eight times
	for i := range qps {
		if err := qps[i].Connect(infos[i], infos[1-i], o); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		mrs[1].Bytes()[i] = byte(i ^ i>>8 ^ i>>16)
	}
	if err := qps[1].PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
		SGList: mrs[1].SGEs(0, n), RemoteAddr: mrs[0].Addr(), RKey: mrs[0].RKey()}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wc [1]verbs.WC
	if _, err := cq.Wait(ctx, wc[:]); err != nil || wc[0].Status != verbs.WCSuccess {
		t.Fatalf("%+v, %v", wc[0], err)
	}
	if !bytes.Equal(mrs[0].Bytes(), mrs[1].Bytes()) {
		t.Error("it is not what was written")
	}
}
