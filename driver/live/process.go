package live

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"softib/driver/endpoint"
	"softib/node/agent"
	"softib/node/hca"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// Errors of Attach.
var (
	// ErrNotAHost is matched when a process wants onto something that has no queue pairs.
	ErrNotAHost = errors.New("not a host")
	// ErrBlocks is matched when an adapter has no queue pair numbers left for another process.
	ErrBlocks = errors.New("no queue pair numbers left")
)

// Process is a program on a host, in a process of its own: the engine of its queue pairs runs there. The fabric
// finds its packets' ways, hands out the rings that they go through, and counts them at every port that they pass.
type Process struct {
	f     *Fabric
	host  *Host
	block uint16
	pid   int
	probe uint64

	PageFD, SlotsFD int // what the process shares with the fabric; it and its peers get copies
	page            *endpoint.Page
	slots           *endpoint.Slots
	pageMem         []byte
	slotsMem        []byte
	program

	// Guarded by the fabric's lock.
	routes   map[endpoint.Key]*procRoute
	free     []int // slots to use again
	nextSlot int   // 0 is for packets that go nowhere for want of slots
	out      map[chanKey]*Channel
	in       []*Channel
	ended    bool

	mu    sync.Mutex // guards what is below; taken after all others
	notes []Note
	bell  chan struct{}
}

// Note is something that a process has to be told.
type Note struct {
	// Incoming is a ring to receive from, Gone one whose other end is no more.
	Incoming, Gone *Channel
	// Port is a port that has changed, Rejoin one whose manager wants clients to register again.
	Port, Rejoin ib.PortNum
}

// Channel is a ring from one process to another, or to or from the fabric itself, where the way is switched.
type Channel struct {
	ID       uint32
	f        *Fabric
	fd       int        // its memory
	from, to *Process   // nil is the fabric
	port     ib.PortNum // of the receiver; of the sender if the fabric receives
	inlet    *inlet     // in that case
	key      chanKey
	head     []byte
	told     bool // the sender knows it
	given    bool // the receiver knows it
	left     bool // it has ended, and only its memory is kept
}

// End is one end of a channel, as its process has to know it. The descriptors are copies, the caller's to close.
type End struct {
	// Ring is the channel's memory, Page that of who is at the other end.
	Ring, Page int
	// For the receiver: the port that the channel leads to, the sender's process and its probe.
	Port  ib.PortNum
	PID   int
	Probe uint64
}

// Sender is the end that sends; false if the channel is no more.
func (c *Channel) Sender() (End, bool) { return c.end(c.to) }

// Receiver is the end that receives. It is there once also for a channel whose sender has ended meanwhile: what that
// has sent is on its way.
func (c *Channel) Receiver() (End, bool) {
	e, ok := c.end(c.from)
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.given = true
	c.bury()
	return e, ok
}

