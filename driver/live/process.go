package live

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"softib/driver/endpoint"
	"softib/internal/descriptors"
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

// Process is a program on a host: the engine of its queue pairs runs in its process, which may be this one. The fabric
// finds its packets' ways, hands out the rings that they go through, and counts them at every port that they pass.
type Process struct {
	f     *Fabric
	host  *Host
	block uint16

	FDs   []int    // page, slots and ledger, which another process shares with the fabric; it and its peers get copies
	mem   [][]byte // the same
	share endpoint.Share
	own   *endpoint.Local // slots and ledger of a program in this process; nil for others
	// origin is what it may send, for receivers of other users; nil before there is one.
	origin *endpoint.SharedOrigin
	program

	// Guarded by the fabric's lock.
	routes   map[endpoint.Key]*procRoute
	nextSlot int // 0 is for packets that go nowhere for want of slots
	out      map[chanKey]*Channel
	in       []*Channel
	kept     []*Channel // that have ended before it heard of them
	lines    map[endpoint.Key]*Line
	linesIn  []*Line
	socket   lineSocket
	piped    int // rings that have had pipes, at either end
	ended    bool
	news     []portNews // by port
	// Of a program in this process: its device, whether it is among the fabric's recent, and what other processes wake
	// it by.
	device  *Device
	recent  bool
	door    *endpoint.Page
	leaving atomic.Bool

	mu    sync.Mutex // guards what is below; taken after all others
	notes []Note
	bell  chan struct{}
}

// portNews is how often a port has changed that the process is to be told of, and what it has said that it knows. In
// between the process judges packets by a table of keys that is not the port's any more. What the port refuses is kept
// from it for so long, and refused says that something was: else a datagram of a former partner could come in long
// after a manager has acknowledged that it will not.
type portNews struct {
	told, heard uint32
	refused     bool
}

// refuses reports whether a port does not take packets with a key, where the process may not know that.
func (p *Process) refuses(n ib.PortNum, key ib.PKey) bool {
	s := &p.news[n]
	if s.told == s.heard || slices.ContainsFunc(p.host.eng.Port(n).PKeys, key.Matches) {
		return false
	}
	s.refused = true
	return true
}

// Heard is for what the process says that it knows of a port. What was kept from it goes there again, for it to refuse
// and to count.
func (p *Process) Heard(n ib.PortNum, change uint32) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if int(n) >= len(p.news) || p.ended {
		return
	}
	s := &p.news[n]
	if s.heard = change; s.heard == s.told && s.refused {
		s.refused = false
		p.f.renewWays(p.host)
	}
}

// Note is something that a process has to be told.
type Note struct {
	// Incoming is a ring to receive from, Gone one whose other end is no more.
	Incoming, Gone *Channel
	// Line is a line to receive by, GoneLine one that is no more.
	Line, GoneLine *Line
	// Piped is an incoming ring that has pipes now.
	Piped *Channel
	// Port is a port that has changed, Rejoin one whose manager wants clients to register again.
	Port, Rejoin ib.PortNum
}

// procRoute is a way of a process's packets, and its slot.
type procRoute struct {
	p           *Process
	key         endpoint.Key
	rt          *route
	slot        int
	chans       []*Channel
	end         *Host  // that has it among its ways
	pkts, words uint64 // of the slot, that are in the route's counters
	// Where the process has been sending to, since it last asked: rings of others, or the plane.
	direct []*Channel
	inlet  *inlet
	line   *Line
	// again is after how long a line is asked for again that was not to be had, and askAt when; 0 if one was.
	again time.Duration
	askAt time.Time
}

// Resolved is what a process is told about a key.
type Resolved struct {
	Slot int
	Gen  uint32
	// Rings are the channels that its packets go into, New those of them that it has not been told of before.
	Rings []uint32
	New   []*Channel
	// Line is the line that they go by, if there is one that it has not been told of.
	Line *Line
}

// daemon is the process that the fabric is in, and owner its user.
var (
	daemon = os.Getpid()
	owner  = uint32(os.Geteuid())
)

// Caller is a process that wants to attach.
type Caller struct {
	PID int
	UID uint32
	// Library is the release of its library, as it says.
	Library string
	// unlisted: statistics do not know of it.
	unlisted bool
}

