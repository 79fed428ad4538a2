package workload

import (
	"math/rand/v2"

	"softib/node/hca"
	"softib/proto/ib"
)

// Shape bounds what Generate draws.
type Shape struct {
	Hosts int
	Conns int // about how many
	Ops   int // about how many a flow
	Bytes int // of all payloads together, about
	// MTU is the largest that the fabric carries.
	MTU ib.MTU
	// Lossy says that packets may be lost: timers must run and be short.
	Lossy bool
	// Calm leaves out whatever makes an adapter drop a packet or send one
	// twice: misuse, late receives, short timers.
	Calm bool
	// Partitions gives hosts more than the default partition, and lets some conns
	// try to cross.
	Partitions bool
}

// Generate draws a load.
func Generate(rng *rand.Rand, sh Shape) Spec {
	g := &generator{Rand: rng, sh: sh}
	g.s = Spec{Seed: rng.Uint64(), Hosts: sh.Hosts}
	g.partitions()
	n := 1 + g.IntN(sh.Conns)
	g.left, g.share = sh.Bytes, sh.Bytes/(n+1)
	for id := range n {
		g.conn(id)
	}
	g.groups()
	if sh.Calm {
		g.roomForAll()
	}
	return g.s
}

type generator struct {
	*rand.Rand
	sh    Shape
	s     Spec
	left  int // bytes
	share int // bytes for one conn, about
}

// one reports true once in n times.
func (g *generator) one(n int) bool { return g.IntN(n) == 0 }

func (g *generator) partitions() {
	for h := range g.sh.Hosts {
		keys := []ib.PKey{ib.PKeyDefault}
		if g.sh.Partitions {
			// A partition of the even or the odd hosts, and one that host 0 is a full member
			// of and the others limited ones, who cannot talk among themselves.
			keys = append(keys, ib.PKeyFull|ib.PKey(0x10+h%2), 0x20)
			if h == 0 {
				keys[2] |= ib.PKeyFull
			}
		}
		g.s.PKeys = append(g.s.PKeys, keys)
	}
}

// conn draws a pair of queue pairs and what they send.
func (g *generator) conn(id int) {
	c := Conn{ID: id, Host: [2]int{g.IntN(g.sh.Hosts), g.IntN(g.sh.Hosts)}}
	if c.Host[0] == c.Host[1] && !g.one(8) {
		c.Host[1] = (c.Host[0] + 1 + g.IntN(g.sh.Hosts-1)) % g.sh.Hosts // few talk to themselves
	}
	c.Type = [...]hca.QPType{hca.RC, hca.RC, hca.RC, hca.RC, hca.UC, hca.UD, hca.UD, hca.XRCSend}[g.IntN(8)]
	c.MTU = ib.MTU256 + ib.MTU(g.IntN(int(g.sh.MTU-ib.MTU256)+1))
	for e := range c.PSN {
		c.PSN[e] = ib.PSN(g.Uint32()) & ib.PSNMask
		switch g.IntN(4) {
		case 0:
			c.PSN[e] = ib.PSN(0).Add(-1 - g.IntN(24)) // about to wrap
		case 1:
			c.PSN[e] = ib.PSNWindow - ib.PSN(g.IntN(24))
		}
		c.CQ[e] = g.IntN(cqPerHost)
	}
	c.SL = ib.SL(g.IntN(4))
	c.Global = g.one(4)
	c.SigAll = g.one(4)
	c.Early = (c.Type == hca.RC || c.Type == hca.XRCSend) && g.one(3)
	c.MaxRD = uint8(1 + g.IntN(8))
	g.timers(&c)
	if g.sh.Partitions && c.Host[0] != c.Host[1] {
		g.choosePartition(&c)
	}
	if c.Type == hca.RC && !g.sh.Calm && g.one(10) {
		c.NoAtomic = true
	}
	g.receivers(&c)
	g.flows(&c)
	c.Passive = len(c.Flows[1].Ops) == 0 && c.Type != hca.UD && g.one(2)
	g.s.Conns = append(g.s.Conns, c)
}

