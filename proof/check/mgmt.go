package check

import (
	"fmt"
	"math/rand/v2"

	"softib/driver/machine"
	"softib/driver/sim"
	"softib/fabric"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
	"softib/subnet/sm"
)

// Management is one history of a fabric and its subnet managers as data: managers that come, go
// and hand over, faults, and some traffic that must survive them.
type Management struct {
	Seed uint64
	// Topo is a generator's spec.
	Topo string
	VLs  uint8
	LMC  uint8
	// Engines is the chain of routing engines that all managers use.
	Engines string
	// Adaptive says how the managers have switches choose among ports.
	Adaptive route.Choice
	// AgentTime is how long an agent takes for a packet, JobTime how long a manager computes routes.
	AgentTime, JobTime ib.Time
	// What all managers are told.
	Window        int
	Timeout       ib.Time
	Retries       int
	SweepInterval ib.Time
	PollInterval  ib.Time
	PollRetries   int
	MKey          uint64
	MKeyProtect   uint8

	// Tenants is how many there are, 0 for none: the hosts take turns. Attacks are what hostile hosts do.
	Tenants int      `json:",omitempty"`
	Attacks []Attack `json:",omitempty"`

	// Turns: managers rule in turn, by an agreement that is none of theirs, and what they send says whose turn it is.
	Turns bool `json:",omitempty"`
	// Whole: they know what the subnet is when nothing is missing, and work ways out from that.
	Whole bool `json:",omitempty"`

	Managers []Ruler
	Faults   []MgmtFault
	Conns    []MgmtConn
}

// Ruler is a manager of the scenario: at most one runs at a host.
type Ruler struct {
	Host     int
	Priority uint8
	// At is when it starts, counted from when the first subnet is up; those with 0 bring it up.
	At ib.Time
	// Of managers that rule in turn: for how long the one before has stood still by then, how long after it that one
	// wakes, and how long it takes that one to hear that it rules no longer.
	Still, Wakes, Hears ib.Time `json:",omitempty"`
	// Writes: it stands still as soon as it has written so many tables from then on, if it does before it is followed.
	Writes int `json:",omitempty"`
}

// MgmtFaultKind sorts the faults of a Management.
type MgmtFaultKind uint8

// Kinds of fault.
const (
	LoseMADs    MgmtFaultKind = iota // cables harm management packets
	FlapCable                        // a cable is pulled and plugged in again
	PullCable                        // a cable is pulled for good
	RebootNode                       // a switch starts anew
	MuteNode                         // an agent does nothing for a while
	KillManager                      // a manager dies and comes back after a while
	NumMgmtFault
)

// MgmtFault is one thing that goes wrong. Times count from when the first subnet is up.
type MgmtFault struct {
	Kind    MgmtFaultKind
	At, For ib.Time
	Cable   int // of the graph's cables; AllCables
	Node    int // of the graph
	Ruler   int // of Managers
	// Forgets says that the manager comes back without what it had saved; Stays that it does not come back.
	Forgets, Stays bool
	Harm           fabric.Faults
}

func (f *MgmtFault) String() string {
	switch f.Kind {
	case FlapCable:
		return fmt.Sprintf("at %v cable %d is pulled for %v", f.At, f.Cable, f.For)
	case PullCable:
		return fmt.Sprintf("at %v cable %d is pulled for good", f.At, f.Cable)
	case RebootNode:
		return fmt.Sprintf("at %v node %d starts anew", f.At, f.Node)
	case MuteNode:
		return fmt.Sprintf("at %v the agent of node %d does nothing for %v", f.At, f.Node, f.For)
	case KillManager:
		how := fmt.Sprintf("and comes back after %v", f.For)
		switch {
		case f.Stays:
			how = "for good"
		case f.Forgets:
			how += " without its memory"
		}
		return fmt.Sprintf("at %v manager %d dies %s", f.At, f.Ruler, how)
	}
	return fmt.Sprintf("at %v cable %d for %v: management packets: drop %.3g corrupt %.3g duplicate %.3g delay "+
		"%.3g (%v)",
		f.At, f.Cable, f.For, f.Harm.Drop, f.Harm.Corrupt, f.Harm.Duplicate, f.Harm.Delay, f.Harm.DelayMax)
}

