package link

import (
	"softib/ib"
)

// Config is what a port is built as. It does not change while the port lives.
type Config struct {
	// Rate is the link's width and speed.
	Rate ib.LinkRate
	// MTUCap is the largest payload that the port takes.
	MTUCap ib.MTU
	// VLCap is how many data lanes the port has: 1, 2, 4, 8 or 15.
	VLCap uint8
	// BufferBlocks is the receive buffer of each data lane, in 64-byte blocks.
	// It is raised to hold one packet of MTUCap, without which the link could not
	// move, and cut to what flow control can express.
	BufferBlocks int
	// VL15Packets is the receive buffer of VL15, in packets.
	VL15Packets int
}

// Defaults of Config's fields where they are zero.
const (
	DefaultBufferMTUs  = 8
	DefaultVL15Packets = 16
)

// maxWords is the longest LRH length that an MTU admits: 124 bytes of headers and
// CRC beside the payload (IBA 7.7.8).
func maxWords(m ib.MTU) uint16 { return uint16((m.Bytes() + 124) / 4) }

// mtuBlocks is the credit of the longest packet.
func mtuBlocks(m ib.MTU) int { return (int(maxWords(m))*4 + 2 + BlockSize - 1) / BlockSize }

// txVL is the transmit side of one lane: 64 bytes, a cache line.
type txVL struct {
	q         Queue
	headSince ib.Time // when the head became the head
	pkts      uint64
	words     uint64
	waited    ib.Time // how long the head lacked credit, in all
	waitSince ib.Time
	fctbs     uint16 // total blocks sent
	fccl      uint16 // the peer's limit
	n         uint32 // packets queued
}

// rxVL is the receive side of one lane: half a cache line.
type rxVL struct {
	pkts  uint64
	words uint64
	size  uint16 // blocks of buffer; packets for VL15
	occ   uint16 // occupied
	abr   uint16 // adjusted blocks received
	adv   uint16 // limit last advertised
	owed  uint16 // credits to gather before an FC packet is worth sending
	_     [6]byte
}

// Port is one port. Make it with Init; it must not be copied while it holds
// frames.
type Port struct {
	// The first lines are what every packet touches.
	busyUntil ib.Time
	burstAt   ib.Time // when the current run of FC packets began
	lastDur   ib.Time // how long lastBytes take
	fcDur     ib.Time
	waitSince ib.Time
	waited    ib.Time
	lastBytes uint16
	queued    uint16 // lanes with packets queued
	fcNeed    uint16 // lanes that want an FC packet sent
	oper      uint16 // operational lanes, VL15 included
	lacking   uint16 // lanes whose head lacked credit when last looked at
	rxWords   uint16 // longest packet to receive
	txWords   uint16 // longest packet to send
	state     ib.PortState
	phys      ib.PhysState

	enforce   Enforce
	waiting   bool // waitSince is set
	refresh   bool
	mortal    bool // some life time is finite
	sl2vl     [ib.NumSL]ib.VL
	refreshAt ib.Time
	_         [28]byte

	tx [ib.NumVL]txVL
	rx [ib.NumVL]rxVL

	cfg         Config
	arb         arbiter
	hoqLife     ib.Time
	switchLife  ib.Time
	hoqCode     uint8
	stallCount  uint8
	operVLs     uint8
	mtu         ib.MTU // NeighborMTU: what may be sent
	expired     [ib.NumVL]uint8
	stalled     uint16 // lanes that are stalled
	stallUntil  [ib.NumVL]ib.Time
	pkeys       []ib.PKey
	dropped     dropQueue
	count       ib.Counters
	base        ib.Counters // subtracted on reading: counters that were reset
	mcastTx     uint64
	mcastRx     uint64
	fcSent      uint64
	fcRcvd      uint64
	overrunsRun uint8
	_           [portTail]byte
}

// portTail rounds Port up to whole cache lines, so that in a slice of ports
// every lane starts a line.
const portTail = 15

// Init makes p a port that is down.
func (p *Port) Init(cfg Config) {
	if cfg.MTUCap == 0 {
		cfg.MTUCap = ib.MTU4096
	}
	if cfg.VLCap == 0 {
		cfg.VLCap = 8
	}
	if cfg.BufferBlocks == 0 {
		cfg.BufferBlocks = DefaultBufferMTUs * mtuBlocks(cfg.MTUCap)
	}
	if cfg.VL15Packets == 0 {
		cfg.VL15Packets = DefaultVL15Packets
	}
	cfg.BufferBlocks = min(max(cfg.BufferBlocks, mtuBlocks(cfg.MTUCap)), fcHalf)
	*p = Port{cfg: cfg, state: ib.PortDown, phys: ib.PhysPolling, burstAt: -1, hoqLife: ib.Never, switchLife: ib.Never, hoqCode: 20}
	p.stallCount = 7
	p.rxWords = maxWords(cfg.MTUCap)
	p.pkeys = []ib.PKey{ib.PKeyDefault}
	p.SetRate(cfg.Rate)
	p.setNeighborMTU(cfg.MTUCap)
	p.setOperVLs(cfg.VLCap)
	for sl := range p.sl2vl {
		p.sl2vl[sl] = ib.VL(sl % int(p.operVLs))
	}
	p.arb.setDefault(p.operVLs)
}

