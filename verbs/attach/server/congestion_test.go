package server_test

import (
	"sync"
	"testing"
	"time"

	"softib/driver/live"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/policy"
	"softib/verbs"
)

// ask has the agent at a port answer a datagram of general services, whose data begin at off.
func ask(t testing.TB, f *live.Fabric, at topo.PortRef, h mad.Header, off int, data []byte) []byte {
	t.Helper()
	var req, resp [mad.Size]byte
	h.BaseVersion, h.ClassVersion = mad.BaseVersion, h.MgmtClass.Info().Version
	copy(req[:], h.Append(nil))
	copy(req[off:], data)
	if !f.SMP(at.Node, at.Port, &req, &resp) || mad.View(resp[:]).Status() != mad.StatusOK {
		t.Fatalf("%v of %v: %v", h.AttributeID, at, mad.View(resp[:]).Status())
	}
	return resp[off:]
}

// counter reads the first of a port's counters of a kind.
func counter(t testing.TB, f *live.Fabric, at topo.PortRef, id mad.AttrID, field *mad.Field) uint64 {
	t.Helper()
	via := at
	if f.Graph().Nodes[at.Node].IsSwitch() {
		via.Port = 0
	}
	return field.Get(ask(t, f, via, mad.Header{MgmtClass: mad.ClassPerf, Method: mad.MethodGet, AttributeID: id},
		mad.PMDataOff, []byte{0, byte(at.Port)}), 0)
}

// control sets congestion control up as a manager does.
func control(t testing.TB, f *live.Fabric, o policy.CongestionOptions) {
	t.Helper()
	set := func(at topo.PortRef, id mad.AttrID, mod int, data []byte) {
		ask(t, f, at, mad.Header{MgmtClass: mad.ClassCC, Method: mad.MethodSet, AttributeID: id,
			AttributeModifier: uint32(mod)}, mad.CCDataOff, data)
	}
	marks := mad.SwitchCongestion{Threshold: o.Threshold, MarkingRate: o.MarkingRate}
	for _, n := range f.Graph().Switches() {
		set(topo.PortRef{Node: n.Index}, mad.AttrSwitchCongestion, 0, marks.Append(nil))
	}
	slows := make([]byte, mad.CACongestionLayout.Size)
	mad.CACongestionLayout.Field("ControlMap").Put(slows, 0, uint64(o.CAControlMap))
	for sl, e := range o.CA {
		mad.CACongestionLayout.Field("CCTITimer").Put(slows, sl, uint64(e.Timer))
		mad.CACongestionLayout.Field("CCTIIncrease").Put(slows, sl, uint64(e.Increase))
	}
	for i := range f.Hosts() {
		set(portOf(f, i), mad.AttrCACongestion, 0, slows)
		for b := 0; b < len(o.Table); b += mad.CCTPerBlock {
			table := make([]byte, mad.CongestionTableLayout.Size)
			mad.CongestionTableLayout.Field("CCTILimit").Put(table, 0, uint64(len(o.Table)-1))
			for k, e := range o.Table[b:min(b+mad.CCTPerBlock, len(o.Table))] {
				mad.CongestionTableLayout.Field("Shift").Put(table, k, uint64(e.Shift))
				mad.CongestionTableLayout.Field("Multiplier").Put(table, k, uint64(e.Multiplier))
			}
			set(portOf(f, i), mad.AttrCongestionControlTable, b/mad.CCTPerBlock, table)
		}
	}
}

// slowForEver: a queue that is two packets long has all that join it marked, and who is told waits after each packet
// for as long as delay of them take, for ever.
func slowForEver(delay uint16) policy.CongestionOptions {
	o := policy.CongestionOptions{Threshold: 13, CAControlMap: 1, Table: []policy.CCTEntry{{}, {Multiplier: delay}}}
	o.CA[0].Increase = 1
	return o
}