// Attach lets a process take part as a program of a host.
func (f *Fabric) Attach(name string, c Caller) (*Process, error) {
	h, err := f.Host(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotAHost, err)
	}
	return h.attach(c, (*Process).allocateShared)
}

func (h *Host) attach(c Caller, allocate func(*Process) error) (*Process, error) {
	p := &Process{f: h.f, host: h, routes: map[endpoint.Key]*procRoute{}, out: map[chanKey]*Channel{},
		lines:    map[endpoint.Key]*Line{},
		nextSlot: 1, bell: make(chan struct{}, 1), program: newProgram(c), news: make([]portNews, len(h.ports))}
	err := allocate(p)
	if err == nil {
		err = p.join()
	}
	if err != nil {
		p.release()
		return nil, err
	}
	return p, nil
}

// allocateShared makes the memory that the fabric shares with another process.
func (p *Process) allocateShared() (err error) {
	p.share, p.FDs, p.mem, err = endpoint.MakeShare()
	return err
}

// allocate makes the same for a program in this process. Where nobody is to know of it, it has no ledger.
func (p *Process) allocate() (err error) {
	if p.own, err = endpoint.NewLocal(endpoint.SlotsBytes + endpoint.LedgerBytes); err != nil {
		return err
	}
	p.share.Page = endpoint.NewLocalPage()
	if p.share.Slots, err = endpoint.NewSlots(p.own.Mem); err == nil && !p.unlisted {
		p.share.Ledger, err = endpoint.NewLedger(p.own.Mem[endpoint.SlotsBytes:])
	}
	return err
}

// isLocal reports whether the program is in this process.
func (p *Process) isLocal() bool { return p.own != nil }

// join makes the process one of its host's.
func (p *Process) join() (err error) {
	f, h := p.f, p.host
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed.Load() {
		return ErrClosed
	}
	if p.block, err = h.takeBlock(); err != nil {
		return err
	}
	h.procs = append(h.procs, p)
	f.procs = append(f.procs, p)
	f.renewWays(h) // packets for its numbers have somewhere to go now
	if !p.unlisted {
		h.attached = true
		f.bursts.looking = f.bursts.looking || f.employ(f.lookAtBursts)
	}
	return nil
}

// takeBlock finds a block of queue pair numbers. Blocks rest as long as they can before they come back, so that packets
// of the dead do not meet the living.
func (h *Host) takeBlock() (uint16, error) {
	for range endpoint.NumBlocks {
		h.lastBlock = h.lastBlock%(endpoint.NumBlocks-1) + 1 // 0 is the fabric's
		if !slices.ContainsFunc(h.procs, func(p *Process) bool { return p.block == h.lastBlock }) {
			return h.lastBlock, nil
		}
	}
	return 0, fmt.Errorf("live: %s has %d programs: %w", h.Name(), len(h.procs), ErrBlocks)
}

// Block is the process's share of the queue pair numbers.
func (p *Process) Block() uint16 { return p.block }

// Host is where the process is.
func (p *Process) Host() *Host { return p.host }

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

// tell has the process told something. The fabric's lock is held.
func (p *Process) tell(n Note) {
	if p.device != nil {
		p.device.hear(n)
		return
	}
	p.mu.Lock()
	if n.Port == 0 || !slices.Contains(p.notes, n) {
		p.notes = append(p.notes, n)
	}
	p.mu.Unlock()
	ring(p.bell)
}

// Port is a port of the process's adapter as it is now, and after how many changes.
func (p *Process) Port(n ib.PortNum) (is hca.Port, info mad.PortInfo, change uint32) {
	info, _ = p.f.PortInfo(topo.PortRef{Node: p.host.topo.Index, Port: n})
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	return p.host.written(n), info, p.news[n].told
}

