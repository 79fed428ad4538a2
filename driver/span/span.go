package span

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"softib/driver/live"
	"softib/internal/patience"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/wire"
)

// Machines is how this machine speaks to others.
type Machines interface {
	// Send takes a copy of a message to the far end of a cable, and Flush puts all that was sent on its way, in order.
	// Send never blocks.
	Send(machine string, cable int, msg []byte)
	Flush()
	// Call asks a machine, and waits for its answer.
	Call(ctx context.Context, machine, method string, in []byte) (out []byte, err error)
	// Socket makes a UDP socket for a program, says how other machines reach it, and how long its datagrams may be.
	Socket() (fd int, at netip.AddrPort, mtu int, err error)
	// Passes reports whether datagrams of such sockets reach those of another machine; it may try, and wait.
	Passes(ctx context.Context, machine string) bool
}

// Config is what a machine's part of a fabric is made of.
type Config struct {
	Graph *topo.Graph
	// Here is this machine's name, and Where says, for each node of the graph, which machine has it; nil if this one
	// has all. Then it needs no Machines.
	Here     string
	Where    []string
	Machines Machines
	Live     live.Config
}

// Fabric is a fabric of which this machine has a part. What it says is of all of it.
type Fabric struct {
	*live.Fabric
	cfg    Config
	others []string         // the machines but for this one, in order of their names
	cables map[string][]int // that lead from here to a machine
	at     []topo.Cable     // by number
	relays map[string]bool  // machines that have switches

	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	changes atomic.Uint64 // of what other machines say
	mirror  mirror
	own     own
	lines   lines
}

// New starts this machine's part. The cables to other machines are down until those are Reached.
func New(cfg Config) (*Fabric, error) {
	if cfg.Where == nil {
		cfg.Where = slices.Repeat([]string{cfg.Here}, len(cfg.Graph.Nodes))
	}
	if len(cfg.Where) != len(cfg.Graph.Nodes) {
		return nil, fmt.Errorf("span: %d places for %d nodes", len(cfg.Where), len(cfg.Graph.Nodes))
	}
	f := &Fabric{cfg: cfg, cables: map[string][]int{}, at: cfg.Graph.Cables(), relays: map[string]bool{}}
	f.ctx, f.stop = context.WithCancel(context.Background())
	for node, m := range cfg.Where {
		if cfg.Graph.Nodes[node].IsSwitch() {
			f.relays[m] = true
		}
		if m != cfg.Here && !slices.Contains(f.others, m) {
			f.others = append(f.others, m)
		}
	}
	slices.Sort(f.others)
	for i, c := range f.at {
		a, b := cfg.Where[c.A.Node], cfg.Where[c.B.Node]
		switch {
		case a == b:
		case a == cfg.Here:
			f.cables[b] = append(f.cables[b], i)
		case b == cfg.Here:
			f.cables[a] = append(f.cables[a], i)
		}
	}
	f.mirror.init(&cfg)
	f.lines.init(f)
	made := cfg.Live
	if len(f.others) > 0 {
		made.Outside = live.Outside{Where: f.elsewhere, Trunk: f, Admits: f.admits, Lines: &f.lines}
	}
	var err error
	if f.Fabric, err = live.New(cfg.Graph, made); err != nil {
		return nil, err
	}
	if len(f.others) > 0 {
		f.wg.Go(f.lines.tend)
	}
	return f, nil
}

// elsewhere names the machine that has a node, if that is another.
func (f *Fabric) elsewhere(node int) string {
	if m := f.cfg.Where[node]; m != f.cfg.Here {
		return m
	}
	return ""
}

// Live is this machine's part.
func (f *Fabric) Live() *live.Fabric { return f.Fabric }

// Where names the machine that has a node.
func (f *Fabric) Where(node int) string { return f.cfg.Where[node] }

// Send takes what leaves by a cable to the machine at its far end.
func (f *Fabric) Send(cable int, msg []byte) { f.cfg.Machines.Send(f.beyond(cable), cable, msg) }

// Flush puts it on its way.
func (f *Fabric) Flush() { f.cfg.Machines.Flush() }

// beyond is the machine at the other end of a cable.
func (f *Fabric) beyond(cable int) string {
	c := f.at[cable]
	if m := f.elsewhere(c.A.Node); m != "" {
		return m
	}
	return f.cfg.Where[c.B.Node]
}

// admits refuses packets that cannot come from where they came from: a machine that has no switch has nothing to relay,
// and speaks for its own hosts alone. It is called with the fabric's lock held.
func (f *Fabric) admits(cable int, p *wire.Packet) bool {
	m := f.beyond(cable)
	// Nodes have no addresses before subnet management has given them some.
	if f.relays[m] || p.LRH.VL == ib.VLMgmt {
		return true
	}
	return f.mirror.isSender(m, p.LRH.SLID)
}

// Reached says that a machine can be spoken to, by a way that is new, or cannot any more.
func (f *Fabric) Reached(machine string, is bool) {
	f.SetTrunk(f.cables[machine], is)
	if !is {
		f.mirror.lose(machine)
		f.lines.lose(machine)
		f.changes.Add(1)
		return
	}
	gen := f.mirror.reach(machine)
	f.wg.Go(func() { f.follow(machine, gen) })
}

// Message takes in what has come over a cable.
func (f *Fabric) Message(machine string, cable int, msg []byte) error {
	if cable < 0 || cable >= len(f.at) || f.beyond(cable) != machine ||
		!slices.Contains(f.cables[machine], cable) {
		return fmt.Errorf("span: machine %s speaks for cable %d, which does not lead there", machine, cable)
	}
	return f.HandleTrunk(cable, msg)
}

// Close ends this machine's part.
func (f *Fabric) Close() error {
	f.stop()
	err := f.Fabric.Close()
	f.wg.Wait()
	return err
}

// callTime is how long a machine may take to answer, where this one is idle.
const callTime = 10 * time.Second

// ask asks a machine something.
func ask[In, Out any](f *Fabric, machine string, o op[In, Out], in In) (out Out, err error) {
	ctx, cancel := patience.Context(f.ctx, callTime)
	defer cancel()
	return askFor(ctx, f, machine, o, in)
}

func askFor[In, Out any](ctx context.Context, f *Fabric, machine string, o op[In, Out], in In) (out Out, err error) {
	b, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	if b, err = f.cfg.Machines.Call(ctx, machine, string(o), b); err != nil {
		return out, fmt.Errorf("machine %s: %w", machine, err)
	}
	if err = json.Unmarshal(b, &out); err != nil {
		return out, fmt.Errorf("machine %s: answer to %s: %w", machine, o, err)
	}
	return out, nil
}

// askAll asks all machines that are reached, at once, and gathers their answers in the order of the machines.
func askAll[In, Out any](f *Fabric, o op[In, Out], in func(machine string) (In, bool)) map[string]Out {
	var mu sync.Mutex
	var wg sync.WaitGroup
	all := map[string]Out{}
	for _, m := range f.others {
		x, ok := in(m)
		if !ok || !f.mirror.isReached(m) {
			continue
		}
		wg.Go(func() {
			if out, err := ask(f, m, o, x); err == nil {
				mu.Lock()
				all[m] = out
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return all
}
