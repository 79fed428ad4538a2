package hca

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

// TestCongestion: a packet that was marked is acknowledged at once, with word of it; the sender then waits longer after
// each packet, the more often it is told, up to the table's limit, and comes back with time.
func TestCongestion(t *testing.T) {
	for _, byLevel := range []bool{false, true} {
		w := newWorld(t, 2, 1)
		port := *w.hosts[0].Port(1)
		port.Rate = ib.LinkRate{Width: ib.Width4x, Speed: ib.NDR}
		w.hosts[0].SetPort(1, port)
		c := Congestion{Levels: 1, ByLevel: byLevel, Limit: 3, Table: [CongestionSteps]uint16{0, 1, 1<<14 | 8, 16}}
		c.Entries[0] = CongestionEntry{Timer: 0xFFFF, Increase: 1}
		w.hosts[0].SetCongestion(1, c)
		marks := true
		var sent []ib.Time
		becns := 0
		w.fate = func(f *flying) fate {
			if f.p.BTH.Opcode.Info().Kind == wire.KindWrite {
				f.p.BTH.FECN = marks
				sent = append(sent, w.now)
			}
			if f.p.BTH.BECN {
				becns++
			}
			return fate{}
		}
		a, b := w.pair(conf{mtu: ib.MTU4096, sendWR: 16, memLen: 1 << 19})
		write := func(packets int) {
			a.post(SendWR{Opcode: WRRDMAWrite, Flags: SendSignaled, RemoteAddr: memVA, RKey: b.mr.RKey(),
				SGList: []SGE{a.sge(0, packets*4096)}})
		}
		const packets = 40
		for range packets - 2 {
			write(1)
			w.run()
		}
		sent = nil
		write(2)
		w.run()
		if got := w.hosts[1].Stats.FECNs; got != packets || becns != packets || w.hosts[0].Stats.BECNs != packets {
			t.Errorf("%d packets were marked, %d acknowledgements told of it and %d were heard, want %d", got, becns,
				w.hosts[0].Stats.BECNs, packets)
		}
		// At the end it is as far into the table as it may go: a packet and the time of sixteen.
		one := ib.Time(float64(4096+26+16) * 8 / float64(port.Rate.Mbps()) * 1e6) // in picoseconds
		if gap := sent[1] - sent[0]; gap < 16*one || gap > 18*one {
			t.Errorf("%v between the last two packets, want 17 times the %v of one", gap, one)
		}
		// After three ticks of its clock it is where it was.
		marks, sent = false, nil
		w.now += 4 * 0xFFFF * ccTick
		write(8)
		w.run()
		if gap := sent[7] - sent[6]; gap > 2*one {
			t.Errorf("%v between packets after a while, want none", gap)
		}
		n := Node{hca: w.hosts[1].HCA}
		if got := n.ReadLaneCounter(1, ib.SLRcvFECN, 0); got != packets {
			t.Errorf("the port has counted %d, want %d", got, packets)
		}
		w.close()
	}
}

// TestNotification: what is marked and not acknowledged (datagrams, packets of unreliable connections, the data of a
// READ) is told of by a packet of its own, once for all that came meanwhile, and the sender slows down.
func TestNotification(t *testing.T) {
	for _, c := range []struct {
		typ    QPType
		op     WROpcode
		global bool
	}{{UD, WRSend, false}, {UD, WRSend, true}, {UC, WRRDMAWrite, false}, {RC, WRRDMARead, true},
		{RC, WRRDMAWrite, false}} {
		w := newWorld(t, 2, 1)
		var cc Congestion
		cc.Levels, cc.Limit, cc.Table[1], cc.Entries[0] = 1, 1, 16, CongestionEntry{Increase: 1}
		for _, h := range w.hosts {
			h.cfg.CNP = true
			port := *h.Port(1)
			port.Rate = ib.LinkRate{Width: ib.Width4x, Speed: ib.NDR}
			h.SetPort(1, port)
			h.SetCongestion(1, cc)
		}
		var sent []ib.Time
		told := 0
		marked := map[wire.Kind]bool{}
		w.fate = func(f *flying) fate {
			switch k := f.p.BTH.Opcode.Info().Kind; {
			case k == wire.KindCNP:
				told++
				f.p.BTH.FECN = true // of which nobody is told
			case f.p.PayloadLen() > 0:
				f.p.BTH.FECN = true
				marked[k] = true
				sent = append(sent, w.now)
			}
			return fate{}
		}
		a, b := w.pair(conf{typ: c.typ, mtu: ib.MTU4096, sendWR: 16, recvWR: 16, memLen: 1 << 19, global: c.global})
		post := func() {
			if c.typ == UD {
				b.recv(1, b.sge(0, 4096+grhArea))
				to := AHAttr{Port: 1, DLID: lidOf(1, 1), IsGlobal: c.global, DGID: b.h.Port(1).GIDs[0], HopLimit: 1}
				a.datagram(1, a.ah(to), b.qp.Num(), 0x1234, 4096)
				return
			}
			a.post(SendWR{Opcode: c.op, Flags: SendSignaled, RemoteAddr: memVA, RKey: b.mr.RKey(),
				SGList: []SGE{a.sge(0, 4096)}})
		}
		post()
		w.run()
		sent = nil
		post()
		post()
		w.run()
		one := ib.Time(float64(4096+26) * 8 / float64(w.hosts[0].Port(1).Rate.Mbps()) * 1e6)
		if gap := sent[1] - sent[0]; gap < 16*one {
			t.Errorf("%v %v: %v between packets, want 17 times the %v of one", c.typ, c.op, gap, one)
		}
		want := c.typ != RC || c.op == WRRDMARead
		if len(marked) != 1 || (told > 0) != want {
			t.Errorf("%v %v: %d notifications, of %v", c.typ, c.op, told, marked)
		}
		w.close()
	}
}
