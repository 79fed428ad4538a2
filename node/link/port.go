package link

import (
	"softib/proto/ib"
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
	// Flow is what keeps the peer from sending more than the buffers hold. All but Credits are Ethernet, to which
	// Ethernet belongs.
	Flow     Flow
	Ethernet Ethernet
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

// txVL is the transmit side of one lane.
type txVL struct {
	q         Queue
	headSince ib.Time // when the head became the head
	n         uint32  // packets queued
	pkts      uint32  // not yet in totals
	words     uint32
	fctbs     uint16 // total blocks sent
	fccl      uint16 // the peer's limit
}

// rxVL is the receive side of one lane.
type rxVL struct {
	pkts  uint32 // not yet in totals
	words uint32
	size  uint16 // blocks of buffer; packets for VL15
	occ   uint16 // occupied
	abr   uint16 // adjusted blocks received
	adv   uint16 // limit last advertised
	owed  uint16 // credits to gather before an FC packet is worth sending
	// sl and txSL are the service levels that the words received and sent, as far as they
	// are not yet in totals, belong to.
	sl   ib.SL
	txSL ib.SL
}

// lane is one virtual lane of one port: a cache line.
type lane struct {
	tx     txVL
	rx     rxVL
	fcRcvd uint32 // flow-control packets received
}

// totals are a lane's counters, apart from what the lane itself holds, and the
// clock of its waiting for credit.
type totals struct {
	txPkts, txWords uint64
	rxPkts, rxWords uint64
	waited          ib.Time
	waitSince       ib.Time
}

// levels are a port's words by service level. They are there once a level other than 0
// was seen.
type levels struct{ tx, rx [ib.NumSL]uint64 }

// foldAt is when a lane's short counters move to totals: well before they wrap.
const foldAt = 1 << 31

// Site is the driver's own note about a port. It is kept here so that who
// has the port at hand has the note at hand; the port does not look at it.
type Site struct {
	// Delay is from a packet's leaving to its being handled at the peer.
	Delay ib.Time
	// Peer is the port at the other end of the cable, First port 0 of the same
	// node, Node and Host the owner, in the driver's numbering.
	Peer, First, Node uint32
	Host              int32
	Num               ib.PortNum
	Flags             uint16
}

// Port is one port. Make it with NewPort or NewPorts; it must not be copied
// afterwards.
//
// A fabric of a thousand hosts touches some port for each packet and hop, so
// what a hop needs is packed into two neighbouring cache lines here and one
// of the lane. The lanes of a node's ports lie by lane, so that a fabric that
// uses few lanes touches little memory.
type Port struct {
	busyUntil ib.Time
	burstAt   ib.Time // when the current run of FC packets began
	lastDur   ib.Time // how long lastBytes take
	lanes     []lane  // lane vl is lanes[vl*stride]
	stride    uint16
	lastBytes uint16
	queued    uint16 // lanes with packets queued
	fcNeed    uint16 // lanes that want an FC packet sent
	oper      uint16 // operational lanes, VL15 included
	rxWords   uint16 // longest packet to receive
	txWords   uint16 // longest packet to send
	state     ib.PortState
	flags     portFlags

	Site        Site
	cold        *cold
	waitSince   ib.Time
	mbps        uint32
	fcDur       uint32 // in picoseconds
	fcSent      uint32
	lacking     uint16 // lanes whose head lacked credit when last looked at
	flow        Flow
	overrunsRun uint8
}

// portFlags are the port's filters, in the low bits, and what its clocks do.
type portFlags uint8

const (
	filterMask             = portFlags(EnforcePKeyIn | EnforcePKeyOut | EnforceRawIn | EnforceRawOut)
	flagWaiting  portFlags = 1 << 4 // waitSince is set
	flagWatched  portFlags = 1 << 5 // some life time is finite, packets are marked, or it is Ethernet
	flagRefresh  portFlags = 1 << 6 // the refresh timer is on
	flagsLacking portFlags = 1 << 7 // some lane lacks credit
)

func (p *Port) set(f portFlags, on bool) {
	p.flags &^= f
	if on {
		p.flags |= f
	}
}

func (p *Port) has(f portFlags) bool { return p.flags&f != 0 }

func (p *Port) lane(vl int) *lane { return &p.lanes[vl*int(p.stride)] }

func (p *Port) tx(vl int) *txVL { return &p.lanes[vl*int(p.stride)].tx }

func (p *Port) rx(vl int) *rxVL { return &p.lanes[vl*int(p.stride)].rx }

// cold is what few packets touch.
type cold struct {
	cfg        Config
	arb        arbiter
	hoqLife    ib.Time
	switchLife ib.Time
	hoqCode    uint8
	stallCount uint8
	operVLs    uint8
	mtu        ib.MTU // NeighborMTU: what may be sent
	expired    [ib.NumVL]uint8
	stalled    uint16             // lanes that are stalled
	stallUntil *[ib.NumVL]ib.Time // nil until a lane has stalled
	pkeys      []ib.PKey
	dropped    ib.Queue[Drop] // empty nearly always
	count      ib.Counters
	base       *ib.Counters // subtracted on reading, where counters were reset
	mcastTx    uint64
	mcastRx    uint64
	waited     ib.Time
	refreshAt  ib.Time
	sl2vl      [ib.NumSL]ib.VL
	slSet      bool     // a manager wrote sl2vl
	totals     []totals // of the lanes up to the last that has some
	levels     *levels  // nil while all is of level 0

	phyLimit     uint8 // LocalPhyErrors
	overrunLimit uint8 // OverrunErrors
	phyRun       uint8 // local physical errors, less the good packets since
	phyAt        uint64
	alarms       Alarm
	guarded      bool
	phys         ib.PhysState

	marks *marks
	eth   *ethernet // nil where there are credits
}

// NewPort makes a port that is down.
func NewPort(cfg Config) *Port { return &NewPorts(1, cfg)[0] }

// NewPorts makes the n ports of a node.
func NewPorts(n int, cfg Config) []Port {
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
	cfg.VLCap = min(cfg.VLCap, uint8(ib.VLMgmt))
	most := fcHalf
	if cfg.Flow != Credits {
		most = maxBuffer
	}
	cfg.BufferBlocks = min(max(cfg.BufferBlocks, mtuBlocks(cfg.MTUCap)), most)
	ports := make([]Port, n)
	lanes := make([]lane, n*ib.NumVL)
	colds := make([]cold, n)
	for i := range ports {
		ports[i] = Port{lanes: lanes[i:], stride: uint16(n), cold: &colds[i], state: ib.PortDown, burstAt: -1,
			flow: cfg.Flow}
		colds[i].phys = ib.PhysPolling
		ports[i].init(cfg)
		cfg.Ethernet.Seed += 0xD1B54A32D192ED03 // each port draws otherwise
	}
	return ports
}

func (p *Port) init(cfg Config) {
	c := p.cold
	c.cfg = cfg
	if cfg.Flow != Credits {
		c.eth = newEthernet(cfg.Ethernet, cfg.MTUCap)
	}
	c.hoqLife, c.switchLife, c.hoqCode = ib.Never, ib.Never, hoqForever
	c.stallCount = 7
	c.phyLimit, c.overrunLimit = errorThreshold, errorThreshold
	c.pkeys = []ib.PKey{ib.PKeyDefault}
	p.rxWords = maxWords(cfg.MTUCap)
	p.SetRate(cfg.Rate)
	p.setNeighborMTU(cfg.MTUCap)
	p.setOperVLs(cfg.VLCap)
	c.arb.setDefault(c.operVLs)
	p.watch()
}

// hoqForever is the first code of an infinite head-of-queue life time.
const hoqForever = 20

// SetRate sets the width and speed that training has settled on.
func (p *Port) SetRate(r ib.LinkRate) {
	p.cold.cfg.Rate = r
	p.lastBytes, p.lastDur = 0, 0
	p.mbps = uint32(r.Mbps())
	p.fcDur = uint32(p.byteTime(FCBytes))
	if p.flow != Credits {
		p.fcDur = uint32(r.ByteTime(PauseBytes))
	}
}

// Rate is the link's width and speed.
func (p *Port) Rate() ib.LinkRate { return p.cold.cfg.Rate }

// MTUCap is the largest payload that the port takes.
func (p *Port) MTUCap() ib.MTU { return p.cold.cfg.MTUCap }

// VLCap is how many data lanes the port has.
func (p *Port) VLCap() uint8 { return p.cold.cfg.VLCap }

// State is the logical state.
func (p *Port) State() ib.PortState { return p.state }

// Phys is the physical state.
func (p *Port) Phys() ib.PhysState { return p.cold.phys }

// NeighborMTU is the largest payload that may be sent.
func (p *Port) NeighborMTU() ib.MTU { return p.cold.mtu }

func (p *Port) setNeighborMTU(m ib.MTU) {
	p.cold.mtu = m
	p.txWords = maxWords(m)
}

// OperVLs is how many data lanes are in use.
func (p *Port) OperVLs() uint8 { return p.cold.operVLs }

// setOperVLs sizes the lanes. Flow control starts anew on the next Init.
func (p *Port) setOperVLs(n uint8) {
	p.cold.operVLs = n
	p.oper = 1<<n - 1 | 1<<ib.VLMgmt
	if !p.cold.slSet {
		p.cold.sl2vl = DefaultSL2VL(n)
	}
	need := mtuBlocks(p.cold.cfg.MTUCap)
	for vl := range ib.NumVL {
		rx := p.rx(vl)
		switch {
		case vl == int(ib.VLMgmt):
			rx.size = uint16(p.cold.cfg.VL15Packets)
		case vl < int(n):
			rx.size = uint16(p.cold.cfg.BufferBlocks)
			// Credits are gathered into few FC packets, yet never so many that
			// the peer could lack credit for one packet while all of the
			// buffer is free.
			rx.owed = uint16(max(1, min(max(need, p.cold.cfg.BufferBlocks/4), p.cold.cfg.BufferBlocks-need+1)))
		default:
			rx.size, rx.owed = 0, 0
		}
	}
}

// SetLongCable gives each lane the largest receive buffer that credits can tell of, for a cable on which much is under
// way at once. The port must be down.
func (p *Port) SetLongCable() {
	p.cold.cfg.BufferBlocks = fcHalf
	p.setOperVLs(p.cold.operVLs)
}

// HOQLife is the code and the time of head-of-queue life.
func (p *Port) HOQLife() (code uint8, t ib.Time) { return p.cold.hoqCode, p.cold.hoqLife }

// SetHOQLife sets how long a packet may stand at the head of its queue, as
// PortInfo encodes it (IBA 18.2.5.4).
func (p *Port) SetHOQLife(code uint8) {
	p.cold.hoqCode, p.cold.hoqLife = code, ib.HOQLife(code)
	p.watch()
}

// SetSwitchLife sets how long a packet may stay in the switch.
func (p *Port) SetSwitchLife(t ib.Time) {
	p.cold.switchLife = t
	p.watch()
}

// watch notes whether there is anything to look after beyond sending.
func (p *Port) watch() {
	p.set(flagWatched, p.cold.hoqLife != ib.Never || p.cold.switchLife != ib.Never || p.cold.marks.on() ||
		p.flow != Credits)
}

// VLStallCount is how many expiries in a row stall a lane.
func (p *Port) VLStallCount() uint8 { return p.cold.stallCount }

// SetVLStallCount sets it; 0 never stalls.
func (p *Port) SetVLStallCount(n uint8) { p.cold.stallCount = n & 7 }

// SL2VL is the lane for a service level of packets that this port's own node
// sends; a switch maps by port pair instead.
func (p *Port) SL2VL(sl ib.SL) ib.VL { return p.cold.sl2vl[sl&15] }

// SetSL2VL writes the map. Until then it spreads the levels over the lanes in use.
func (p *Port) SetSL2VL(m [ib.NumSL]ib.VL) { p.cold.sl2vl, p.cold.slSet = m, true }

// DefaultSL2VL is the map of a port whose map nobody has written, so that every level has
// a lane however many there are.
func DefaultSL2VL(vls uint8) (m [ib.NumSL]ib.VL) {
	for sl := range m {
		m[sl] = ib.VL(sl % int(max(vls, 1)))
	}
	return m
}

// SL2VLMap reads the map.
func (p *Port) SL2VLMap() [ib.NumSL]ib.VL { return p.cold.sl2vl }

// IsOperVL reports whether vl is a lane of the link.
func (p *Port) IsOperVL(vl ib.VL) bool { return p.oper>>vl&1 != 0 }

// byteTime is Rate().ByteTime with the last answer kept: most packets of a
// flow have one size.
func (p *Port) byteTime(n uint16) ib.Time {
	if n != p.lastBytes {
		p.lastBytes = n
		p.lastDur = ib.Never
		if p.mbps != 0 {
			bytes := ib.Time(n)
			if p.flow != Credits {
				bytes += EthernetExtra
			}
			p.lastDur = (bytes*8_000_000 + ib.Time(p.mbps) - 1) / ib.Time(p.mbps)
		}
	}
	return p.lastDur
}