// Violated counts a packet with a wrong key that came to the process at the adapter's port, and has its agent tell the
// manager.
func (p *Process) Violated(v agent.Notice) {
	p.f.mu.Lock()
	p.host.eng.HandleViolation(v)
	p.f.stir(&p.host.node)
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
		pr = &procRoute{p: p, key: k, slot: slot}
		pr.pkts, pr.words = p.share.Slots.Sent(slot)
		p.routes[k] = pr
	} else {
		pr.settle()
		p.foldBursts()
	}
	rt, chans, err := p.walk(k)
	if err == nil && rt.switched && (pr.again == 0 || time.Now().After(pr.askAt)) {
		if out, ok := p.leavesBy(rt); ok {
			if p.layLine(pr, out); p.ended || f.closed.Load() {
				return Resolved{}, ErrClosed
			}
			rt, chans, err = p.walk(k)
		}
	}
	if err == nil && !rt.switched && pr.inlet != nil {
		// What it sends next must not overtake what it has sent.
		f.plane.awaitFlight(p, pr.inlet, k)
		if p.ended || f.closed.Load() {
			return Resolved{}, ErrClosed
		}
		rt, chans, err = p.walk(k)
	}
	if err != nil {
		return p.nowhere(), err
	}
	if rt.switched {
		pr.inlet = chans[0].inlet
		pr.inlet.follow(f.plane, pr.direct)
		pr.direct = nil
	} else {
		pr.direct, pr.inlet = chans, nil
	}
	pr.lead(rt)
	pr.chans, pr.line = chans, rt.line
	if p.isLocal() && !p.recent {
		p.recent = true
		f.recent = append(f.recent, p)
	}
	r := Resolved{Slot: pr.slot, Gen: p.share.Slots.Renew(pr.slot)}
	for _, c := range chans {
		r.Rings = append(r.Rings, c.ID)
		if !c.told {
			c.told = true
			r.New = append(r.New, c)
		}
	}
	if l := rt.line; l != nil {
		r.Rings = append(r.Rings, l.ID)
		if !l.told {
			l.told, r.Line = true, l
		}
	}
	return r, nil
}

// lead makes a route that of a way.
func (pr *procRoute) lead(rt *route) {
	pr.unlead()
	pr.rt = rt
	if pr.key.DLID.IsMulticast() {
		pr.p.f.groupWays[pr] = true
	} else if pr.end = rt.end(); pr.end != nil {
		pr.end.ways[pr] = true
	}
}

// unlead is for a way that is no more.
func (pr *procRoute) unlead() {
	delete(pr.p.f.groupWays, pr)
	if pr.end != nil {
		delete(pr.end.ways, pr)
		pr.end = nil
	}
}

// renew makes the process ask anew for a way. What it has sent by it is counted.
func (pr *procRoute) renew() {
	pr.settle()
	pr.p.share.Slots.Renew(pr.slot)
}

// nowhere is the way of packets that cannot be given one for want of something, such as descriptors. It lasts a moment:
// then the process asks again.
func (p *Process) nowhere() Resolved {
	time.AfterFunc(nowhereLasts, func() {
		p.f.mu.Lock()
		defer p.f.mu.Unlock()
		if !p.ended {
			p.share.Slots.Renew(0)
		}
	})
	return Resolved{Slot: 0, Gen: p.share.Slots.Gen(0)}
}

const nowhereLasts = 100 * time.Millisecond

func (p *Process) takeSlot() (int, error) {
	if p.nextSlot < endpoint.NumSlots {
		p.nextSlot++
		return p.nextSlot - 1, nil
	}
	// Ways that lead nowhere are the first to go.
	for k, pr := range p.routes {
		if len(pr.chans) == 0 && pr.line == nil {
			pr.renew()
			pr.unlead()
			delete(p.routes, k)
			return pr.slot, nil
		}
	}
	return 0, fmt.Errorf("live: a process on %s sends to %d destinations: %w", p.host.Name(), endpoint.NumSlots,
		ErrBlocks)
}