func (c *Channel) end(other *Process) (End, bool) {
	f := c.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.head == nil && !c.left {
		return End{}, false
	}
	if c.left {
		other = c.to // the sender's page is no more, and nobody there needs to be woken
	}
	// Nobody reads or writes the fabric's own memory, so that it has nothing to probe.
	e, page := End{Port: c.port, PID: daemon}, f.pageFD()
	if other != nil {
		e.PID, e.Probe, page = other.pid, other.probe, other.PageFD
	}
	if c.left {
		e.PID, e.Probe = 0, 0
	}
	var err error
	if e.Ring, err = unix.FcntlInt(uintptr(c.fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return End{}, false
	}
	if e.Page, err = unix.FcntlInt(uintptr(page), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		unix.Close(e.Ring)
		return End{}, false
	}
	return e, true
}

type chanKey struct {
	to   *Process
	port ib.PortNum
	vl   ib.VL
}

// procRoute is a way of a process's packets, and its slot.
type procRoute struct {
	rt          *route
	slot        int
	gen         uint32
	chans       []*Channel
	pkts, words uint64 // of the slot, that are in the route's counters
	// Where the process has been sending to, since it last asked: rings of others, or the plane.
	direct []*Channel
	inlet  *inlet
}

// Resolved is what a process is told about a key.
type Resolved struct {
	Slot  int
	Gen   uint32
	Chans []*Channel
	// New are those of them that the process has not been told of before.
	New []*Channel
}

// Caller is a process that wants to attach.
type Caller struct {
	PID int
	// Probe is the address of a byte that peers may try to read; 0 if there is none.
	Probe uint64
	// Library is the release of its library, as it says.
	Library string
}

// Attach lets a process take part as a program of a host.
func (f *Fabric) Attach(name string, c Caller) (*Process, error) {
	h, err := f.Host(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotAHost, err)
	}
	p := &Process{f: f, host: h, pid: c.PID, probe: c.Probe, routes: map[endpoint.Key]*procRoute{},
		out: map[chanKey]*Channel{}, nextSlot: 1, bell: make(chan struct{}, 1)}
	if p.PageFD, p.pageMem, err = endpoint.NewMemory("page", endpoint.PageBytes); err != nil {
		return nil, err
	}
	if p.SlotsFD, p.slotsMem, err = endpoint.NewMemory("slots", endpoint.SlotsBytes); err != nil {
		p.release()
		return nil, err
	}
	if p.page, err = endpoint.NewPage(p.pageMem); err == nil {
		p.slots, err = endpoint.NewSlots(p.slotsMem)
	}
	if err == nil {
		err = p.openLedger(c)
	}
	if err != nil {
		p.release()
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed.Load() {
		p.release()
		return nil, ErrClosed
	}
	if p.block, err = h.takeBlock(); err != nil {
		p.release()
		return nil, err
	}
	h.procs = append(h.procs, p)
	h.totals.attached = true
	f.procs = append(f.procs, p)
	f.renewWays(h) // packets for its numbers have somewhere to go now
	f.watchBursts()
	return p, nil
}

// takeBlock finds a block of queue pair numbers. Blocks rest as long as they can before they come back, so that packets
// of the dead do not meet the living.
func (h *Host) takeBlock() (uint16, error) {
	for range endpoint.NumBlocks {
		h.lastBlock++
		if h.lastBlock >= endpoint.NumBlocks {
			h.lastBlock = 1
		}
		if h.process(h.lastBlock) == nil {
			return h.lastBlock, nil
		}
	}
	return 0, fmt.Errorf("live: %s has %d programs: %w", h.Name(), len(h.procs), ErrBlocks)
}

// process finds the process that owns a block.
func (h *Host) process(block uint16) *Process {
	for _, p := range h.procs {
		if p.block == block {
			return p
		}
	}
	return nil
}

// Block is the process's share of the queue pair numbers.
func (p *Process) Block() uint16 { return p.block }

// PID is the process's number.
func (p *Process) PID() int { return p.pid }

// Host is where the process is.
func (p *Process) Host() *Host { return p.host }

// Processes are the programs that are attached.
func (f *Fabric) Processes() []*Process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.procs)
}

// Bell rings when there is a Note.
func (p *Process) Bell() <-chan struct{} { return p.bell }

// PollNote is the oldest note.
func (p *Process) PollNote() (Note, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.notes) == 0 {
		return Note{}, false
	}
	n := p.notes[0]
	p.notes = p.notes[1:]
	return n, true
}

func (p *Process) tell(n Note) {
	p.mu.Lock()
	if n.Port == 0 || !slices.Contains(p.notes, n) {
		p.notes = append(p.notes, n)
	}
	p.mu.Unlock()
	select {
	case p.bell <- struct{}{}:
	default:
	}
}

// tellProcesses passes news of a port on.
func (h *Host) tellProcesses(e hca.Event) {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	for _, p := range h.procs {
		if e.Type == hca.EventClientReregister {
			p.tell(Note{Rejoin: e.Port})
		} else {
			p.tell(Note{Port: e.Port})
		}
	}
}

