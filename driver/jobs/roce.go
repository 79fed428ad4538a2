package jobs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"softib/driver/sim"
	"softib/node/hca"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
)

// Fabrics that a run can be on, by what their cables are and what is done about losses.
const (
	InfiniBand  = "ib"
	RoCE        = "roce"       // Ethernet with priority flow control, which loses nothing
	RoCELossy   = "roce-lossy" // without, and adapters go back to what was lost (go-back-N)
	RoCESelects = "roce-irn"   // without, and adapters send again only what was lost (IRN)
)

// Kinds are all of them.
var Kinds = []string{InfiniBand, RoCE, RoCELossy, RoCESelects}

// Ethernet is what a fabric of RoCEv2 is made of. Zero fields take defaults; on InfiniBand none counts.
type Ethernet struct {
	// Kind is one of Kinds; empty is InfiniBand.
	Kind string
	// NoDCQCN: senders do not slow down, and switches mark nothing. DCQCN and RED are how they do otherwise.
	NoDCQCN bool
	DCQCN   hca.DCQCN
	RED     link.RED
	// NoECMP: ways are those of the tables alone.
	NoECMP bool
	// Quanta is how long a pause lasts that is not renewed; Watchdog and Restore are link.Ethernet's.
	Quanta            uint16
	Watchdog, Restore ib.Time
	// Storm is a rank whose adapter pauses its switch for ever, plus 1; 0 is none. StormAt is from when on.
	Storm   int
	StormAt ib.Time
	// Selective is how roce-irn repeats. Its window is what the longest way holds, if none is given.
	Selective hca.Selective
	// Timeout is how long senders wait for an acknowledgement where packets may get lost, as queue pairs encode it:
	// 4.096 us times 2 to its power.
	Timeout uint8
}

// Defaults of Ethernet.
const (
	// roceBuffer is a port's share of the 12 MB that the 32-port switches of the DCQCN paper have.
	roceBuffer = 12 << 20 / 32
	// RED as in the DCQCN paper, section 5: 5 KB, 200 KB and one in a hundred.
	redKmin, redKmax, redPmax = 5_000, 200_000, 10_000
	// roceTimeout is 262 us: of those that queue pairs can have, the one nearest to the 320 us of the IRN paper.
	roceTimeout = 6
	// stormTimeout is 4.2 ms: with pauses only what a watchdog drops is lost, and it is for who takes nothing.
	stormTimeout = 10
)

func (e *Ethernet) isOn() bool { return e.Kind != "" && e.Kind != InfiniBand }

// loses reports whether packets can get lost.
func (e *Ethernet) loses() bool { return e.isOn() && (e.Kind != RoCE || e.Watchdog > 0) }

// check refuses what does not go together.
func (o *Options) checkEthernet() error {
	e := &o.Ethernet
	switch {
	case e.Kind != "" && !slices.Contains(Kinds, e.Kind):
		return fmt.Errorf("network %q: want one of %s", e.Kind, strings.Join(Kinds, ", "))
	case !e.isOn():
		return nil
	case o.Congestion.On:
		return fmt.Errorf("cc is InfiniBand's congestion control, and the network is %s; next: leave cc out, "+
			"DCQCN is on", e.Kind)
	case o.Adaptive != route.NoChoice && e.Kind != RoCE:
		return fmt.Errorf("adaptive routing brings packets out of order, which %s takes for losses; next: "+
			"--network roce", e.Kind)
	}
	return nil
}

// timeout is how long senders wait for an acknowledgement, as queue pairs encode it; 0 is for ever.
func (e *Ethernet) timeout() uint8 {
	switch {
	case !e.loses():
		return 0
	case e.Kind == RoCE:
		return cmp.Or(e.Timeout, stormTimeout)
	}
	return cmp.Or(e.Timeout, roceTimeout)
}

// hashes reports whether switches choose by hash.
func (o *Options) hashes() bool {
	return o.Adaptive == route.NoChoice && (o.Hash || o.Ethernet.isOn() && !o.Ethernet.NoECMP)
}

// salt is what a switch has of its own in its hash.
func (f *Fabric) salt(sw int) uint64 { return (f.opt.Seed<<20 + uint64(sw) + 1) * 0x9E3779B97F4A7C15 }

// noECMP adds to an error of routing what to do where switches were to choose by hash.
func (o *Options) noECMP(err error) error {
	if o.hashes() {
		return fmt.Errorf("ECMP: %w; next: --routing updn, or one way to each host with --set ecmp=0", err)
	}
	return err
}

