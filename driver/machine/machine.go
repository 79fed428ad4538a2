package machine

import (
	"fmt"
	"math/rand/v2"

	"softib/driver/endpoint"
	"softib/driver/sim"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/topo"
)

// Config is what a machine is made of besides the fabric.
type Config struct {
	Seed uint64
	// Direct is how many of a hundred ways lead from ring to ring; the others are switched.
	Direct int
	// Habits are how the programs look for completions, one a host.
	Habits []Habit
	// Stalls is how many steps of a process there are, on average, between two after which it stands still; 0: it never
	// does. StallMax is how long it does so at most.
	Stalls   int
	StallMax ib.Time
	// Renews is how long a way lasts, on average, before the fabric gives it another generation; 0: for ever.
	Renews ib.Time
	// Reorder is how many packets of a queue pair adapters keep that came before their turn; see hca.Config.
	Reorder int
	// CNP: who sent a marked packet that is not acknowledged is told by a packet of its own; see hca.Config.
	CNP bool
	// RoCE makes them adapters of Ethernet.
	RoCE hca.RoCE
	// Until is when all of this ends, so that the load can.
	Until ib.Time
}

// Habit is how a program looks for completions.
type Habit uint8

// Habits.
const (
	Polls   Habit = iota // tightly, and less and less tightly while nothing comes
	Rarely               // now and then, and never asks to be woken
	Sleeps               // arms its queues, looks once more and sleeps
	Spins                // looks for a while before it sleeps
	Fetches              // tightly, where C code looks: completions are moved there
	NumHabit
)

var habitNames = [NumHabit]string{"polls", "rarely", "sleeps", "spins", "fetches"}

func (h Habit) String() string { return habitNames[h] }

// How long things take on the machine.
const (
	turnTime = 400 * ib.Nanosecond // a turn of an attendant, a look of a program
	wakeTime = 8 * ib.Microsecond  // on average, until a woken thread runs
	goneTime = 50 * ib.Microsecond // until peers learn that a process is no more
	rareTime = 60 * ib.Microsecond // between the looks of one who looks rarely
	slowest  = 2 * ib.Millisecond  // the longest time between two looks
	spinning = 60                  // looks before one who spins sleeps
	napEvery = 16                  // looks in vain before one who fetches sleeps
)

// Timers of the machine among the simulation's: the kind, the host, and for a way its slot.
const (
	timerMine = 0x7F << 56
	timerTop  = 0xFF << 56
	timerKind = 0xFF << 48
)

const (
	doAttend uint64 = iota << 48
	doLook
	doGone
	doRenew
	doFeed
	doPort
	doWatch
	doChore
	doAwait
)

// Machine is a fabric with its programs.
type Machine struct {
	*sim.Sim
	cfg   Config
	rng   *rand.Rand
	procs []*process
	hash  uint64
	// Neglected says which packets nobody has looked at for long, although their process ran.
	Neglected []string
	// Early says which packets were taken for lost before their time.
	Early []string
	rests bool   // programs look no more by themselves
	rings uint32 // that were made
	midst bool   // a process runs in the midst of a step of another
	count Count
	seen  []seen // by host
	// Of ways from ring to ring, by host and slot, what ports have counted; which do not lead so for now; and whose
	// cables, by place, are bad.
	settled [][]sent
	cuts    []cut
	bad     map[uint32]bool
}

// New makes processes on the hosts of a fabric that build makes: it gets the engines that the fabric shall drive in the
// hosts' places, and brings the fabric up.
func New(cfg Config, build func(newHost func(*topo.Node) sim.Host) (*sim.Sim, error)) (*Machine, error) {
	m := &Machine{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x3AC41E)), hash: cfg.Seed,
		bad: map[uint32]bool{}}
	var ports []*port
	s, err := build(func(n *topo.Node) sim.Host {
		p := newPort(n)
		ports = append(ports, p)
		return p
	})
	if err != nil {
		return nil, err
	}
	m.Sim = s
	for i, p := range ports {
		pr, err := m.newProcess(i, p)
		if err != nil {
			return nil, err
		}
		m.procs = append(m.procs, pr)
		m.seen = append(m.seen, seen{rings: map[*channel]*endpoint.Observer{}})
		m.Learn(i) // the fabric's own adapter stands for the host in management's eyes
	}
	m.settled = make([][]sent, len(m.procs))
	m.watch()
	return m, nil
}

const (
	// watchEvery is how often the machine looks for packets that nobody looks at, neglect how long that may last: an
	// attendant that leaves the work to a poller looks in every millisecond, and its first sleep is as long.
	watchEvery = 250 * ib.Microsecond
	neglect    = 1500 * ib.Microsecond
)