// Port is a port of the process's adapter as it is now.
func (p *Process) Port(n ib.PortNum) (hca.Port, mad.PortInfo) {
	info, _ := p.f.PortInfo(topo.PortRef{Node: p.host.node.Index, Port: n})
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	port := *p.host.eng.Port(n)
	port.GIDs = slices.Clone(port.GIDs)
	port.PKeys = slices.Clone(port.PKeys)
	return port, info
}

// Violated counts a packet with a wrong key that came to the process at the adapter's port, and has its agent tell the
// manager.
func (p *Process) Violated(v agent.Notice) {
	p.host.mu.Lock()
	p.host.eng.HandleViolation(v)
	p.host.mu.Unlock()
	p.f.mu.Lock()
	p.f.stir(p.host.node.Index)
	p.f.mu.Unlock()
}

// Resolve finds the way for a key, as the tables have it now. What the process counts in the slot goes that way until
// the slot's generation changes.
func (p *Process) Resolve(k endpoint.Key) (Resolved, error) {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.ended || f.closed.Load() {
		return Resolved{}, ErrClosed
	}
	if int(k.Port) >= len(p.host.ports) || k.Port == 0 {
		return Resolved{}, fmt.Errorf("live: %s has no port %d", p.host.Name(), k.Port)
	}
	pr := p.routes[k]
	if pr == nil {
		slot, err := p.takeSlot()
		if err != nil {
			return p.nowhere(), err
		}
		pr = &procRoute{slot: slot}
		pr.pkts, pr.words = p.slots.Sent(slot)
		p.routes[k] = pr
	} else {
		p.settle(pr)
		p.foldBursts()
	}
	rt, chans, err := p.walk(k)
	if err == nil && !rt.switched && pr.inlet != nil {
		// What it sends next must not overtake what it has sent.
		f.plane.awaitFlight(p, pr.inlet, k)
		if p.ended || f.closed.Load() {
			return Resolved{}, ErrClosed
		}
		rt, chans, err = p.walk(k)
	}
	if err != nil {
		return Resolved{}, err
	}
	if rt.switched {
		pr.inlet = chans[0].inlet
		pr.inlet.follow(f.plane, pr.direct)
		pr.direct = nil
	} else {
		pr.direct, pr.inlet = chans, nil
	}
	pr.rt, pr.chans = rt, chans
	pr.gen = p.slots.Renew(pr.slot)
	r := Resolved{Slot: pr.slot, Gen: pr.gen, Chans: slices.Clone(chans)}
	for _, c := range chans {
		if !c.told {
			c.told = true
			r.New = append(r.New, c)
		}
	}
	return r, nil
}

// nowhere is the way of packets that cannot be given one for want of something, such as descriptors. It lasts a moment:
// then the process asks again.
func (p *Process) nowhere() Resolved {
	time.AfterFunc(nowhereLasts, func() {
		p.f.mu.Lock()
		defer p.f.mu.Unlock()
		if !p.ended {
			p.slots.Renew(0)
		}
	})
	return Resolved{Slot: 0, Gen: p.slots.Gen(0)}
}

const nowhereLasts = 100 * time.Millisecond

func (p *Process) takeSlot() (int, error) {
	if n := len(p.free); n > 0 {
		s := p.free[n-1]
		p.free = p.free[:n-1]
		return s, nil
	}
	if p.nextSlot == endpoint.NumSlots {
		// Ways that lead nowhere are the first to go.
		for k, pr := range p.routes {
			if len(pr.chans) == 0 {
				p.settle(pr)
				p.slots.Renew(pr.slot)
				delete(p.routes, k)
				return pr.slot, nil
			}
		}
		return 0, fmt.Errorf("live: a process on %s sends to %d destinations: %w", p.host.Name(), endpoint.NumSlots,
			ErrBlocks)
	}
	p.nextSlot++
	return p.nextSlot - 1, nil
}

