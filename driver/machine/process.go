package machine

import (
	"slices"
	"sync"
	"unsafe"

	"softib/driver/endpoint"
	"softib/driver/sim"
	"softib/node/agent"
	"softib/node/hca"
	"softib/proto/ib"
)

// process is a program with its endpoint.
type process struct {
	m        *Machine
	host     int
	ep       *endpoint.Member
	page     *endpoint.Page
	slots    *endpoint.Slots
	slotsMem []byte
	chores   []func() // that its endpoint has put off
	port     *port    // where it meets the simulated fabric
	keys     []endpoint.Key
	direct   map[endpoint.Key]bool // how they go
	out      []*channel

	habit     Habit
	attendAt  ib.Time // when the attendant's next turn is; Never if it sleeps
	lookAt    ib.Time // when the program looks next
	still     ib.Time // it does nothing before
	lastStill ib.Time
	dead      bool
	employed  bool
	awake     bool // the attendant has its turn: who wakes it now finds nobody asleep
	empties   int  // looks in a row that found nothing
	found     bool
	armed     bool    // it sleeps until an event comes
	event     bool    // and one has come since the program last looked
	awaitAt   ib.Time // when the thread that waits for it in the library has its next turn; Never if it sleeps
	asleep    bool    // that sleeps
	dozed     bool    // and not for the first time

	events []hca.Event
	lists  map[*hca.CQ]*readyList
	staged []staged
	calls  bool // the program has called a verb since it was last seen to

	// For watching over timers: when the endpoint last did something, how queue pairs waited then, and what its engine
	// had counted.
	stepped                  ib.Time
	waits                    []ackWatch
	sent, received, timeouts uint64
}

// channel is a ring to another process, or to the fabric (to is nil).
type channel struct {
	id  uint32
	to  *process
	sl  ib.SL
	mem []byte
	out *endpoint.Out
	// What the machine saw there: how many packets were taken, since when no more, and whether it has told.
	taken uint32
	since ib.Time
	told  bool
}

// block is the share of queue pair numbers of a host's only process.
const block = 1

func (m *Machine) newProcess(host int, at *port) (*process, error) {
	p := &process{m: m, host: host, port: at, attendAt: ib.Never, lookAt: ib.Never, awaitAt: ib.Never,
		lastStill: -ib.Second,
		habit:     m.cfg.Habits[host%len(m.cfg.Habits)], lists: map[*hca.CQ]*readyList{},
		direct: map[endpoint.Key]bool{}}
	var err error
	if p.page, err = endpoint.NewPage(aligned(endpoint.PageBytes)); err != nil {
		return nil, err
	}
	p.page.OnWake(p.wakes)
	p.slotsMem = takeSlots()
	if p.slots, err = endpoint.NewSlots(p.slotsMem); err != nil {
		return nil, err
	}
	n := m.HostNode(host)
	cfg := hca.Config{NodeGUID: n.GUID, Ports: n.NumPorts(), KeySeed: uint8(host), Reorder: m.cfg.Reorder,
		ReorderTime: sim.ReorderTime, CNP: m.cfg.CNP, RoCE: m.cfg.RoCE}
	for num := 1; num < len(n.Ports); num++ {
		cfg.PortGUID = append(cfg.PortGUID, n.PortGUID(ib.PortNum(num)))
	}
	p.ep, err = endpoint.NewMember(endpoint.Config{Name: n.Name, Engine: cfg, Block: block, Router: p, Machine: p},
		endpoint.Share{Page: p.page, Slots: p.slots})
	if err != nil {
		return nil, err
	}
	p.ep.Stage(nil, p.postStaged)
	p.ep.ForgetEvents()
	p.ep.NotifyEvents(func(e hca.Event) {
		p.events = append(p.events, e)
		p.lookLater(m.around(wakeTime)) // a thread of the program waits for them
	})
	return p, at.join(p)
}

// Now is the machine's time.
func (p *process) Now() ib.Time { return p.m.Now() }

// Employ makes the attendant run.
func (p *process) Employ() {
	p.employed = true
	p.attendLater(p.m.around(wakeTime))
}

// Later has a chore done by a thread of the process, in its turn.
func (p *process) Later(f func()) {
	p.chores = append(p.chores, f)
	p.m.at(p.m.Now()+p.m.around(wakeTime), doChore, p.host, 0)
}

