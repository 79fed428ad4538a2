package server_test

import (
	"testing"
	"time"

	"softib/driver/live"
	"softib/proto/mad"
	"softib/proto/topo"
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

// control sets congestion control up as a manager does. A queue that is two packets long has all that join it marked.
// Who is told waits after each packet for as long as delay of them take, for ever.
func control(t testing.TB, f *live.Fabric, delay uint64) {
	t.Helper()
	set := func(at topo.PortRef, id mad.AttrID, data []byte) {
		ask(t, f, at, mad.Header{MgmtClass: mad.ClassCC, Method: mad.MethodSet, AttributeID: id}, mad.CCDataOff, data)
	}
	marks := mad.SwitchCongestion{Threshold: 13}
	for _, n := range f.Graph().Switches() {
		set(topo.PortRef{Node: n.Index}, mad.AttrSwitchCongestion, marks.Append(nil))
	}
	slows, table := make([]byte, mad.CACongestionLayout.Size), make([]byte, mad.CongestionTableLayout.Size)
	mad.CACongestionLayout.Field("ControlMap").Put(slows, 0, 0xFFFF)
	mad.CACongestionLayout.Field("CCTIIncrease").Put(slows, 0, 1)
	mad.CongestionTableLayout.Field("CCTILimit").Put(table, 0, 1)
	mad.CongestionTableLayout.Field("Multiplier").Put(table, 1, delay)
	for i := range f.Hosts() {
		set(portOf(f, i), mad.AttrCACongestion, slows)
		set(portOf(f, i), mad.AttrCongestionControlTable, table)
	}
}

// TestCongestionControl: two programs send to one behind a slow cable. The switch marks what waits there, the receiver
// tells the senders, and they slow down; ports count each step. It is the same for programs in processes of their own
// and in the fabric's, and the settings may come before a program or after it.
func TestCongestionControl(t *testing.T) {
	for _, c := range []struct {
		name   string
		inside bool
		late   bool
	}{{"attached", false, false}, {"attached before the settings", false, true}, {"inside", true, false},
		{"inside before the settings", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			f, socket := fabric(t, "star:3")
			const rate, delay = 50e6, 3
			for i := range 3 {
				setFault(t, f, portOf(f, i), live.Fault{Rate: rate})
			}
			if !c.late {
				control(t, f, delay)
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
				control(t, f, delay)
			}
			to := s[2]
			var qs [2]*verbs.QP
			for i := range qs {
				qs[i] = s[i].qp(verbs.RC)
				join(t, qs[i], to.qp(verbs.RC), patient)
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
			marked := counter(t, f, peerOf(f, portOf(f, 2)), mad.AttrSwPortVLCongestion,
				&mad.SwPortVLCongestionLayout.Fields[2])
			for deadline := time.Now().Add(20 * time.Second); told(2, "PortPktRcvFECN") != marked; {
				if time.Now().After(deadline) {
					t.Fatalf("the receiver counts %d marked packets, the switch %d", told(2, "PortPktRcvFECN"), marked)
				}
				time.Sleep(time.Millisecond)
				to.readsClock() // it tells what it has counted as its clock moves on
			}
			becns := told(0, "PortPktRcvBECN") + told(1, "PortPktRcvBECN")
			if becns > marked {
				t.Errorf("%d acknowledgements told of %d packets", becns, marked)
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