// timers draws how patient a conn is.
func (g *generator) timers(c *Conn) {
	switch {
	case g.sh.Calm:
		c.Timeout, c.Retry, c.RNRRetry, c.MinRNRTimer = uint8(13+g.IntN(3)), 7, 7, 1
	case g.sh.Lossy:
		c.Timeout, c.Retry = uint8(8+g.IntN(4)), uint8(1+g.IntN(7))
		if g.one(6) {
			c.Timeout = uint8(5 + g.IntN(3)) // runs out in vain when the fabric is busy
		}
	default:
		c.Timeout, c.Retry = uint8(8+g.IntN(5)), uint8(2+g.IntN(6))
	}
	if !g.sh.Calm {
		c.RNRRetry, c.MinRNRTimer = 7, uint8(1+g.IntN(10))
		if g.one(6) {
			c.RNRRetry = uint8(g.IntN(7))
		}
		if g.one(20) {
			c.Retry = 0
		}
	}
}

// choosePartition puts the ends of a conn into partitions, now and then into two
// that do not match.
func (g *generator) choosePartition(c *Conn) {
	k := uint16(g.IntN(3))
	c.PKeyIndex = [2]uint16{k, k}
	if c.Crosses(&g.s) && (g.sh.Calm || !g.one(4)) {
		c.PKeyIndex = [2]uint16{} // the default partition holds everybody
	}
}

// receivers draws how each end takes what the other sends.
func (g *generator) receivers(c *Conn) {
	late := func() ib.Time {
		if g.sh.Calm || !g.one(3) {
			return 0
		}
		return ib.Time(1+g.IntN(400)) * ib.Microsecond
	}
	for e := range c.Flows {
		f := &c.Flows[e]
		f.SendDepth = 2 + g.IntN(15)
		f.SendSGEs = 1 + g.IntN(4)
		f.RecvDepth = 1 + g.IntN(8)
		f.RecvSGEs = 1 + g.IntN(3)
		f.Late = late()
		f.ZeroBased = g.one(6)
	}
	for e := range c.Host {
		wantsXRC := c.Type == hca.XRCSend
		if wantsXRC && e == 0 || !wantsXRC && (c.Type == hca.UC || !g.one(3)) {
			continue
		}
		found := 0
		for i := range g.s.SRQs {
			if q := &g.s.SRQs[i]; q.Host == c.Host[e] && q.XRC == wantsXRC {
				found = i + 1
			}
		}
		if found == 0 {
			depth := 2 + g.IntN(12)
			g.s.SRQs = append(g.s.SRQs, SRQ{
				Host: c.Host[e], XRC: wantsXRC, Depth: depth, SGEs: 1 + g.IntN(3), Limit: g.IntN(depth), Late: late(),
			})
			found = len(g.s.SRQs)
		}
		c.SRQ[e] = found
	}
}

// size draws a message's length: often at the edges of packets.
func (g *generator) size(mtu int) int {
	n := 0
	switch g.IntN(10) {
	case 0:
	case 1, 2:
		n = 1 + g.IntN(16)
	case 3, 4, 5:
		n = mtu*(1+g.IntN(4)) + g.IntN(3) - 1
	case 6:
		n = g.IntN(64 << 10)
	default:
		n = g.IntN(3 * mtu)
	}
	n = min(n, max(g.left/4, 64), max(g.share/2, 64))
	g.left -= n
	return n
}

// flows draws what the ends of a conn send.
func (g *generator) flows(c *Conn) {
	max64 := 0
	both := c.Type != hca.XRCSend && g.one(2)
	d := &drawing{generator: g, c: c}
	for e := range c.Flows {
		f := &c.Flows[e]
		f.Slots, f.Cells = 1+g.IntN(4), 1+g.IntN(2)
		d.flow[e] = e == 0 || both
	}
	ops := 2 + g.IntN(g.sh.Ops)
	d.windows()
	for range ops {
		e := 0
		if both {
			e = g.IntN(2)
		}
		d.op(e)
	}
	if !g.sh.Calm && g.one(4) {
		e := 0
		if both {
			e = g.IntN(2)
		}
		d.misuse(e)
		for range g.IntN(4) { // to be flushed, or to show that nothing happened
			d.op(e)
		}
	}
	for e := range c.Flows {
		f := &c.Flows[e]
		for i := range f.Ops {
			o := &f.Ops[i]
			if o.Writes() || o.Code == hca.WRRDMARead {
				f.SlotSize = max(f.SlotSize, o.Size)
			}
			if o.Receives() && o.Code != hca.WRRDMAWriteImm && o.Misuse != TooLong {
				f.RecvSize = max(f.RecvSize, o.Size)
			}
			max64 = max(max64, f.RecvSize)
		}
		f.SlotSize = max((f.SlotSize+7)&^7, 16)
		if c.Type == hca.UD {
			f.RecvSize += 40
		}
		if g.one(2) {
			f.RecvSize += g.IntN(200)
		}
		f.RecvSize = max(f.RecvSize, 1)
		if n := c.SRQ[1-e]; n > 0 {
			q := &g.s.SRQs[n-1]
			q.BufSize = max(q.BufSize, f.RecvSize)
		}
	}
	// What is too long for a receive must be so for the largest of them.
	for e := range c.Flows {
		f := &c.Flows[e]
		for i := range f.Ops {
			if f.Ops[i].Misuse == TooLong {
				f.Ops[i].Size = tooLong
			}
		}
	}
}

