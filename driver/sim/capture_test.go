package sim

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"softib/fabric"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/trace"
	"softib/proto/wire"
)

// tee writes a capture and remembers what went into it.
type tee struct {
	file *trace.Pcapng
	seen []seenPacket
}

type seenPacket struct {
	op      wire.Opcode
	psn     ib.PSN
	dlid    ib.LID
	dropped bool
}

func (k *tee) Write(e *trace.Event) error {
	if e.Kind == trace.Packet || e.Kind == trace.Drop {
		p := e.Packet
		k.seen = append(k.seen, seenPacket{p.BTH.Opcode, p.BTH.PSN, p.LRH.DLID, e.Kind == trace.Drop})
	}
	return k.file.Write(e)
}

// readyUC takes a pair of UC queue pairs to RTS.
func readyUC(t *testing.T, a, b *peer) {
	t.Helper()
	for _, p := range []struct{ me, peer *peer }{{a, b}, {b, a}} {
		check(t, p.me.h.ModifyQP(p.me.qp, hca.QPAttr{State: hca.StateInit, Port: 1, Access: hca.AccessRemoteWrite},
			hca.MaskState|hca.MaskPKeyIndex|hca.MaskPort|hca.MaskAccess))
		check(t, p.me.h.ModifyQP(p.me.qp, hca.QPAttr{State: hca.StateRTR, AH: hca.AHAttr{DLID: p.peer.lid, Port: 1},
			PathMTU: ib.MTU256, DestQPN: p.peer.qp.Num(), RQPSN: 500},
			hca.MaskState|hca.MaskAV|hca.MaskPathMTU|hca.MaskDestQPN|hca.MaskRQPSN))
		check(t, p.me.h.ModifyQP(p.me.qp, hca.QPAttr{State: hca.StateRTS, SQPSN: 500}, hca.MaskState|hca.MaskSQPSN))
	}
}

func readyUD(t *testing.T, p *peer, qkey ib.QKey) {
	t.Helper()
	check(t, p.h.ModifyQP(p.qp, hca.QPAttr{State: hca.StateInit, Port: 1, QKey: qkey},
		hca.MaskState|hca.MaskPKeyIndex|hca.MaskPort|hca.MaskQKey))
	check(t, p.h.ModifyQP(p.qp, hca.QPAttr{State: hca.StateRTR}, hca.MaskState))
	check(t, p.h.ModifyQP(p.qp, hca.QPAttr{State: hca.StateRTS, SQPSN: 900}, hca.MaskState|hca.MaskSQPSN))
}