// setEthernet makes a simulation one of Ethernet.
func (f *Fabric) setEthernet(cfg *sim.Config) {
	e := &f.opt.Ethernet
	if !e.isOn() {
		return
	}
	cfg.Port.Flow = link.Lossy
	if e.Kind == RoCE {
		cfg.Port.Flow = link.Pause
	}
	cfg.Port.MTUCap = f.opt.MTU
	if f.opt.Buffer == 0 {
		cfg.Port.BufferBlocks = roceBuffer / link.BlockSize
	}
	cfg.Port.Ethernet = link.Ethernet{Quanta: e.Quanta, Watchdog: e.Watchdog, Restore: e.Restore}
	cfg.RoCE = hca.RoCE{On: true, DCQCN: e.DCQCN, Selective: e.Selective, Endless: e.loses()}
	cfg.RoCE.DCQCN.On = !e.NoDCQCN
	if !e.NoDCQCN {
		cfg.Port.Ethernet.RED = link.RED{Kmin: cmp.Or(e.RED.Kmin, redKmin), Kmax: cmp.Or(e.RED.Kmax, redKmax),
			Pmax: cmp.Or(e.RED.Pmax, redPmax)}
	}
	if cfg.RoCE.Selective.On = e.Kind == RoCESelects; cfg.RoCE.Selective.Window == 0 {
		cfg.RoCE.Selective.Window = f.window()
	}
}

// window is how many packets of the path MTU the longest way and the way back hold: what a sender needs to have under
// way to keep its link busy.
func (f *Fabric) window() int {
	if len(f.opt.Place) == 0 {
		return 0
	}
	// From the farthest host of any one, the farthest is nearly as far as two can be; in trees it is.
	far, _ := f.farthest(f.opt.Place[0].Node)
	_, delay := f.farthest(far)
	mbps := ib.Time(f.Graph.LinkRate(f.opt.Place[0]).Mbps())
	frame := ib.Time(f.opt.MTU.Bytes() + 30 + link.EthernetExtra)
	bytes := 2*delay*mbps/8_000_000 + frame
	return int((bytes+frame-1)/frame) + 1
}

// farthest is the host to which a bit takes longest from a node, and how long.
func (f *Fabric) farthest(from int) (host int, delay ib.Time) {
	at := make([]ib.Time, len(f.Graph.Nodes))
	for i := range at {
		at[i] = ib.Never
	}
	at[from] = 0
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		n := f.Graph.Nodes[queue[0]]
		if n.Index != from && !n.IsSwitch() {
			if at[n.Index] > delay {
				host, delay = n.Index, at[n.Index]
			}
			continue
		}
		for p := 1; p < len(n.Ports); p++ {
			port := &n.Ports[p]
			if !port.Connected() || at[port.Peer] != ib.Never {
				continue
			}
			t := at[n.Index] + ib.Time(port.LengthMM)*sim.CableDelay
			if n.IsSwitch() {
				t += f.opt.SwitchLatency
			}
			at[port.Peer] = t
			queue = append(queue, port.Peer)
		}
	}
	return host, delay
}

// breakHost lets a storm begin, if there is to be one.
func (n *Packets) breakHost() error {
	e := &n.f.opt.Ethernet
	if e.Storm == 0 || !e.isOn() {
		return nil
	}
	if e.Storm < 0 || e.Storm > len(n.f.opt.Place) {
		return fmt.Errorf("storm is at rank %d: want one of the %d ranks; next: storm=1 is the first", e.Storm-1,
			len(n.f.opt.Place))
	}
	n.PlanBreak(e.StormAt, n.f.opt.Place[e.Storm-1], 0)
	return nil
}

// stillTime is how long a fabric of Ethernet may stand still before it counts as stuck: longer than the longest pause
// and than any sender waits. Pauses are told again for ever, so that it never falls silent.
const stillTime = 20 * ib.Millisecond

// jammed finds whether packets that wait have moved, and says why they have not.
func (n *Packets) jammed() error {
	if n.f.opt.Ethernet.Kind != RoCE || n.out == 0 {
		n.hopsAt = n.Now()
		return nil
	}
	if h := n.Hops(); h != n.hops {
		n.hops, n.hopsAt = h, n.Now()
	}
	if n.Now()-n.hopsAt < stillTime {
		return nil
	}
	return &StuckError{At: n.hopsAt, What: n.pauses()}
}