// tooLong is longer than any other message, so that no receive has room for it.
const tooLong = 72 << 10

// drawing is a conn whose ops are being drawn.
type drawing struct {
	*generator
	c     *Conn
	flow  [2]bool
	n     [2]int
	read  [2]map[int]bool // slots that were read since the last fence
	bound [2][]int        // by flow: 1 + N of the bind that opened each window, 0 while closed
}

// add appends an op.
func (d *drawing) add(e int, o Op) *Op {
	f := &d.c.Flows[e]
	o.N = d.n[e]
	d.n[e]++
	if d.one(5) {
		o.Delay = ib.Time(d.IntN(60)) * ib.Microsecond
	}
	f.Ops = append(f.Ops, o)
	return &f.Ops[len(f.Ops)-1]
}

// windows opens memory windows at the ends of an RC conn.
func (d *drawing) windows() {
	if d.c.Type != hca.RC || !d.one(3) || !d.flow[1] {
		return
	}
	f := &d.c.Flows[0]
	for i := range 1 + d.IntN(min(2, f.Slots)) {
		f.Windows = append(f.Windows, hca.MWType1+hca.MWType(d.IntN(2)))
		d.bound[0] = append(d.bound[0], 0)
		d.bind(i, 0)
	}
}

// bind has end 1 open a window for flow 0.
func (d *drawing) bind(i, after int) {
	o := d.add(1, Op{Code: hca.WRBindMW, Window: i + 1, Slot: i, After: after, Flags: hca.SendSignaled})
	d.bound[0][i] = o.N + 1
}

// op draws an op of a flow.
func (d *drawing) op(e int) {
	f := &d.c.Flows[e]
	mtu := d.c.MTU.Bytes()
	o := Op{SGEs: 1 + d.IntN(f.SendSGEs), Slot: d.IntN(f.Slots), Cell: d.IntN(f.Cells)}
	if d.one(2) {
		o.Flags |= hca.SendSignaled
	}
	if d.one(6) {
		o.Flags |= hca.SendSolicited
	}
	switch d.c.Type {
	case hca.UD:
		o.Code = hca.WRSend
		o.Size = min(d.size(mtu), d.sh.MTU.Bytes())
		if o.Size < headerSize || d.one(2) {
			o.Code = hca.WRSendImm
		}
		if !d.sh.Calm && d.one(12) {
			o.Misuse = [...]Misuse{WrongQKey, WrongQPN, WrongLID}[d.IntN(3)]
		}
	case hca.UC:
		o.Code = [...]hca.WROpcode{hca.WRSend, hca.WRSendImm, hca.WRRDMAWrite, hca.WRRDMAWriteImm}[d.IntN(4)]
		o.Size = d.size(mtu)
		if o.Size < headerSize && o.Code == hca.WRSend {
			o.Code = hca.WRSendImm
		}
	default:
		o.Code = [...]hca.WROpcode{
			hca.WRSend, hca.WRSend, hca.WRSendImm, hca.WRRDMAWrite, hca.WRRDMAWrite, hca.WRRDMAWriteImm,
			hca.WRRDMARead, hca.WRRDMARead, hca.WRAtomicCmpSwap, hca.WRAtomicFetchAdd,
		}[d.IntN(10)]
		if o.Atomic() && d.c.NoAtomic {
			o.Code = hca.WRRDMARead
		}
		if o.Atomic() {
			o.Size = 8
			o.Shared = o.Code == hca.WRAtomicFetchAdd && d.one(2)
			break
		}
		o.Size = d.size(mtu)
		if len(d.bound[e]) > 0 && d.one(2) && d.throughWindow(e, &o) {
			return
		}
	}
	d.inline(&o)
	d.hazard(e, &o)
	o.Drain = !d.sh.Calm && d.one(40)
	d.add(e, o)
}