// TestTsharkCapture: RC, UC, UD, atomics, multicast and a packet that is lost and
// sent again, captured on every cable of a small fabric. Wireshark, which
// nobody here wrote, reads the same operations and PSNs and complains of nothing.
func TestTsharkCapture(t *testing.T) {
	path, err := exec.LookPath("tshark")
	if err != nil {
		t.Fatal("no tshark on this machine; next: make test, which installs it")
	}
	g, err := topo.ParseSpec("star:3")
	check(t, err)
	var file bytes.Buffer
	w, err := trace.NewPcapng(&file, trace.PcapngOptions{})
	check(t, err)
	for _, n := range g.Nodes {
		for p := 1; p <= n.NumPorts(); p++ {
			check(t, w.Port(uint32(n.Index), ib.PortNum(p), fmt.Sprintf("%s/%d", n.Name, p), n.Ports[p].Rate()))
		}
	}
	s, err := New(g, Config{Seed: 1})
	check(t, err)
	_, err = s.BringUp()
	check(t, err)
	const mlid, qkey = ib.LID(0xC003), 0x1111
	mgid, err := ib.ParseGID("ff12::3")
	check(t, err)
	var all []topo.PortRef
	for i := range s.NumHosts() {
		all = append(all, topo.PortRef{Node: s.HostNode(i).Index, Port: 1})
	}
	check(t, s.ProgramMulticast(mlid, all))
	sink := &tee{file: w}
	s.SetSink(sink)
	run := func(want int, p *peer) {
		t.Helper()
		s.Wake(0)
		if !s.RunUntilIdle(s.Now() + ib.Second) {
			t.Fatal("not idle")
		}
		if n := p.completions(t); n != want {
			t.Fatalf("%d completions, want %d", n, want)
		}
	}

	rc, rcPeer := newPeer(t, s, 0, hca.RC, 4096), newPeer(t, s, 1, hca.RC, 4096)
	connectRC(t, rc, rcPeer, ib.MTU256, 10)
	check(t, rcPeer.h.PostRecv(rcPeer.qp, &hca.RecvWR{SGList: rcPeer.sge(0, 4096)}))
	for _, wr := range []hca.SendWR{
		{Opcode: hca.WRSendImm, Imm: 0xABCD, SGList: rc.sge(0, 701)},
		{Opcode: hca.WRRDMAWrite, SGList: rc.sge(0, 513)},
		{Opcode: hca.WRRDMARead, SGList: rc.sge(0, 600)},
		{Opcode: hca.WRAtomicFetchAdd, SGList: rc.sge(0, 8), CompareAdd: 3},
		{Opcode: hca.WRAtomicCmpSwap, SGList: rc.sge(0, 8), CompareAdd: 3, Swap: 4},
	} {
		wr.Flags, wr.RemoteAddr, wr.RKey = hca.SendSignaled, peerVA, rcPeer.mr.RKey()
		check(t, rc.h.PostSend(rc.qp, &wr))
	}
	run(5, rc)

	uc, ucPeer := newPeer(t, s, 0, hca.UC, 4096), newPeer(t, s, 2, hca.UC, 4096)
	readyUC(t, uc, ucPeer)
	check(t, uc.h.PostSend(uc.qp, &hca.SendWR{Opcode: hca.WRRDMAWrite, Flags: hca.SendSignaled, SGList: uc.sge(0, 600),
		RemoteAddr: peerVA, RKey: ucPeer.mr.RKey()}))
	run(1, uc)

	ud, udPeer := newPeer(t, s, 0, hca.UD, 4096), newPeer(t, s, 2, hca.UD, 4096)
	for _, p := range []*peer{ud, udPeer} {
		readyUD(t, p, qkey)
	}
	check(t, udPeer.h.AttachMcast(udPeer.qp, mgid, mlid))
	one, err := ud.h.CreateAH(ud.pd, hca.AHAttr{DLID: udPeer.lid, Port: 1})
	check(t, err)
	group, err := ud.h.CreateAH(ud.pd, hca.AHAttr{DLID: mlid, Port: 1, IsGlobal: true, DGID: mgid, HopLimit: 1})
	check(t, err)
	for _, ah := range []*hca.AH{one, group} {
		check(t, udPeer.h.PostRecv(udPeer.qp, &hca.RecvWR{SGList: udPeer.sge(0, 4096)}))
		check(t, ud.h.PostSend(ud.qp, &hca.SendWR{Opcode: hca.WRSend, Flags: hca.SendSignaled, SGList: ud.sge(0, 33),
			AH: ah, RemoteQPN: udPeer.qp.Num(), RemoteQKey: qkey}))
	}
	run(2, ud)
	if n := udPeer.completions(t); n != 2 {
		t.Fatalf("%d datagrams arrived, want 2", n)
	}

	// Everything that leaves the first host is lost for a while.
	lost := len(sink.seen)
	s.SetFaults(topo.PortRef{Node: s.HostNode(0).Index, Port: 1}, fabric.Faults{Drop: 1})
	s.PlanFaults(s.Now()+ib.Microsecond*50, topo.PortRef{Node: s.HostNode(0).Index, Port: 1}, fabric.Faults{})
	check(t, rc.h.PostSend(rc.qp, &hca.SendWR{Opcode: hca.WRRDMAWrite, Flags: hca.SendSignaled, SGList: rc.sge(0, 64),
		RemoteAddr: peerVA, RKey: rcPeer.mr.RKey()}))
	run(1, rc)
	check(t, s.SinkErr())

	retried := sink.seen[lost:]
	if !retried[1].dropped || retried[0].psn != retried[1].psn || retried[2].psn != retried[0].psn ||
		retried[2].dropped {
		t.Fatalf("not lost and sent again: %+v", retried)
	}
	kinds := map[wire.Opcode]bool{}
	var multicast bool
	for _, p := range sink.seen {
		kinds[p.op] = true
		multicast = multicast || p.dlid == mlid
	}
	for _, op := range []wire.Opcode{
		wire.OpSendFirst, wire.OpSendMiddle, wire.OpSendLastImm, wire.OpWriteFirst, wire.OpWriteLast, wire.OpWriteOnly,
		wire.OpReadRequest,
		wire.OpReadResponseFirst, wire.OpReadResponseMiddle, wire.OpReadResponseLast, wire.OpFetchAdd, wire.OpCmpSwap,
		wire.OpAtomicAck, wire.OpAck,
		wire.MakeOpcode(wire.UC, wire.OpWriteFirst), wire.MakeOpcode(wire.UC, wire.OpWriteLast),
		wire.MakeOpcode(wire.UD, wire.OpSendOnly),
	} {
		if !kinds[op] {
			t.Errorf("the capture has no %v", op)
		}
	}
	if !multicast {
		t.Error("the capture has no multicast packet")
	}

	name := filepath.Join(t.TempDir(), "fabric.pcapng")
	check(t, os.WriteFile(name, file.Bytes(), 0o644))
	out, err := exec.Command(path, "-n", "-r", name, "-T", "fields", "-E", "separator=|", "-E", "occurrence=f",
		"-e", "infiniband.bth.opcode", "-e", "infiniband.bth.psn", "-e", "infiniband.lrh.dlid", "-e", "_ws.malformed",
		"-e", "_ws.expert.severity", "-e", "frame.comment").Output()
	check(t, err)
	rows := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(rows) != len(sink.seen) {
		t.Fatalf("tshark shows %d packets, the fabric carried %d", len(rows), len(sink.seen))
	}
	const comment = "1048576" // expert severity of a packet's own comment
	for i, row := range rows {
		f, p := strings.Split(row, "|"), sink.seen[i]
		if f[0] != fmt.Sprint(uint8(p.op)) || f[1] != fmt.Sprint(uint32(p.psn)) || f[2] != fmt.Sprint(uint16(p.dlid)) {
			t.Errorf("packet %d: tshark reads opcode %s PSN %s DLID %s, it was %v PSN %d DLID %d", i+1, f[0], f[1],
				f[2], p.op, p.psn, p.dlid)
		}
		if f[3] != "" || f[4] != "" && f[4] != comment {
			t.Errorf("packet %d (%v): tshark complains: %q, severity %q", i+1, p.op, f[3], f[4])
		}
		if p.dropped != (f[5] != "") {
			t.Errorf("packet %d: dropped %v, comment %q", i+1, p.dropped, f[5])
		}
	}
}