// pauses says who waits for whom: ports that are paused wait for ports of the next switch in which the packets lie that
// fill the buffer behind the cable.
func (n *Packets) pauses() string {
	says := fmt.Sprintf("%d messages are on their way and no packet can move", n.out)
	var chain []topo.PortRef
	seen := map[topo.PortRef]int{}
	for at := n.firstPaused(); at.Node >= 0; at = n.waitsFor(at) {
		if i, ok := seen[at]; ok {
			return says + n.nameCircle(": ports are paused in a circle, ", chain[i:]) +
				"; next: choose a routing that is free of deadlock here, such as updn, or another shape of the fabric"
		}
		seen[at] = len(chain)
		chain = append(chain, at)
	}
	if len(chain) == 0 {
		return says + ", though no port is paused"
	}
	port := n.f.Graph.Port(chain[len(chain)-1])
	return says + n.nameCircle(": each of these ports is paused by the next, ", chain) + ", which " +
		n.f.Graph.PortName(topo.PortRef{Node: port.Peer, Port: port.PeerPort}) +
		" pauses for ever; next: mend that host, or let the watchdog drop what is for it: --set watchdog=1000000"
}

func (n *Packets) nameCircle(says string, ports []topo.PortRef) string {
	for i, at := range ports {
		if i > 0 {
			says += " → "
		}
		if i == jamNames {
			return says + fmt.Sprintf("and %d more", len(ports)-i)
		}
		says += n.f.Graph.PortName(at)
	}
	return says
}

// firstPaused is a port that has something to send and may not.
func (n *Packets) firstPaused() topo.PortRef {
	for at := range n.Places() {
		if n.isPaused(n.Ref(at)) {
			return n.Ref(at)
		}
	}
	return topo.PortRef{Node: -1}
}

// isPaused reports whether some lane of a port has packets and is paused.
func (n *Packets) isPaused(at topo.PortRef) bool {
	p := n.Port(at)
	for vl := range ib.VL(ib.NumVL) {
		if p.PausedLanes()>>vl&1 != 0 && p.Queued(vl) > 0 {
			return true
		}
	}
	return false
}

// waitsFor is a paused port in whose queue packets lie that came by the cable of a paused port.
func (n *Packets) waitsFor(at topo.PortRef) topo.PortRef {
	port := n.f.Graph.Port(at)
	if n.f.Graph.Nodes[port.Peer].IsSwitch() {
		for num := 1; num < len(n.f.Graph.Nodes[port.Peer].Ports); num++ {
			out := topo.PortRef{Node: port.Peer, Port: ib.PortNum(num)}
			if !n.isPaused(out) {
				continue
			}
			for _, f := range n.Port(out).AppendQueued(nil) {
				if f.InPort == port.PeerPort {
					return out
				}
			}
		}
	}
	return topo.PortRef{Node: -1}
}

// PauseTotals sums what all ports have seen of pauses, and what was lost.
type PauseTotals struct {
	link.PauseCounters
	Dropped uint64 // packets that found a buffer full
	Given   uint64 // packets that the watchdog gave up
	Marked  uint64
	CNPs    uint64
	Resent  uint64 // packets
	// StormPorts are the ports whose watchdog has taken the peer for broken.
	StormPorts []topo.PortRef
}

// PauseTotals reads them.
func (n *Packets) PauseTotals() PauseTotals {
	var t PauseTotals
	for at := range n.Places() {
		p := n.PortAt(at)
		c := p.PauseCounters()
		t.Sent, t.Rcvd, t.Paused = t.Sent+c.Sent, t.Rcvd+c.Rcvd, t.Paused+c.Paused
		t.Storms, t.Restored = t.Storms+c.Storms, t.Restored+c.Restored
		t.Most = max(t.Most, c.Most)
		if c.Storms > 0 {
			t.StormPorts = append(t.StormPorts, n.Ref(at))
		}
		for vl := range ib.VLMgmt {
			t.Marked += p.Marked(vl)
		}
	}
	for i := range n.hosts {
		t.CNPs += n.hosts[i].Stats.CNPsSent
		t.Resent += n.hosts[i].Stats.Retransmits
	}
	t.Dropped, t.Given = n.Drops()[link.BufferFull], n.Drops()[link.PauseStorm]
	return t
}
