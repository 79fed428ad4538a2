package check

import (
	"fmt"

	"softib/fabric"
	"softib/node/hca"
	"softib/node/link"
	"softib/proof/workload"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/wire"
	"softib/subnet/route"
)

// lid is a host's address.
func (c *scene) lid(host int) ib.LID {
	return c.sim.LID(topo.PortRef{Node: c.sim.HostNode(host).Index, Port: 1})
}

// isDown reports whether a fault takes a link or a node down.
func isDown(k fabric.FaultKind) bool { return k == fabric.FaultLinkDown || k == fabric.FaultNodeStop }

// credit guards that credits are conserved on each lane of each link: a sender never
// has more than the receiver has room for, and at rest it has all of it again.
type credit struct {
	ignore
	*scene
}

const creditName = "credit"

// creditMask is the circle on which flow control counts.
const creditMask = wire.CreditMask

// lanes calls do for both directions of each cable that is up, lane by lane.
func (c *credit) lanes(do func(from, to topo.PortRef, vl ib.VL, tx, rx link.Credit)) {
	g := c.sim.Graph()
	for _, n := range g.Nodes {
		for num := 1; num < len(n.Ports); num++ {
			p := &n.Ports[num]
			if !p.Connected() {
				continue
			}
			from := topo.PortRef{Node: n.Index, Port: ib.PortNum(num)}
			to := topo.PortRef{Node: p.Peer, Port: p.PeerPort}
			a, b := c.sim.Port(from), c.sim.Port(to)
			if a.State() != ib.PortActive || b.State() != ib.PortActive {
				continue
			}
			if a.Flow() != link.Credits {
				continue // the simulation's own audit is all that there is to check
			}
			for vl := ib.VL(0); vl < ib.VL(min(a.OperVLs(), b.OperVLs())); vl++ {
				do(from, to, vl, a.Credit(vl), b.Credit(vl))
			}
		}
	}
}

func (c *credit) wrong(from, to topo.PortRef, vl ib.VL, what string, tx, rx link.Credit) {
	g := c.sim.Graph()
	c.report(creditName, nil,
		"%s to %s VL%d: %s (sent %d, limit %d; received %d, granted %d, %d of %d blocks occupied)",
		g.PortName(from), g.PortName(to), vl, what, tx.FCTBS, tx.FCCL, rx.ABR, rx.Advertised, rx.Occupied, rx.Size)
}

func (c *credit) Audit() {
	// The simulation counts what flies and what lies in buffers.
	if err := c.sim.Audit(); err != nil {
		c.report(creditName, nil, "%v", err)
	}
	c.lanes(func(from, to topo.PortRef, vl ib.VL, tx, rx link.Credit) {
		room := int(rx.Size) - int(rx.Occupied)
		granted := int((rx.Advertised - rx.ABR) & creditMask)
		held := int((tx.FCCL - rx.ABR) & creditMask)
		switch {
		case room < 0:
			c.wrong(from, to, vl, "the buffer holds more than it has room for", tx, rx)
		case tx.FCTBS == 0 && tx.FCCL == 0 || rx.Advertised == 0 && rx.ABR == 0:
			// just up: the first limits are on their way
		case granted > room && granted <= 2048:
			c.wrong(from, to, vl, fmt.Sprintf("%d blocks are granted where there is room for %d", granted, room), tx,
				rx)
		case held > granted && held <= 2048 && granted <= 2048:
			c.wrong(from, to, vl, fmt.Sprintf("the sender holds %d blocks of credit where %d are granted", held,
				granted), tx, rx)
		}
	})
}

func (c *credit) Rest() {
	c.Audit()
	if err := c.sim.AtRest(); err != nil {
		c.report(creditName, nil, "%v", err)
	}
	c.lanes(func(from, to topo.PortRef, vl ib.VL, tx, rx link.Credit) {
		// Credits are told in portions; what is not worth a packet yet is less than one.
		portion := max(int(rx.Size)/4, c.mtuBlocks())
		switch {
		case rx.Occupied != 0:
			c.wrong(from, to, vl, "the buffer is not empty at rest", tx, rx)
		case tx.FCTBS != rx.ABR:
			c.wrong(from, to, vl, "sender and receiver count differently at rest", tx, rx)
		case tx.FCCL != rx.Advertised:
			c.wrong(from, to, vl, "the last grant was lost for good", tx, rx)
		case tx.Available() < int(rx.Size)-portion || tx.Available() < c.mtuBlocks() && int(rx.Size) >= c.mtuBlocks():
			c.wrong(from, to, vl, fmt.Sprintf("only %d blocks of credit are back at rest", tx.Available()), tx, rx)
		}
	})
}

// mtuBlocks is the credit of the longest packet.
func (c *credit) mtuBlocks() int {
	return (c.sc.MTU.Bytes() + 124 + 2 + link.BlockSize - 1) / link.BlockSize
}

// partition guards that no packet crosses a partition: with the switches enforcing, none
// even reaches a host that is not in its partition. It watches the cables.
type partition struct {
	ignore
	*scene
}

const partitionName = "partition"