// walk follows the tables for a key and finds or makes the channels at its end. The fabric's lock is held.
func (p *Process) walk(k endpoint.Key) (*route, []*Channel, error) {
	rt := &route{key: routeKey{k.Port, k.DLID, k.SL, k.PKey}, epoch: p.f.epoch.Load()}
	w := walker{f: p.f, key: rt.key, route: rt, dry: true}
	from := p.host.ports[k.Port]
	local := p.host.eng.Port(k.Port)
	var ends []wayEnd
	switch {
	case !slices.Contains(local.PKeys, k.PKey):
		// An adapter sends with keys that it has (IBA 10.9.3). The process says which, and it may not have heard yet
		// that a manager has taken this one away, or not want to.
		rt.lose(from, link.PKeyOut)
	case local.LID != 0 && !k.DLID.IsMulticast() && k.DLID>>local.LMC == local.LID>>local.LMC:
		// Within the adapter; no link sees it.
		if from.link.State() == ib.PortActive {
			ends = []wayEnd{{from, 0}}
		}
	default:
		w.aim()
		w.depart(nil, from)
		ends = w.found
		if k.DLID.IsMulticast() {
			ends = append(ends, wayEnd{from, 0}) // members on the sender's own host
		}
		if len(ends) == 0 && rt.lost == nil {
			rt.lose(from, link.NoMember)
		}
	}
	var chans []*Channel
	if rt.passesSwitched() {
		// The fabric takes the packets at the first port, whatever becomes of them behind it. Only those that never
		// leave the host are none of its business.
		rt.switched = true
		ends = slices.DeleteFunc(ends, func(e wayEnd) bool { return e.port != from })
		c, err := p.channel(chanKey{nil, k.Port, rt.hops[0].vl})
		if err != nil {
			return nil, nil, err
		}
		chans = append(chans, c)
	}
	for _, e := range ends {
		for _, to := range e.port.host.procs {
			if to == p || k.Block != to.block && !k.DLID.IsMulticast() {
				continue
			}
			c, err := p.channel(chanKey{to, e.port.num, e.vl})
			if err != nil {
				return nil, nil, err
			}
			chans = append(chans, c)
		}
	}
	return rt, chans, nil
}

// wayEnd is where a walk comes to an adapter.
type wayEnd struct {
	port *portState
	vl   ib.VL
}

// channel is the ring to a process, made when first needed.
func (p *Process) channel(k chanKey) (*Channel, error) {
	if c := p.out[k]; c != nil {
		return c, nil
	}
	fd, mem, err := endpoint.NewMemory("ring", endpoint.RingBytes)
	if err != nil {
		return nil, err
	}
	p.f.channels++
	c := &Channel{ID: p.f.channels, f: p.f, fd: fd, from: p, to: k.to, port: k.port, key: k, head: mem}
	if k.to == nil {
		if err := p.f.plane.addInlet(c, p.host.ports[k.port]); err != nil {
			c.close()
			return nil, err
		}
		p.out[k] = c
		return c, nil
	}
	p.out[k] = c
	k.to.in = append(k.to.in, c)
	k.to.tell(Note{Incoming: c})
	return c, nil
}

// close gives back what the fabric holds of a channel.
func (c *Channel) close() {
	endpoint.Revoke(c.head)
	for _, p := range [...]*Process{c.from, c.to} {
		if p != nil {
			p.page.Knock()
		} else {
			c.f.plane.knock()
		}
	}
	endpoint.Unmap(c.head)
	c.head = nil
	c.left = true
	if c.given || c.to == nil || c.to.ended {
		c.bury()
	}
}

// bury closes what was kept of a channel for its receiver, who has not heard of it before its sender ended.
func (c *Channel) bury() {
	if c.left {
		c.left = false
		unix.Close(c.fd)
	}
}

// settle adds what a process has counted to the route's ports. The fabric's lock is held.
func (p *Process) settle(pr *procRoute) {
	pkts, words := p.slots.Sent(pr.slot)
	n := pkts - pr.pkts
	if n == 0 || pr.rt == nil {
		return
	}
	pr.rt.pkts, pr.rt.words = n, words-pr.words
	pr.pkts, pr.words = pkts, words
	if pr.rt.switched {
		return // every port has counted them itself
	}
	pr.rt.attribute()
	pr.rt.countLost(n)
}

