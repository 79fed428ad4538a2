package ibswitch

import (
	"softib/node/link"
	"softib/proto/ib"
)

// Config is what a switch is built as.
type Config struct {
	// Ports counts the external ports.
	Ports int
	// Port is the make of every port; their rates are set one by one.
	Port link.Config
}

// Switch is one switch. Make it with New.
type Switch struct {
	// What every packet reads fills one cache line.
	ports    []link.Port  // 0 is the switch itself
	active   []ib.PortNum // lft up to LinearFDBTop; see activate
	sl2vlAll [ib.NumSL]ib.VL

	sl2vl [][ib.NumSL]ib.VL // by in*len(ports)+out; nil while all are alike
	// slSet says which maps a manager wrote, the one of all pairs and that of each: others make do with
	// the lanes that the way out has.
	slSetAll bool
	byLane   bool // the maps go by the lane that a packet came on, not by its level
	slSet    []bool
	lft      []ib.PortNum
	adaptive *adaptive // nil while no manager has written of it
	lid      ib.LID
	lmc      uint8
	info     Info

	mft    []ib.PortMask
	pool   *link.Pool
	mgmt   link.Queue  // packets for port 0
	outs   ib.PortMask // ports to which a multicast packet has been queued
	copies link.Copies // of multicast packets

	alarmed ib.PortMask // ports that have an alarm to tell of
	refused []refusal   // packets that partition enforcement stopped, the first few
}

// New makes a switch whose ports are down and whose tables are empty. Copies of
// multicast packets are taken from pool.
func New(cfg Config, pool *link.Pool) *Switch {
	s := &Switch{ports: link.NewPorts(cfg.Ports+1, cfg.Port), pool: pool}
	s.Reset()
	s.startPort0()
	return s
}

// SetPool gives a switch that holds no packet another pool for its copies.
func (s *Switch) SetPool(pool *link.Pool) { s.pool = pool }

// Reset makes a switch whose links are down forget all that managers wrote, as when its power goes and comes.
func (s *Switch) Reset() {
	for i := range s.ports {
		p := &s.ports[i]
		p.SetPKeys(nil)
		p.SetEnforcement(0)
		p.SetHOQLife(lifeForever)
		p.SetSwitchLife(ib.Never)
		p.SetMarking(link.Marking{})
	}
	s.ports[0].SetPKeys([]ib.PKey{ib.PKeyDefault})
	s.lft, s.active, s.mft, s.adaptive = nil, nil, nil, nil
	s.sl2vl, s.slSet, s.slSetAll, s.byLane = nil, nil, false, false
	s.sl2vlAll = s.ports[0].SL2VLMap()
	s.lid, s.lmc = 0, 0
	s.alarmed, s.refused = ib.PortMask{}, nil
	s.info = Info{
		LinearFDBCap: uint16(ib.LIDUnicastMax) + 1, MulticastFDBCap: 1024,
		LinearFDBTop: ib.LIDUnicastMax, DefaultPort: DropPort,
		DefaultMcastPrimary: DropPort, DefaultMcastNotPrimary: DropPort,
		LifeTimeValue: lifeForever,
	}
}

// lifeForever is the first code of a life time that does not end (IBA 14.2.5.6).
const lifeForever = 20

// startPort0 makes the management port active: it has no cable to train on.
func (s *Switch) startPort0() {
	p := &s.ports[0]
	p.SetRate(ib.LinkRate{Width: ib.Width12x, Speed: ib.XDR})
	p.Train()
	p.LinkUp(0)
	for _, to := range []ib.PortState{ib.PortArmed, ib.PortActive} {
		if err := p.Command(0, to); err != nil {
			panic(err) // a port that has just come up takes both
		}
	}
}

// Result is what became of a packet.
type Result struct {
	Reason link.Reason
	// Out is the port that is to be polled, since a unicast packet was queued there;
	// 0 for none.
	Out ib.PortNum
	// Multicast: PollOut names the ports on which copies were queued.
	Multicast bool
	// Mgmt: PollMgmt has the packet.
	Mgmt bool
	// FC: port in has a flow-control packet to send.
	FC bool
}

// Handle takes a packet that has arrived at port in. Unless it is dropped or came
// for the switch itself it is queued at the port or ports out. A dropped frame
// is the caller's; others are the switch's until PollTx, PollDropped or
// PollMgmt hands them out.
func (s *Switch) Handle(now ib.Time, in ib.PortNum, f *link.Frame) Result {
	p := &s.ports[in]
	if r := p.Receive(now, f); r != link.OK {
		if p.HasAlarm() {
			s.alarmed.Set(in)
		}
		return Result{Reason: r}
	}
	f.InPort = in
	d := s.Decide(in, f)
	if d.Reason != link.OK || d.Out == 0 {
		return s.pass(now, f, d)
	}
	if d.Chosen {
		s.adaptive.chosen(f, d.Out)
	}
	r := s.ports[d.Out].Enqueue(now, f, d.VL)
	if r == link.OK {
		return Result{Out: d.Out}
	}
	if r.IsDrop() {
		return s.discard(f, r)
	}
	return Result{}
}