func (d *drawing) inline(o *Op) {
	if o.Size > 0 && o.Size <= maxInline && (o.Writes() || o.Receives()) && d.one(3) {
		o.Flags |= hca.SendInline
	}
}

// hazard fences a WRITE that could overtake the repetition of a READ of the same
// memory: without a fence either order is right (IBA table 79).
func (d *drawing) hazard(e int, o *Op) {
	if d.read[e] == nil {
		d.read[e] = map[int]bool{}
	}
	switch {
	case o.Code == hca.WRRDMARead:
		d.read[e][o.Slot] = true
	case o.Writes() && d.read[e][o.Slot]:
		o.Flags |= hca.SendFence
	case d.one(10):
		o.Flags |= hca.SendFence
	}
	if o.Flags&hca.SendFence != 0 {
		clear(d.read[e])
		if o.Code == hca.WRRDMARead {
			d.read[e][o.Slot] = true
		}
	}
}

// throughWindow lets an op use a window, or ends the window and opens it anew.
func (d *drawing) throughWindow(e int, o *Op) bool {
	i := d.IntN(len(d.bound[e]))
	open := d.bound[e][i]
	if open == 0 {
		return false
	}
	type2 := d.c.Flows[e].Windows[i] == hca.MWType2
	if d.one(4) {
		// The peer's flow did the bind; what ends the window waits for what used it.
		last := 0
		for k := range d.c.Flows[e].Ops {
			if u := &d.c.Flows[e].Ops[k]; u.Window == i+1 && u.After == open {
				last = u.N + 1
			}
		}
		switch {
		case type2 && d.one(2):
			// Fenced: a READ through the window may still be on its way.
			inv := d.add(e, Op{Code: hca.WRSendInv, Size: o.Size, SGEs: o.SGEs, Window: i + 1, After: open,
				Flags: hca.SendSignaled | hca.SendFence})
			clear(d.read[e])
			d.bind(i, inv.N+1)
		case last == 0:
			return false
		case type2:
			d.add(1-e, Op{Code: hca.WRLocalInv, Window: i + 1, After: last, Flags: hca.SendSignaled})
			b := d.add(1-e, Op{Code: hca.WRBindMW, Window: i + 1, Slot: i, Flags: hca.SendSignaled})
			d.bound[e][i] = b.N + 1
		default:
			d.bind(i, last)
		}
		return true
	}
	if !o.Writes() && o.Code != hca.WRRDMARead {
		return false
	}
	o.Window, o.After, o.Slot = i+1, open, i
	d.hazard(e, o)
	d.add(e, *o)
	return true
}

// misuse draws an op that is wrong.
func (d *drawing) misuse(e int) {
	o := Op{SGEs: 1, Flags: hca.SendSignaled, Size: 16 + d.IntN(600)}
	switch d.c.Type {
	case hca.UD:
		o.Code, o.Misuse = hca.WRSendImm, BadLKey
		d.add(e, o)
		return
	case hca.UC:
		o.Misuse = [...]Misuse{BadRKey, OutOfBounds, ForeignPD, NoAccess, BadLKey, KillQP}[d.IntN(6)]
		o.Code = hca.WRRDMAWrite
		d.add(e, o)
		return
	}
	o.Misuse = [...]Misuse{
		BadRKey, OutOfBounds, ForeignPD, NoAccess, StaleWindow, OtherWindow, QPAccess, BadInvKey, TooLong, BadLKey,
		DeregLocal, DeregRemote, KillQP,
	}[d.IntN(13)]
	if windows := len(d.c.Flows[1-e].Windows); windows > 0 && d.one(3) {
		d.add(e, Op{Code: hca.WRBindMW, Window: windows, Slot: windows - 1, Flags: hca.SendSignaled, Misuse: BadBind})
		return
	}
	o.Code = [...]hca.WROpcode{hca.WRRDMAWrite, hca.WRRDMAWriteImm, hca.WRRDMARead, hca.WRAtomicFetchAdd,
		hca.WRAtomicCmpSwap}[d.IntN(5)]
	if d.c.NoAtomic && o.Code >= hca.WRAtomicCmpSwap {
		o.Misuse = QPAccess
	}
	switch o.Misuse {
	case QPAccess:
		if !d.c.NoAtomic {
			o.Misuse = BadRKey
			break
		}
		o.Code = hca.WRAtomicFetchAdd
	case BadInvKey:
		o.Code = hca.WRSendInv
	case TooLong:
		o.Code = hca.WRSend
	case BadLKey, KillQP, DeregLocal:
		if o.Code >= hca.WRAtomicCmpSwap {
			o.Code = hca.WRRDMARead
		}
		if o.Misuse != BadLKey {
			o.Size = 4096 + d.IntN(8192)
		}
	case DeregRemote:
		if len(d.c.Flows[e].Windows) > 0 {
			o.Misuse = KillQP
		}
		o.Size = 4096 + d.IntN(8192)
	case StaleWindow, OtherWindow:
		for i := range d.c.Flows[e].Windows {
			o.Window = i + 1
		}
		if o.Code >= hca.WRAtomicCmpSwap {
			o.Code = hca.WRRDMAWrite
		}
		o.After = 0
	}
	if o.Code == hca.WRAtomicFetchAdd || o.Code == hca.WRAtomicCmpSwap {
		o.Size = 8
	}
	o.Slot = d.c.Flows[e].Slots - 1
	d.hazard(e, &o)
	d.add(e, o)
}