// settleProcesses does so for all. The fabric's lock is held.
func (f *Fabric) settleProcesses() {
	for _, p := range f.procs {
		for _, pr := range p.routes {
			p.settle(pr)
		}
	}
}

// renewWays makes every process ask anew for its ways to a host and to groups.
func (f *Fabric) renewWays(h *Host) {
	for _, p := range f.procs {
		for k, pr := range p.routes {
			to := k.DLID.IsMulticast() || p.host == h
			if !to && pr.rt != nil && len(pr.rt.hops) > 0 {
				to = pr.rt.hops[len(pr.rt.hops)-1].p.host == h
			}
			if to {
				p.settle(pr)
				p.slots.Renew(pr.slot)
			}
		}
	}
}

// usher walks the processes' ways again after something has changed, and tells those whose way is another now.
func (f *Fabric) usher() {
	defer f.wg.Done()
	for {
		select {
		case <-f.closing:
			return
		case <-f.usherBell:
		}
		f.mu.Lock()
		procs := slices.Clone(f.procs)
		f.mu.Unlock()
		for _, p := range procs {
			f.mu.Lock()
			if !p.ended {
				p.walkAgain()
			}
			f.mu.Unlock()
		}
	}
}

// walkAgain makes sure of all ways of a process. The fabric's lock is held.
func (p *Process) walkAgain() {
	epoch := p.f.epoch.Load()
	p.foldBursts()
	for k, pr := range p.routes {
		if pr.rt == nil || pr.rt.epoch == epoch {
			continue
		}
		p.settle(pr)
		rt, chans, err := p.walk(k)
		if err != nil || !slices.Equal(chans, pr.chans) {
			if err != nil || rt.switched == pr.rt.switched {
				pr.rt = rt
			} // else what it sends until it asks goes the old way, and counts there
			pr.chans = nil
			p.slots.Renew(pr.slot)
			// Whoever waits for room in a ring may wait in vain.
			p.page.Knock()
			continue
		}
		pr.rt = rt
	}
}

// Close ends a process's part: its peers' packets to it vanish from now on.
func (p *Process) Close() {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.ended {
		return
	}
	for _, pr := range p.routes {
		p.settle(pr)
	}
	p.foldBursts()
	p.ended = true
	p.end()
	f.procs = slices.DeleteFunc(f.procs, func(o *Process) bool { return o == p })
	p.host.procs = slices.DeleteFunc(p.host.procs, func(o *Process) bool { return o == p })
	f.renewWays(p.host)
	for _, c := range p.out {
		if c.to == nil {
			c.from = nil
			f.plane.orphan(c)
			continue
		}
		c.to.in = slices.DeleteFunc(c.to.in, func(o *Channel) bool { return o == c })
		c.close()
		c.to.tell(Note{Gone: c})
	}
	for _, c := range p.in {
		if c.from == nil {
			f.plane.dropOutlet(c)
			c.close()
			continue
		}
		delete(c.from.out, c.key)
		for _, pr := range c.from.routes {
			pr.chans = slices.DeleteFunc(pr.chans, func(o *Channel) bool { return o == c })
		}
		c.close()
		c.from.tell(Note{Gone: c})
	}
	p.mu.Lock()
	for _, n := range p.notes {
		if n.Incoming != nil {
			n.Incoming.bury() // it will not be asked for any more
		}
	}
	p.notes = nil
	p.mu.Unlock()
	p.out, p.in, p.routes = nil, nil, nil
	p.release()
}

// release gives the process's memory back.
func (p *Process) release() {
	endpoint.Unmap(p.pageMem)
	endpoint.Unmap(p.slotsMem)
	endpoint.Unmap(p.ledgerMem)
	p.pageMem, p.slotsMem, p.ledgerMem = nil, nil, nil
	for _, fd := range []int{p.PageFD, p.SlotsFD, p.LedgerFD} {
		if fd > 0 {
			unix.Close(fd)
		}
	}
	p.PageFD, p.SlotsFD, p.LedgerFD = -1, -1, -1
}