func (p *partition) packet(to topo.PortRef, pkt *wire.Packet) {
	if !p.sc.Enforce || len(p.sim.Graph().Switches()) == 0 || p.run == nil || pkt.LRH.LNH < wire.LNHLocal {
		return
	}
	n := p.sim.Graph().Nodes[to.Node]
	if n.IsSwitch() {
		return
	}
	for i := range p.run.Spec.Hosts {
		if p.sim.HostNode(i) != n {
			continue
		}
		for _, k := range p.run.Spec.PKeys[i] {
			if k.Base() == pkt.BTH.PKey.Base() {
				return
			}
		}
		p.report(partitionName, nil, "a packet of partition %v reaches h%d, which is not in it: %v", pkt.BTH.PKey, i+1,
			brief(pkt))
	}
}

// drops guards that nothing is dropped but by a declared fault, an expired life time
// or misuse.
type drops struct {
	ignore
	*scene
}

const dropsName = "drops"

// Rest holds every counter of drops against what can explain it.
func (d *drops) Rest() {
	count := d.sim.FaultCounts()
	down := count[fabric.FaultLinkDown]+count[fabric.FaultNodeStop] > 0
	life := d.sc.HOQ > 0 || d.sc.Life > 0
	crossing := d.crossing && d.sc.Enforce
	late := down || count[fabric.FaultDelay] > 0 || count[fabric.FaultFCLoss] > 0
	explained := map[link.Reason]bool{
		link.Physical: count[fabric.FaultCorrupt] > 0, link.NotReady: down, link.Inactive: down, link.LinkDown: down,
		link.BufferFull: d.sc.loses(late), link.HOQLife: life, link.SwitchLife: life, link.VLStalled: life,
		link.PKeyIn: crossing, link.PKeyOut: crossing,
		// A switch that chooses and has no port left has no route either.
		link.UnknownDLID: d.misused[workload.WrongLID] > 0 || d.grouped && d.deserted() ||
			down && d.sc.Adaptive != route.NoChoice,
		link.NoMember: d.grouped,
	}
	lost := uint64(0)
	for r, n := range d.sim.Drops() {
		lost += n
		if n > 0 && !explained[link.Reason(r)] {
			d.report(dropsName, nil, "%d packets were dropped for %q, which nothing explains", n, link.Reason(r))
		}
	}
	faults := uint64(0)
	for _, n := range count {
		faults += n
	}
	d.hosts(faults+lost > 0)
}

// hosts holds the adapters' counters against what happened in the whole run. disturbed says
// that packets were lost, doubled or delayed.
func (d *drops) hosts(disturbed bool) {
	var sum hca.Stats
	for i := range d.run.Spec.Hosts {
		st := &d.run.Adapter(i).Stats
		for k := range st.Drops {
			sum.Drops[k] += st.Drops[k]
		}
		sum.Retransmits += st.Retransmits
		sum.Timeouts += st.Timeouts
		sum.RNRNAKs += st.RNRNAKs
		sum.SeqNAKsSent += st.SeqNAKsSent
	}
	// Crossing conns and dead peers are tried again in vain.
	again := disturbed || sum.Timeouts > 0 || sum.Drops[hca.DropNoRecv] > 0 || d.failed
	// Where switches choose, adapters keep few packets that come before their turn.
	gaps := again || d.sc.Adaptive != route.NoChoice && !d.sc.Calm
	// Without a switch whatever is sent reaches the one other host.
	pair := len(d.sim.Graph().Switches()) == 0
	strayed := pair && d.misused[workload.WrongLID] > 0
	explained := map[hca.Drop]bool{
		hca.DropNoQP:  d.misused[workload.WrongQPN] > 0 || d.closed || strayed,
		hca.DropState: d.failed || strayed, hca.DropService: strayed,
		hca.DropPKey: d.crossing, hca.DropQKey: d.misused[workload.WrongQKey] > 0,
		hca.DropNoMcast: pair && d.grouped, hca.DropDLID: strayed,
		hca.DropNoRecv:    !d.sc.Calm,
		hca.DropDuplicate: gaps, hca.DropOutOfOrder: gaps,
		hca.DropStaleAck: gaps || d.sc.Adaptive != route.NoChoice, // another has overtaken it
		hca.DropUCBroken: again || d.ucMisuse(), hca.DropAccess: d.failed || d.ucMisuse(),
	}
	for k, n := range sum.Drops {
		if n > 0 && !explained[hca.Drop(k)] {
			d.report(dropsName, nil, "the adapters have dropped %d packets for %q, which nothing explains", n,
				hca.Drop(k))
		}
	}
	if !d.sc.Calm {
		return
	}
	for _, c := range []struct {
		n    uint64
		what string
	}{{sum.Retransmits, "packets were sent again"}, {sum.Timeouts, "timers ran out"},
		{sum.RNRNAKs, "receivers were not ready"}, {sum.SeqNAKsSent, "gaps were seen"}} {
		if c.n > 0 {
			d.report(dropsName, nil, "%d %s in a fabric without faults", c.n, c.what)
		}
	}
}

// deserted reports whether some group has no member.
func (d *drops) deserted() bool {
	for i := range d.run.Spec.Groups {
		alive := false
		for _, m := range d.run.Spec.Groups[i].Members {
			alive = alive || d.run.FlowByID(2*m.Conn+m.End) != nil
		}
		if !alive {
			return true
		}
	}
	return false
}

// ucMisuse reports whether a UC op was posted that its responder must drop.
func (d *drops) ucMisuse() bool {
	for _, f := range d.run.Flows {
		if f.From.Conn.Type != hca.UC {
			continue
		}
		for i := range f.Ops {
			if f.Ops[i].Posted && f.Ops[i].Misuse != workload.None {
				return true
			}
		}
	}
	return false
}