// pass does with a packet what was decided.
func (s *Switch) pass(now ib.Time, f *link.Frame, d Decision) Result {
	switch {
	case d.Reason != link.OK:
		return s.drop(f, d)
	case d.Fan:
		return s.multicast(now, f)
	case d.Out == 0:
		return s.toMgmt(f)
	}
	switch r := s.ports[d.Out].Enqueue(now, f, d.VL); {
	case r == link.OK:
		return Result{Out: d.Out}
	case r.IsDrop():
		return s.discard(f, r)
	}
	return Result{}
}

// drop counts a packet that goes no further.
func (s *Switch) drop(f *link.Frame, d Decision) Result {
	s.refuse(d.At, f, d.Reason)
	s.notify(f, d.Reason)
	return s.discard(f, s.ports[d.At].Count(d.Reason))
}

// discard gives back the receive buffer of a packet that goes no further; the switch's own have none.
func (s *Switch) discard(f *link.Frame, r link.Reason) Result {
	return Result{Reason: r, FC: f.InPort != 0 && s.ports[f.InPort].Release(f.InVL, f.Blocks)}
}

func (s *Switch) toMgmt(f *link.Frame) Result {
	s.mgmt.Push(f)
	return Result{Mgmt: true}
}

// PollMgmt hands out packets that came for the switch itself: f.InPort is
// where from. The caller calls Left when it has read the packet.
func (s *Switch) PollMgmt() *link.Frame { return s.mgmt.Pop() }

// SendMgmt sends a packet of the switch's own: out of port out where that
// is not 0, as directed routes are, by the forwarding table otherwise.
// A dropped frame is the caller's.
func (s *Switch) SendMgmt(now ib.Time, out ib.PortNum, f *link.Frame) Result {
	f.InPort, f.InVL, f.Arrived = 0, ib.VLMgmt, now
	switch {
	case out == 0:
		return s.pass(now, f, s.Decide(0, f))
	case int(out) >= len(s.ports):
		return s.drop(f, drop(link.UnknownDLID, 0))
	}
	return s.pass(now, f, s.Leave(0, out, f))
}

// Claim is the receive buffer that a packet occupies.
type Claim struct {
	In     ib.PortNum
	VL     ib.VL
	Blocks uint8
}

// Left gives back the receive buffer that f occupied in this switch, when
// it has left by an output port or was dropped from a queue. It names the port
// that now has a flow-control packet to send; 0 for none.
func (s *Switch) Left(f *link.Frame) ib.PortNum {
	if !s.copies.End(f) || f.InPort == 0 || !s.ports[f.InPort].Release(f.InVL, f.Blocks) {
		return 0
	}
	return f.InPort
}

// Detach is Left for a driver that passes the frame on before the buffer is
// free: the claim is to be released later. There is none while other
// copies of a multicast packet hold it.
func (s *Switch) Detach(f *link.Frame) (Claim, bool) {
	if !s.copies.End(f) || f.InPort == 0 {
		return Claim{}, false
	}
	return Claim{f.InPort, f.InVL, f.Blocks}, true
}

// Release gives back a claim. It reports whether port c.In now has a
// flow-control packet to send.
func (s *Switch) Release(c Claim) bool { return s.ports[c.In].Release(c.VL, c.Blocks) }

// Touch reads what Handle will read for f at port in, and returns a value that
// depends on it. A driver that knows several packets in advance calls it for
// all of them first: the memory is then fetched for all at once rather than one
// after the other.
func (s *Switch) Touch(in ib.PortNum, f *link.Frame) uint64 {
	v := s.ports[in].TouchRx(f.LRH.VL)
	if int(f.LRH.DLID) >= len(s.active) {
		return v
	}
	out := s.active[f.LRH.DLID]
	if int(out) >= len(s.ports) {
		return v
	}
	return v + s.ports[out].TouchTx(s.sl2vlAll[f.LRH.SL&15])
}

// AppendClaims lists the receive buffers that the switch's packets occupy, one
// for each packet however many copies of it there are; for a check that
// credits are conserved.
func (s *Switch) AppendClaims(list []Claim) []Claim {
	var frames []*link.Frame
	for i := range s.ports {
		frames = s.ports[i].AppendQueued(frames)
	}
	for f := s.mgmt.Head(); f != nil; f = f.Next() {
		frames = append(frames, f)
	}
	for _, f := range s.copies.Holders(frames) {
		list = append(list, Claim{f.InPort, f.InVL, f.Blocks})
	}
	return list
}