// groups joins ends of datagram conns of the default partition to multicast
// groups, and lets them send there.
func (g *generator) groups() {
	var ends []EndRef
	for i := range g.s.Conns {
		if c := &g.s.Conns[i]; c.Type == hca.UD && c.PKeyIndex == [2]uint16{} {
			ends = append(ends, EndRef{c.ID, 0}, EndRef{c.ID, 1})
		}
	}
	if len(ends) < 2 {
		return
	}
	for k := range 1 + g.IntN(2) {
		m := Group{MLID: ib.LIDMulticastMin + ib.LID(k), MGID: ib.GID{0: 0xFF, 1: 0x12, 15: byte(k + 1)}}
		size := 0
		for _, e := range ends {
			if g.one(2) {
				continue
			}
			m.Members = append(m.Members, e)
		}
		for range 1 + g.IntN(6) {
			from := ends[g.IntN(len(ends))]
			f := &g.s.Conns[from.Conn].Flows[from.End]
			o := Op{N: len(f.Ops), Code: hca.WRSendImm, Size: min(g.size(g.sh.MTU.Bytes()), g.sh.MTU.Bytes()), SGEs: 1,
				Group: k + 1}
			size = max(size, o.Size)
			f.Ops = append(f.Ops, o)
		}
		for _, e := range m.Members {
			c := &g.s.Conns[e.Conn]
			in := &c.Flows[1-e.End]
			in.RecvSize = max(in.RecvSize, size+40)
			if n := c.SRQ[e.End]; n > 0 {
				g.s.SRQs[n-1].BufSize = max(g.s.SRQs[n-1].BufSize, in.RecvSize)
			}
		}
		g.s.Groups = append(g.s.Groups, m)
	}
}

// roomForAll makes the receive queues as deep as messages will come.
func (g *generator) roomForAll() {
	need := make([]int, len(g.s.SRQs))
	for i := range g.s.Conns {
		c := &g.s.Conns[i]
		for e := range c.Flows {
			f, n := &c.Flows[e], 1
			for k := range f.Ops {
				if f.Ops[k].Receives() && f.Ops[k].Group == 0 {
					n++
				}
			}
			for k := range g.s.Groups {
				for _, m := range g.s.Groups[k].Members {
					if m == (EndRef{c.ID, 1 - e}) {
						n += g.groupOps(k)
					}
				}
			}
			f.RecvDepth = n
			if q := c.SRQ[1-e]; q > 0 {
				need[q-1] += n
			}
		}
	}
	for i := range need {
		g.s.SRQs[i].Depth = max(g.s.SRQs[i].Depth, need[i])
	}
}

func (g *generator) groupOps(k int) int {
	n := 0
	for i := range g.s.Conns {
		for e := range g.s.Conns[i].Flows {
			for _, o := range g.s.Conns[i].Flows[e].Ops {
				if o.Group == k+1 {
					n++
				}
			}
		}
	}
	return n
}
