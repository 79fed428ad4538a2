package link

import "softib/proto/ib"

// Flow is what keeps a port's peer from sending more than the port has room for.
type Flow uint8

// Kinds of flow control. The last two make the port one of Ethernet.
const (
	Credits Flow = iota // InfiniBand's: nothing is sent for which there is no room
	Pause               // priority flow control: the peer is told to stop (IEEE 802.1Qbb)
	Lossy               // nothing: what finds the buffer full is dropped
)

// A packet keeps its InfiniBand headers within the engines. On an Ethernet cable it is a frame of RoCEv2: what IBA's
// annex A17 puts around BTH in place of LRH and VCRC is what follows, in bytes.
const (
	ethernetHeader = 14 + 20 + 8 // Ethernet without a tag, IPv4, UDP: priorities go by DSCP, as where RoCE is routed
	ethernetFCS    = 4
	ethernetGap    = 8 + 12 // preamble and the gap between frames
	localHeaders   = 8 + 2  // LRH and VCRC, which are not sent
	// EthernetExtra is how much longer a frame holds the cable than the packet of InfiniBand would. Buffers count the
	// packet: they hold neither preamble nor gap, and the 36 bytes that are left are less than a block.
	EthernetExtra = ethernetHeader + ethernetFCS + ethernetGap - localHeaders
	// PauseBytes is a pause frame, the shortest of frames, with preamble and gap.
	PauseBytes = 64 + ethernetGap
)

// maxBuffer is the largest receive buffer of a lane, in blocks: 3.75 MiB.
const maxBuffer = 0xF000

// Ethernet is what a port of Ethernet has that others have not. Zero fields take defaults.
type Ethernet struct {
	// Quanta is how long a pause lasts that is not renewed, in units of 512 bit times; 0 is the longest. It is raised
	// where a renewal could come late: it is due when half of the pause is over, and may have to wait for the longest
	// packet and the pause frames of all lanes.
	Quanta uint16
	// Watchdog is for how long a lane may be paused without a break before the port takes its peer for broken; 0 never
	// does. It then drops what is for the peer and ignores its pauses, until none has come for the time of Restore,
	// or for the longest that a pause can last.
	Watchdog, Restore ib.Time
	// RED marks packets in congestion.
	RED RED
	// Seed of the port's own randomness, which is RED's.
	Seed uint64
}

// RED says how packets that join a queue are marked, by the length of the queue in bytes (random early detection). The
// zero value marks none.
type RED struct {
	// Kmin is up to which length none are marked, and Kmax beyond which all are. Between, the part of those that are
	// grows from 0 to Pmax, in millionths.
	Kmin, Kmax int
	Pmax       uint32
}

const defaultQuanta = 0xFFFF

// ethernet is the state of a port of Ethernet.
type ethernet struct {
	Ethernet
	xoff, xon uint16 // of a lane's receive buffer, in blocks
	pausing   uint16 // lanes whose sender is to stop
	broken    uint16 // lanes that it stops for ever, whatever the buffer holds
	paused    uint16 // lanes that the peer has stopped
	ignoring  uint16 // lanes whose pauses the watchdog ignores
	random    uint64
	timerAt   ib.Time // see Arm
	lanes     [ib.NumVL]ethLane
	count     PauseCounters
}

// ethLane is a lane's part of it.
type ethLane struct {
	refreshAt ib.Time // when the peer is told again to stop
	since     ib.Time // since when the peer has stopped the lane,
	until     ib.Time // and until when
	ignoreTo  ib.Time // when the watchdog looks again
	heard     bool    // a pause came that was ignored
	queued    uint32  // blocks that wait to be sent
}

// PauseCounters are what a port has seen of pauses.
type PauseCounters struct {
	// Sent and Rcvd are pause frames, those that end a pause too.
	Sent, Rcvd uint64
	// Paused is for how long lanes were stopped by the peer, all together.
	Paused ib.Time
	// Storms is how often the watchdog has taken the peer for broken, and Restored how often it has ended that.
	Storms, Restored uint64
	// Most is the most that a lane's receive buffer has held, in blocks.
	Most uint16
}

func newEthernet(cfg Ethernet, mtu ib.MTU) *ethernet {
	if cfg.Quanta == 0 {
		cfg.Quanta = defaultQuanta
	}
	late := int(maxWords(mtu))*4 + 2 + EthernetExtra + ib.NumVL*PauseBytes
	cfg.Quanta = max(cfg.Quanta, uint16(2*late*8/512+1))
	if cfg.Restore == 0 {
		cfg.Restore = cfg.Watchdog
	}
	return &ethernet{Ethernet: cfg, xoff: maxBuffer, xon: maxBuffer, random: cfg.Seed, timerAt: ib.Never}
}