// chore does the oldest chore.
func (p *process) chore() {
	switch {
	case p.dead, len(p.chores) == 0:
	case p.rests():
		p.m.at(p.still, doChore, p.host, 0)
	default:
		f := p.chores[0]
		p.chores = p.chores[1:]
		p.step(f)
	}
}

// Meanwhile lets the attendant of another process have a turn now and then, which would have come soon.
func (p *process) Meanwhile() {
	m := p.m
	if m.midst || !m.troubled() || m.rng.IntN(8) != 0 {
		return
	}
	if q := m.procs[m.rng.IntN(len(m.procs))]; q != p && q.attendAt != ib.Never {
		m.midst = true
		q.attendAt = m.Now()
		q.attend()
		m.midst = false
	}
}

// woken is the kernel's wake-up of the attendant.
func (p *process) woken() {
	if p.employed && !p.awake {
		p.attendLater(p.m.around(wakeTime))
	}
}

func (p *process) attendLater(d ib.Time) { p.later(&p.attendAt, doAttend, d) }

// later plans a step of the process, unless an earlier one of its kind is planned.
func (p *process) later(at *ib.Time, what uint64, d ib.Time) {
	if !p.dead {
		p.m.by(at, p.m.Now()+d, what, p.host)
	}
}

// rests reports whether the process does nothing now; it is asked at each step, before it is done.
func (p *process) rests() bool {
	m := p.m
	if p.dead {
		return true
	}
	if m.Now() >= p.still && m.cfg.Stalls > 0 && m.troubled() && m.rng.IntN(m.cfg.Stalls) == 0 {
		// Mostly a slice of somebody else's, now and then a debugger.
		d := ib.Time(m.rng.Int64N(int64(min(m.cfg.StallMax, 400*ib.Microsecond))))
		if m.rng.IntN(8) == 0 {
			d = ib.Time(m.rng.Int64N(int64(m.cfg.StallMax)))
		}
		p.still = m.Now() + d
		p.lastStill = p.still
	}
	return m.Now() < p.still
}

// attend is a turn of the attendant.
func (p *process) attend() {
	if p.m.Now() != p.attendAt {
		return // another turn has taken this one's place
	}
	p.attendAt = ib.Never
	if p.rests() {
		if !p.dead {
			p.attendLater(p.still - p.m.Now())
		}
		return
	}
	var post endpoint.Post
	var sleep ib.Time
	p.awake = true
	p.step(func() { post, sleep, _ = p.ep.AttendOnce() })
	p.awake = false
	p.m.mix(uint64(p.m.Now())<<8 ^ uint64(p.host)<<4 ^ uint64(post))
	switch {
	case sleep <= 0 || post != endpoint.Watching && p.ep.Woken():
		p.attendLater(turnTime)
	case sleep < ib.Never:
		p.attendLater(sleep)
	}
}

// look is a step of the program. It reports whether the load is to look at the host.
func (p *process) look() bool {
	if p.m.Now() != p.lookAt {
		return false
	}
	p.lookAt = ib.Never
	if p.rests() {
		if !p.dead {
			p.lookLater(p.still - p.m.Now())
		}
		return false
	}
	p.armed, p.event = false, false
	if p.habit == Fetches {
		p.rise()
	}
	if p.found {
		p.empties = 0
	} else {
		p.empties++
	}
	p.found = false
	return true
}

func (p *process) lookLater(d ib.Time) { p.later(&p.lookAt, doLook, d) }

// lookAgain plans the program's next look.
func (p *process) lookAgain() {
	if p.found {
		p.empties = 0
	}
	switch {
	case p.armed || p.m.rests || p.naps():
	case p.habit == Rarely:
		p.lookLater(min(p.m.around(rareTime)<<min(p.empties/8, 5), slowest))
	default:
		p.lookLater(min(p.m.around(turnTime)<<min(p.empties/64, 20), slowest))
	}
}

// sleepy reports whether the program is about to sleep.
func (p *process) sleepy() bool {
	return p.habit == Sleeps || p.habit == Spins && p.empties >= spinning
}