// walk follows the tables for a key and finds or makes the channels at its end. The fabric's lock is held.
func (p *Process) walk(k endpoint.Key) (*route, []*Channel, error) {
	rt := &route{key: k, epoch: p.f.epoch.Load()}
	from := p.host.ports[k.Port]
	local := p.host.eng.Port(k.Port)
	var ends []hop // where it comes to adapters
	switch {
	case !slices.Contains(local.PKeys, k.PKey):
		// An adapter sends with keys that it has (IBA 10.9.3). The process says which, and it may not have heard yet
		// that a manager has taken this one away, or not want to.
		rt.lose(from, link.PKeyOut)
	case local.LID != 0 && !k.DLID.IsMulticast() && k.DLID>>local.LMC == local.LID>>local.LMC:
		// Within the adapter; no link sees it.
		if from.link.State() == ib.PortActive {
			ends = []hop{{p: from}}
		}
	default:
		rt, ends = p.f.resolve(from, k)
		if k.DLID.IsMulticast() {
			ends = append(ends, hop{p: from}) // members on the sender's own host
		}
	}
	if out, ok := p.leavesBy(rt); ok {
		if l := p.lines[k]; l != nil && l.Cable == out.p.outside.cable && l.VL == out.vl {
			rt.line = l
			return rt, nil, nil
		}
	}
	var chans []*Channel
	if rt.passesSwitched() || p.meetsStrangers(k, ends, from) {
		// The fabric takes the packets at the first port, whatever becomes of them behind it. Only those that never
		// leave the host are none of its business.
		if err := p.f.startPlane(); err != nil {
			return nil, nil, err
		}
		rt.switched = true
		ends = slices.DeleteFunc(ends, func(e hop) bool { return e.p != from })
		c, err := p.channel(chanKey{nil, k.Port, rt.hops[0].vl})
		if err != nil {
			return nil, nil, err
		}
		chans = append(chans, c)
	}
	for _, e := range ends {
		for _, to := range e.p.host.procs {
			if to == p || k.Block != to.block && !k.DLID.IsMulticast() {
				continue
			}
			if to.refuses(e.p.num, k.PKey) || p.isStranger(to, e.p, k.PKey) {
				rt.lose(e.p, link.PKeyIn)
				continue
			}
			c, err := p.channel(chanKey{to, e.p.num, e.vl})
			if err != nil {
				return nil, nil, err
			}
			chans = append(chans, c)
		}
	}
	return rt, chans, nil
}

// isStranger reports whether a process behind a port is another user's and does not take packets with a key.
func (p *Process) isStranger(to *Process, at *portState, key ib.PKey) bool {
	return p.UID != to.UID && !slices.ContainsFunc(at.host.eng.Port(at.num).PKeys, key.Matches)
}

// meetsStrangers reports whether packets would come to another user's process that does not take them. The two share no
// memory: the fabric carries the packets to their end, where they are refused and counted like all others.
func (p *Process) meetsStrangers(k endpoint.Key, ends []hop, from *portState) bool {
	return slices.ContainsFunc(ends, func(e hop) bool {
		return e.p != from && slices.ContainsFunc(e.p.host.procs, func(to *Process) bool {
			return (k.Block == to.block || k.DLID.IsMulticast()) && p.isStranger(to, e.p, k.PKey)
		})
	})
}

// shareOrigin makes what receivers of other users check the process's packets by. The fabric's lock is held.
func (p *Process) shareOrigin() error {
	if p.origin != nil {
		return nil
	}
	if !p.isLocal() {
		if err := descriptors.Programs.Take(p.holder(), 1); err != nil {
			return fmt.Errorf("live: %w", err)
		}
	}
	o, err := endpoint.ShareOrigin(len(p.host.ports) - 1)
	if err != nil {
		if !p.isLocal() {
			descriptors.Programs.Give(p.holder(), 1)
		}
		return err
	}
	p.origin = o
	p.tellOrigin()
	return nil
}

// dupOrigin is a copy of its descriptor. A process that has ended has none: what it sent to another user, who had not
// heard of it, is lost. The fabric's lock is held.
func (p *Process) dupOrigin() (int, error) {
	if p.origin == nil {
		return -1, ErrClosed
	}
	return dup(p.origin.FD)
}

// check has a ring's packets compared with what the process may send. The fabric's lock is held.
func (p *Process) check(in *endpoint.In) error {
	if p.origin == nil {
		return ErrClosed
	}
	r, err := endpoint.ReadOrigin(p.origin.FD)
	if err == nil {
		in.Check(r)
	}
	return err
}

// tellOrigin is for ports that have changed. The fabric's lock is held.
func (p *Process) tellOrigin() {
	if p.origin == nil {
		return
	}
	o := endpoint.Origin{Block: p.block}
	for n := 1; n < len(p.host.ports); n++ {
		o.Ports = append(o.Ports, p.host.ports[n].origin())
	}
	p.origin.Set(o)
}