// TestCongestionControl: two programs send to one behind a slow cable. The switch marks what waits there, the receiver
// tells the senders, and they slow down; ports count each step. It is the same for programs in processes of their own
// and in the fabric's, and the settings may come before a program or after it.
func TestCongestionControl(t *testing.T) {
	for _, c := range []struct {
		name   string
		inside bool
		late   bool
		typ    verbs.QPType
	}{{"attached", false, false, verbs.RC}, {"attached before the settings", false, true, verbs.RC},
		{"inside", true, false, verbs.RC}, {"inside before the settings", true, true, verbs.RC},
		{"by notifications", false, false, verbs.UC}} {
		t.Run(c.name, func(t *testing.T) {
			f, socket := fabric(t, "star:3")
			const rate, delay = 50e6, 3
			for i := range 3 {
				setFault(t, f, portOf(f, i), live.Fault{Rate: rate})
			}
			if !c.late {
				control(t, f, slowForEver(delay))
			}
			var s [3]*side
			for i, h := range f.Hosts() {
				if c.inside {
					s[i] = sideOn(t, h.Device())
				} else {
					s[i] = newSide(t, socket, h.Name())
				}
			}
			if c.late {
				control(t, f, slowForEver(delay))
			}
			to := s[2]
			var qs [2]*verbs.QP
			for i := range qs {
				qs[i] = s[i].qp(c.typ)
				join(t, qs[i], to.qp(c.typ), patient)
			}
			write := func(i, n int) {
				t.Helper()
				if err := qs[i].PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
					SGList: s[i].mr.SGEs(0, n), RemoteAddr: to.mr.Addr(), RKey: to.mr.RKey()}); err != nil {
					t.Fatal(err)
				}
			}
			told := func(i int, field string) uint64 {
				t.Helper()
				return counter(t, f, portOf(f, i), mad.AttrPortRcvConCtrl, mad.PortRcvConCtrlLayout.Field(field))
			}
			// Until both were told: what they count comes to their ports within a millisecond or two.
			for deadline := time.Now().Add(20 * time.Second); told(0, "PortPktRcvBECN") == 0 ||
				told(1, "PortPktRcvBECN") == 0; {
				if time.Now().After(deadline) {
					t.Fatal("a sender is not told of congestion")
				}
				for i := range qs {
					write(i, 128<<10)
				}
				for i := range qs {
					s[i].want(verbs.WCSuccess)
				}
			}
			var marked uint64
			for deadline := time.Now().Add(20 * time.Second); ; { // what was sent need not be there yet
				marked = counter(t, f, peerOf(f, portOf(f, 2)), mad.AttrSwPortVLCongestion,
					&mad.SwPortVLCongestionLayout.Fields[2])
				if told(2, "PortPktRcvFECN") == marked {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("the receiver counts %d marked packets, the switch %d", told(2, "PortPktRcvFECN"), marked)
				}
				time.Sleep(time.Millisecond)
				to.readsClock() // it tells what it has counted as its clock moves on
			}
			if counter(t, f, peerOf(f, portOf(f, 2)), mad.AttrPortXmitConCtrl,
				&mad.PortXmitConCtrlLayout.Fields[2]) == 0 {
				t.Error("its queue was not too long for any time")
			}
			// The switch's log has both flows, once.
			for _, want := range []int{2, 0} {
				log := &mad.SwitchCongestionLogLayout
				got := ask(t, f, topo.PortRef{Node: peerOf(f, portOf(f, 2)).Node}, mad.Header{MgmtClass: mad.ClassCC,
					Method: mad.MethodGet, AttributeID: mad.AttrCongestionLog}, mad.CCLogDataOff, nil)
				flows := map[uint64]bool{}
				for i := range mad.CCSwitchLogEvents {
					if lid := log.Field("SLID").Get(got, i); lid != 0 {
						flows[lid] = true
					}
				}
				n := log.Field("LogEventsCounter").Get(got, 0)
				if len(flows) < want || want == 0 && n != 0 && c.typ == verbs.RC || want > 0 && n < marked {
					t.Errorf("the log has %d packets of the flows from %v, want %d flows", n, flows, want)
				}
			}
			becns := told(0, "PortPktRcvBECN") + told(1, "PortPktRcvBECN")
			if becns > marked {
				t.Errorf("%d packets told of %d", becns, marked)
			}
			// They are as slow as they were told to be, but for what goes last, and what may be made up for.
			const packets = 20
			s[0].readsClock()
			start := time.Now()
			write(0, packets*4096)
			s[0].want(verbs.WCSuccess)
			least := time.Duration((packets-4)*(delay+1)*4096*8/rate*float64(time.Second)) - 4*time.Millisecond
			if took := time.Since(start); took < least {
				t.Errorf("%d packets took %v: want at least %v", packets, took, least)
			}
		})
	}
}

// BenchmarkVictim is jobs.TestCongestionControl in real time, on cables of 25 Mb/s: seven hosts send to one, and
// another shares the way up with three of them. It reports what part of a cable the victim has, and the hot spot.
func BenchmarkVictim(b *testing.B) {
	const rate = 25e6
	for _, on := range []bool{false, true} {
		b.Run(map[bool]string{false: "without", true: "with"}[on], func(b *testing.B) {
			f, _ := fabric(b, "fat-tree:radix=8,levels=2,oversub=3")
			for _, n := range f.Graph().Switches() {
				for p := range n.Ports {
					if ref := (topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}); n.Ports[p].Connected() {
						setFault(b, f, ref, live.Fault{Rate: rate})
					}
				}
			}
			if on {
				control(b, f, policy.CongestionFor(rate))
			}
			stop := make(chan struct{})
			var senders sync.WaitGroup
			defer senders.Wait()
			defer close(stop)
			send := func(from, to int) {
				a, z := sideOn(b, f.Hosts()[from].Device()), sideOn(b, f.Hosts()[to].Device())
				qp := a.qp(verbs.RC)
				join(b, qp, z.qp(verbs.RC), patient)
				wr := &verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: a.mr.SGEs(0, 64<<10),
					RemoteAddr: z.mr.Addr(), RKey: z.mr.RKey()}
				for range 4 {
					if err := qp.PostSend(wr); err != nil {
						b.Fatal(err)
					}
				}
				senders.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							a.want(verbs.WCSuccess)
							_ = qp.PostSend(wr)
						}
					}
				})
			}
			const hot, victimFrom, victimTo = 0, 6, 14
			for _, from := range []int{7, 8, 9, 12, 13, 18, 19} {
				send(from, hot)
			}
			send(victimFrom, victimTo)
			window := 9 * time.Second
			if testing.Short() {
				window = 20 * time.Millisecond
			}
			time.Sleep(window / 3)
			ends := []topo.PortRef{portOf(f, victimTo), portOf(f, hot)}
			for b.Loop() {
				before, start := f.CountersOf(ends), time.Now()
				time.Sleep(window)
				after, took := f.CountersOf(ends), time.Since(start)
				for i, name := range []string{"%victim", "%hot"} {
					words := after[i][ib.PortRcvData] - before[i][ib.PortRcvData]
					b.ReportMetric(100*float64(words)*32/took.Seconds()/rate, name)
				}
			}
		})
	}
}