// restart forgets the pauses of a link that comes up. It names the lanes whose sender is to be told something.
func (e *ethernet) restart() uint16 {
	e.pausing, e.paused, e.ignoring = e.broken, 0, 0
	for i := range e.lanes {
		e.lanes[i] = ethLane{queued: e.lanes[i].queued}
	}
	return e.broken
}

// LongestFrame is how many bytes of the cable the longest packet takes, on Ethernet.
func (p *Port) LongestFrame() int { return int(maxWords(p.cold.cfg.MTUCap))*4 + 2 + EthernetExtra }

// Flow is the port's flow control.
func (p *Port) Flow() Flow { return p.flow }

// SetHeadroom says how many bytes, as counted on the cable, may still come after the peer was told to stop (see
// fabric's headroom). The buffer keeps room for them and for the packet that crosses the threshold, and is raised
// where it could hold little else. The peer goes on when two packets' worth have left, as in Zhu et al., "Congestion
// control for large-scale RDMA deployments", SIGCOMM 2015.
func (p *Port) SetHeadroom(bytes int) {
	if p.flow != Pause {
		return
	}
	mtu := mtuBlocks(p.cold.cfg.MTUCap)
	// A frame of n bytes on the cable takes at most n+6 of the buffer, in blocks, and none is shorter than 86.
	need := (bytes+bytes/13)/BlockSize + 1 + mtu
	size := min(max(p.cold.cfg.BufferBlocks, need+3*mtu), maxBuffer)
	if plantHeadroom {
		need = mtu
	}
	p.cold.cfg.BufferBlocks = size
	p.setOperVLs(p.cold.operVLs)
	e := p.cold.eth
	e.xoff = uint16(max(size-need, mtu))
	e.xon = e.xoff - uint16(min(2*mtu, int(e.xoff)))
}

// Thresholds are a lane's buffer and when the peer stops and goes on, in blocks.
func (p *Port) Thresholds() (size, xoff, xon int) {
	if p.flow == Credits {
		return p.cold.cfg.BufferBlocks, p.cold.cfg.BufferBlocks, 0
	}
	return p.cold.cfg.BufferBlocks, int(p.cold.eth.xoff), int(p.cold.eth.xon)
}

// PauseCounters reads them. They are zero where there are no pauses.
func (p *Port) PauseCounters() PauseCounters {
	if p.flow == Credits {
		return PauseCounters{}
	}
	return p.cold.eth.count
}

// PausedLanes are the lanes that the peer has stopped now, one bit each.
func (p *Port) PausedLanes() uint16 {
	if p.flow == Credits {
		return 0
	}
	return p.cold.eth.paused
}

// Pausing are the lanes whose sender was told to stop, one bit each.
func (p *Port) Pausing() uint16 {
	if p.flow == Credits {
		return 0
	}
	return p.cold.eth.pausing
}

// Broken reports whether the port is one that Break has broken.
func (p *Port) Broken() bool { return p.flow != Credits && p.cold.eth.broken != 0 }

// join takes a packet into the queue of a lane, or says why not, and marks it if that is to be.
func (p *Port) join(f *Frame, vl ib.VL) Reason {
	e := p.cold.eth
	if e.ignoring>>vl&1 != 0 {
		return PauseStorm
	}
	l := &e.lanes[vl]
	if e.RED.marks(int(l.queued)*BlockSize, &e.random) && vl < ib.VLMgmt {
		f.Packet.BTH.FECN = true
		p.marker().counted[vl]++
	}
	l.queued += uint32(f.Blocks)
	return OK
}

// marks draws whether a packet is marked that joins a queue of so many bytes.
func (r *RED) marks(queued int, random *uint64) bool {
	switch {
	case r.Kmax == 0 || queued <= r.Kmin:
		return false
	case queued > r.Kmax:
		return true
	}
	// Weyl's sequence through the finalizer of MurmurHash3.
	*random += 0x9E3779B97F4A7C15
	x := *random
	x = (x ^ x>>33) * 0xFF51AFD7ED558CCD
	x = (x ^ x>>33) * 0xC4CEB9FE1A85EC53
	x ^= x >> 33
	part := uint64(r.Pmax) * uint64(queued-r.Kmin) / uint64(r.Kmax-r.Kmin)
	return x%1_000_000 < part
}