// MgmtConn is an RC connection on which messages are written, one after the other, as long as the
// scenario lasts.
type MgmtConn struct {
	From, To int // hosts
	Size     int // of each message
	Every    ib.Time
	// Patient: it tries again for longer than any outage that managers can mend. Otherwise it gives up after 17 ms, and
	// must never need to as long as no fault hits its path, nor the managers, nor several faults come at once: who is
	// cut off, dies, or has to start over while some way is closed for its tables to change leaves it closed for
	// longer.
	Patient bool
}

// Quiet is when the last fault is over, counted from when the first subnet is up.
func (sc *Management) Quiet() ib.Time {
	t := ib.Time(0)
	for i := range sc.Faults {
		t = max(t, sc.Faults[i].At+sc.Faults[i].For)
	}
	for i := range sc.Managers {
		t = max(t, sc.Managers[i].At+sc.Managers[i].Wakes+sc.Managers[i].Hears)
	}
	for i := range sc.Attacks {
		t = max(t, sc.Attacks[i].At+sc.Attacks[i].For)
	}
	return t
}

// Bound is how long the fabric may take to converge when nothing goes wrong any more: a standby may have to notice that
// its master is gone, and a manager may have met silent nodes so often that it pauses between sweeps (up to 32
// intervals), at each of which a request may be lost with all of its retries; and everybody is asked for everything.
func (sc *Management) Bound() ib.Time {
	request := sc.Timeout * ib.Time(sc.Retries+1)
	return 40*sc.SweepInterval + 4*sc.takeover() + 40*request + 10*sc.JobTime + sc.asking()
}

// asksPerNode is how much a manager asks for each node until it is content: a sweep some thirty times, and light sweeps
// take two of three turns from its last part.
const asksPerNode = 100

// asking is how long all questions take, each with the agents of all switches on its way, there and back.
func (sc *Management) asking() ib.Time {
	g := sc.graph()
	return ib.Time(asksPerNode*len(g.Nodes)*2*g.Diameter()/sc.Window) * sc.AgentTime
}

// takeover is how long a standby takes to notice that its master is gone.
func (sc *Management) takeover() ib.Time {
	return ib.Time(sc.PollRetries+1) * (sc.PollInterval + sc.Timeout*ib.Time(sc.Retries+1))
}

// longSweep is how long a sweep can take that meets silence everywhere.
func (sc *Management) longSweep() ib.Time { return 30 * sc.Timeout * ib.Time(sc.Retries+1) }

// config is what the manager k starts with.
func (sc *Management) config(k int, memory sm.Memory) sim.ManagerConfig {
	c := sim.ManagerConfig{JobTime: sc.JobTime, Config: sm.Config{
		Priority: sc.Managers[k].Priority, MKey: sc.MKey, MKeyProtect: sc.MKeyProtect, LMC: sc.LMC, Engines: sc.Engines,
		Adaptive: sc.Adaptive,
		Window:   sc.Window, Timeout: sc.Timeout, Retries: sc.Retries, SweepInterval: sc.SweepInterval,
		PollInterval: sc.PollInterval, PollRetries: sc.PollRetries, SubnetTimeout: trapTimeout,
		PacketLife: packetLife, HOQLife: packetLife, LeafHOQLife: packetLife, Memory: memory,
	}}
	sc.guardKeys(sc.Managers[k].Host, &c)
	sc.turn(k, &c)
	return c
}

// machine is the computer whose processes the hosts are. Their ways lead over the cables, whose tables are what it is
// about. They stand still for less than hasty connections bear with.
func (sc *Management) machine() machine.Config {
	rng := rand.New(rand.NewPCG(sc.Seed, 0x3AC4))
	c := machine.Config{Seed: sc.Seed, Until: ib.Never, Renews: [...]ib.Time{0, 200 * ib.Microsecond}[rng.IntN(2)],
		Stalls: [...]int{0, 100, 1000}[rng.IntN(3)], StallMax: ib.Millisecond}
	for range 8 {
		c.Habits = append(c.Habits, machine.Habit(rng.IntN(int(machine.NumHabit))))
	}
	return c
}

const (
	// trapTimeout makes an agent wait a millisecond between traps: 4.096 us * 2^8.
	trapTimeout = 8
	// packetLife is how long a packet may stay in a switch, and how long a manager waits for packets to be gone from
	// one: a millisecond.
	packetLife = 8
)

// promises reports whether all engines of the chain are free of credit loops.
func (sc *Management) promises() bool { return sc.Engines != "minhop" }

// graph builds the topology. A spec that DrawManagement makes is never wrong.
func (sc *Management) graph() *topo.Graph {
	g, err := topo.ParseSpec(sc.Topo)
	if err != nil {
		panic(err)
	}
	return g
}