// watch finds packets that lie in rings whose receivers do not know of them: a wake-up was lost.
func (m *Machine) watch() {
	m.restore()
	for _, p := range m.procs {
		for _, c := range p.out {
			taken := c.out.Taken()
			if c.to == nil || p.dead || c.to.dead || !c.out.Unseen() || taken != c.taken || m.Now() < c.to.still {
				c.taken, c.since = taken, m.Now()
				continue
			}
			if m.Now()-c.since > neglect && !c.told {
				c.told = true
				m.Neglected = append(m.Neglected, fmt.Sprintf("packets from h%d lie in a ring since %v and h%d sleeps",
					p.host+1, c.since, c.to.host+1))
			}
		}
	}
	if !m.rests {
		m.at(m.Now()+watchEvery, doWatch, 0, 0)
	}
}

// Close gives the machine's memory back for the next one.
func (m *Machine) Close() {
	for _, p := range m.procs {
		p.end()
	}
}

// Engine is the adapter of a host's program.
func (m *Machine) Engine(host int) *hca.HCA { return m.procs[host].ep.Engine() }

// Endpoint is what drives it.
func (m *Machine) Endpoint(host int) *endpoint.Endpoint { return m.procs[host].ep.Endpoint }

// TraceHash is a digest of the history so far: that of the fabric, and every step of every process.
func (m *Machine) TraceHash() uint64 { return m.Sim.TraceHash() ^ m.hash }

func (m *Machine) mix(v uint64) {
	h := (m.hash ^ v) * 0x9E3779B97F4A7C15
	m.hash = h ^ h>>29
}

// Next runs until there is something for the load, as sim.Sim's does. A process that looks is something.
func (m *Machine) Next(until ib.Time) sim.Wake {
	for {
		w := m.Sim.Next(until)
		if w.Kind == sim.WakeHost {
			m.at(m.Now()+goneTime, doPort, w.Host, 0) // management has changed something
			continue
		}
		if w.Kind != sim.WakeTimer || w.ID&timerTop != timerMine {
			return w
		}
		host := int(w.ID & 0xFFFF)
		p := m.procs[host]
		switch w.ID & timerKind {
		case doAttend:
			p.attend()
		case doLook:
			if p.look() {
				return sim.Wake{Kind: sim.WakeHost, Host: host}
			}
		case doGone:
			p.mournAll()
		case doFeed:
			p.port.feed()
		case doPort:
			p.port.tell()
		case doChore:
			p.chore()
		case doAwait:
			p.await()
		case doWatch:
			m.watch()
		case doRenew:
			slot := int(w.ID >> 16 & 0xFFFFFFFF)
			m.settle(p, slot) // the next way may be another
			p.renew(slot)
		}
	}
}

// at has something done at a time for a host.
func (m *Machine) at(t ib.Time, what uint64, host, arg int) {
	m.Sim.At(t, timerMine|what|uint64(arg)<<16|uint64(host))
}

// by has a step of a host done at a time, unless one of its kind is planned before, which *planned says.
func (m *Machine) by(planned *ib.Time, t ib.Time, what uint64, host int) {
	if t < *planned {
		*planned = t
		m.at(t, what, host, 0)
	}
}

// newID is a ring's number.
func (m *Machine) newID() uint32 {
	m.rings++
	return m.rings
}

// around is a random time whose mean is about d.
func (m *Machine) around(d ib.Time) ib.Time { return d/4 + ib.Time(m.rng.Int64N(int64(d)*3/2)) }

// troubled reports whether things still go wrong.
func (m *Machine) troubled() bool { return m.Now() < m.cfg.Until }

// Still reports whether a host's program does nothing at this moment; when it does again, Next reports the host.
func (m *Machine) Still(host int) bool {
	p := m.procs[host]
	if m.Now() >= p.still {
		return false
	}
	p.lookLater(p.still - m.Now())
	return true
}

// StandStill has a host's process do nothing until a time, whatever comes to it. With the present time it goes on.
func (m *Machine) StandStill(host int, until ib.Time) {
	p := m.procs[host]
	p.still, p.lastStill = until, until
	p.attendLater(until - m.Now() + turnTime)
	for range p.chores {
		m.at(until, doChore, host, 0) // those that wait until a later time find nothing then
	}
}

// Stalled reports whether a host's program stood still at some time since t, or was short of room.
func (m *Machine) Stalled(host int, since ib.Time) bool { return m.procs[host].lastStill >= since }

// Wake tells the machine that the load has posted work to a host.
func (m *Machine) Wake(host int) {
	p := m.procs[host]
	if p.dead {
		return
	}
	if p.rings() {
		p.step(func() {
			p.ep.Enter()
			p.ep.Leave()
		})
	}
	p.lookAgain()
}

// Rest says that programs have nothing more to wait for, so that everything can come to rest.
func (m *Machine) Rest() { m.rests = true }

// Kill ends a process, as it is.
func (m *Machine) Kill(host int) {
	p := m.procs[host]
	if p.dead {
		return
	}
	p.dead = true
	for _, c := range p.out {
		endpoint.Revoke(c.mem)
	}
	for _, q := range m.procs {
		for _, c := range q.out {
			if c.to == p {
				endpoint.Revoke(c.mem)
			}
		}
	}
	p.port.revoke()
	m.at(m.Now()+goneTime, doGone, host, 0)
}