// Route finds a way for the endpoint's packets.
func (p *process) Route(k endpoint.Key) (*endpoint.Route, error) {
	slot := slices.Index(p.keys, k)
	if slot < 0 {
		slot = len(p.keys)
		p.keys = append(p.keys, k)
	}
	to := p.m.processAt(k.DLID)
	var c *channel
	var err error
	switch {
	case to == p && !k.DLID.IsMulticast(), to != nil && to.dead:
		// Within the adapter, to a block that no process has, or to nobody any more.
		return p.ep.Way(k, slot, p.slots.Gen(slot), nil)
	case to != nil && !k.DLID.IsMulticast() && p.isDirect(k, to):
		c, err = p.channel(to, k.SL)
	default:
		c, err = p.channel(nil, k.SL)
	}
	if err != nil {
		return nil, err
	}
	if p.m.cfg.Renews > 0 && p.m.troubled() {
		p.m.at(p.m.Now()+p.m.around(p.m.cfg.Renews), doRenew, p.host, slot)
	}
	return p.ep.Way(k, slot, p.slots.Gen(slot), []uint32{c.id})
}

// isDirect decides whether a way leads from ring to ring. One that does may become a switched one, once nothing is in
// the ring: packets of a way do not overtake each other.
func (p *process) isDirect(k endpoint.Key, to *process) bool {
	was, known := p.direct[k]
	if known && !was {
		return false
	}
	for _, c := range p.out {
		if known && c.to == to && c.sl == k.SL && !endpoint.Drained(c.mem) {
			return true
		}
	}
	p.direct[k] = p.m.rng.IntN(100) < p.m.cfg.Direct
	return p.direct[k]
}

// renew ends a way: the endpoint asks for another with its next packet.
func (p *process) renew(slot int) {
	p.slots.Renew(slot)
	p.page.Knock()
}

// Violated is told of a packet with a wrong key; agents are not part of this.
func (p *process) Violated(agent.Notice) {}

func (m *Machine) processAt(lid ib.LID) *process {
	for _, p := range m.procs {
		for n := 1; n < len(m.HostNode(p.host).Ports); n++ {
			if port := p.ep.Engine().Port(ib.PortNum(n)); port.LID != 0 && port.LID>>port.LMC == lid>>port.LMC {
				return p
			}
		}
	}
	return nil
}

// channel is the ring to a process, or to the fabric, made when first needed.
func (p *process) channel(to *process, sl ib.SL) (*channel, error) {
	for _, c := range p.out {
		if c.to == to && c.sl == sl {
			return c, nil
		}
	}
	c := &channel{id: p.m.newID(), to: to, sl: sl, mem: takeRing(), since: p.m.Now()}
	peer, pid := p.port.page, outsider
	if to != nil {
		peer, pid = to.page, self
	}
	var err error
	if c.out, err = endpoint.NewOut(c.mem, peer, pid); err != nil {
		return nil, err
	}
	if to == nil {
		err = p.port.takeFrom(c.mem, p.page)
	} else {
		var in *endpoint.In
		if in, err = endpoint.NewIn(c.mem, p.page, self, 1); err == nil {
			to.ep.Incoming(c.id, in, func() {})
		}
	}
	if err != nil {
		return nil, err
	}
	p.out = append(p.out, c)
	p.ep.Outgoing(c.id, c.out, func() {})
	return c, nil
}

// mournAll has all others drop their rings to and from a process that is no more.
func (p *process) mournAll() {
	for _, q := range p.m.procs {
		if q == p || q.dead {
			continue
		}
		for _, c := range q.out {
			if c.to == p {
				q.ep.Gone(c.id)
			}
		}
		q.out = slices.DeleteFunc(q.out, func(c *channel) bool { return c.to == p })
		for _, c := range p.out {
			if c.to == q {
				q.ep.Gone(c.id)
			}
		}
	}
}

// end gives back what can be used again.
func (p *process) end() {
	_ = p.ep.Close()
	for _, c := range p.out {
		giveRing(c.mem)
	}
	for _, o := range p.port.out {
		giveRing(o.mem)
	}
	clear(p.slotsMem)
	slotsPool.Put(&p.slotsMem)
}

// Rings and slots are large, and machines are made by the thousand.
var (
	ringPool  = pool(endpoint.RingBytes)
	slotsPool = pool(endpoint.SlotsBytes)
)

func pool(size int) *sync.Pool {
	return &sync.Pool{New: func() any {
		mem := aligned(size)
		return &mem
	}}
}

func aligned(n int) []byte {
	mem := make([]byte, n+4096)
	at := -uintptr(unsafe.Pointer(unsafe.SliceData(mem))) & 4095
	return mem[at : at+uintptr(n) : at+uintptr(n)]
}