// settle adds what a process has counted to the route's ports. The fabric's lock is held.
func (pr *procRoute) settle() {
	pkts, words := pr.p.share.Slots.Sent(pr.slot)
	n := pkts - pr.pkts
	if n == 0 || pr.rt == nil {
		return
	}
	if !pr.rt.switched { // else every port has counted them itself
		pr.rt.count(n, words-pr.words)
	}
	if pr.rt.line != nil {
		pr.p.f.cfg.Outside.Lines.Sent(pr.rt.line, n, words-pr.words)
	}
	pr.pkts, pr.words = pkts, words
}

// settleProcesses does so for all. The fabric's lock is held.
func (f *Fabric) settleProcesses() {
	for _, p := range f.procs {
		for _, pr := range p.routes {
			pr.settle()
		}
	}
}

// renewWays makes every process ask anew for its ways to a host and to groups.
func (f *Fabric) renewWays(h *Host) {
	for pr := range h.ways {
		pr.renew()
	}
	for pr := range f.groupWays {
		pr.renew()
	}
	for _, p := range h.procs {
		for _, pr := range p.routes {
			pr.renew()
		}
	}
}

// renewLocal makes programs of this process ask anew for all of their ways: what management does holds for the next
// packet that they send. The fabric's lock is held.
func (f *Fabric) renewLocal() {
	for _, p := range f.recent {
		p.recent = false
		for _, pr := range p.routes {
			p.share.Slots.Renew(pr.slot)
		}
	}
	clear(f.recent)
	f.recent = f.recent[:0]
}

// renewChanged walks the processes' ways again after something has changed, and tells those whose way is another now.
func (f *Fabric) renewChanged() {
	for {
		select {
		case <-f.closing:
			return
		case <-f.waysBell:
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

// RenewWays walks the ways of all attached programs again and returns when that is done: what has changed before the
// call holds for every packet that a program sends after it.
func (f *Fabric) RenewWays() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.walkAll()
}

// walkAll makes sure of all ways. The fabric's lock is held.
func (f *Fabric) walkAll() {
	for _, p := range f.procs {
		p.walkAgain()
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
		pr.settle()
		rt, chans, err := p.walk(k)
		same := err == nil && slices.Equal(chans, pr.chans) && rt.line == pr.line
		if err != nil {
			pr.unlead()
			pr.rt = nil
		} else if same || rt.switched == pr.rt.switched {
			pr.lead(rt)
		} // else what it sends until it asks goes the old way, and counts there
		if !same {
			pr.chans, pr.line = nil, nil
			p.share.Slots.Renew(pr.slot)
			p.share.Page.Knock() // whoever waits for room in a ring may wait in vain
		}
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
		pr.settle()
		pr.unlead()
	}
	p.endLines()
	p.foldBursts()
	p.ended = true
	if p.leaving.Store(true); p.door != nil {
		p.door.Knock()
	}
	if p.fold(); !p.unlisted {
		p.host.totals.Ended++
	}
	f.procs, f.recent, p.host.procs = without(f.procs, p), without(f.recent, p), without(p.host.procs, p)
	f.renewWays(p.host)
	for _, c := range p.out {
		if c.to == nil {
			f.plane.orphan(c)
			continue
		}
		c.to.in = without(c.to.in, c)
		if c.close(); c.given || c.left {
			c.to.tell(Note{Gone: c})
		}
	}
	for _, c := range p.in {
		if c.from == nil {
			f.plane.dropOutlet(c)
			c.close()
			continue
		}
		delete(c.from.out, c.chanKey)
		for _, pr := range c.from.routes {
			pr.chans = without(pr.chans, c)
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
	for _, mem := range p.mem {
		endpoint.Unmap(mem)
	}
	for _, fd := range p.FDs {
		unix.Close(fd)
	}
	p.FDs, p.mem = nil, nil
	if p.origin != nil {
		// Receivers that have not taken in yet what it sent last compare that with what held last.
		if p.origin.Close(); !p.isLocal() {
			descriptors.Programs.Give(p.holder(), 1)
		}
		p.origin = nil
	}
}