// SetRate sets the width and speed that training has settled on.
func (p *Port) SetRate(r ib.LinkRate) {
	p.cfg.Rate = r
	p.lastBytes, p.lastDur = 0, 0
	p.fcDur = r.ByteTime(FCBytes)
}

// Rate is the link's width and speed.
func (p *Port) Rate() ib.LinkRate { return p.cfg.Rate }

// MTUCap is the largest payload that the port takes.
func (p *Port) MTUCap() ib.MTU { return p.cfg.MTUCap }

// VLCap is how many data lanes the port has.
func (p *Port) VLCap() uint8 { return p.cfg.VLCap }

// State is the logical state.
func (p *Port) State() ib.PortState { return p.state }

// Phys is the physical state.
func (p *Port) Phys() ib.PhysState { return p.phys }

// NeighborMTU is the largest payload that may be sent.
func (p *Port) NeighborMTU() ib.MTU { return p.mtu }

func (p *Port) setNeighborMTU(m ib.MTU) {
	p.mtu = m
	p.txWords = maxWords(m)
}

// OperVLs is how many data lanes are in use.
func (p *Port) OperVLs() uint8 { return p.operVLs }

// setOperVLs sizes the lanes. Flow control starts anew on the next Init.
func (p *Port) setOperVLs(n uint8) {
	p.operVLs = n
	p.oper = 1<<n - 1 | 1<<ib.VLMgmt
	need := mtuBlocks(p.cfg.MTUCap)
	for vl := range p.rx {
		rx := &p.rx[vl]
		switch {
		case vl == int(ib.VLMgmt):
			rx.size = uint16(p.cfg.VL15Packets)
		case vl < int(n):
			rx.size = uint16(p.cfg.BufferBlocks)
			// Credits are gathered into few FC packets, yet never so many that
			// the peer could lack credit for one packet while all of the
			// buffer is free.
			rx.owed = uint16(max(1, min(max(need, p.cfg.BufferBlocks/4), p.cfg.BufferBlocks-need+1)))
		default:
			rx.size, rx.owed = 0, 0
		}
	}
}

// HOQLife is the code and the time of head-of-queue life.
func (p *Port) HOQLife() (code uint8, t ib.Time) { return p.hoqCode, p.hoqLife }

// SetHOQLife sets how long a packet may stand at the head of its queue, as
// PortInfo encodes it (IBA 18.2.5.4).
func (p *Port) SetHOQLife(code uint8) {
	p.hoqCode, p.hoqLife = code, ib.HOQLife(code)
	p.mortal = p.hoqLife != ib.Never || p.switchLife != ib.Never
}

// SetSwitchLife sets how long a packet may stay in the switch.
func (p *Port) SetSwitchLife(t ib.Time) {
	p.switchLife = t
	p.mortal = p.hoqLife != ib.Never || p.switchLife != ib.Never
}

// VLStallCount is how many expiries in a row stall a lane.
func (p *Port) VLStallCount() uint8 { return p.stallCount }

// SetVLStallCount sets it; 0 never stalls.
func (p *Port) SetVLStallCount(n uint8) { p.stallCount = n & 7 }

// SL2VL is the lane for a service level of packets that this port's own node
// sends; a switch maps by port pair instead.
func (p *Port) SL2VL(sl ib.SL) ib.VL { return p.sl2vl[sl&15] }

// SetSL2VL writes the map.
func (p *Port) SetSL2VL(m [ib.NumSL]ib.VL) { p.sl2vl = m }

// SL2VLMap reads the map.
func (p *Port) SL2VLMap() [ib.NumSL]ib.VL { return p.sl2vl }

// IsOperVL reports whether vl is a lane of the link.
func (p *Port) IsOperVL(vl ib.VL) bool { return p.oper>>vl&1 != 0 }

// byteTime is Rate().ByteTime with the last answer kept: most packets of a
// flow have one size.
func (p *Port) byteTime(n uint16) ib.Time {
	if n != p.lastBytes {
		p.lastBytes = n
		p.lastDur = p.cfg.Rate.ByteTime(int(n))
	}
	return p.lastDur
}
