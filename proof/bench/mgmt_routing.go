package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"softib/driver/live"
	"softib/driver/smrun"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet"
	"softib/subnet/route"
	"softib/subnet/sm"
)

// recorded are OpenSM's figures for fat-tree:radix=36,levels=3 on the reference machine, for engines that take it
// minutes; -long measures them.
var recorded = map[string]time.Duration{"dfsssp": 362 * time.Second, "nue": 583 * time.Second}

// recordedFabric is the fabric that the figures on record are of.
const recordedFabric = "fat-tree:radix=36,levels=3"

// routing measures the routing engines alone, each in a process of its own, so that its memory is its own.
func (m *management) routing(ctx context.Context) error {
	const gib = 1 << 30
	for _, e := range []struct {
		engine string
		under  float64
	}{{"ftree", 0.5}, {"dfsssp", 5}, {"nue", 20}} {
		took, memory := sample{}, sample{unit: inBytes}
		for round := range m.few() {
			progress("round %d of %d: %s routing of %s", round+1, m.few(), e.engine, m.fabric)
			r, err := measure[routingFigures](ctx, m.bench, measureRouting, m.fabric, e.engine)
			if err != nil {
				return err
			}
			took.values = append(took.values, r.Seconds)
			memory.values = append(memory.values, r.Memory)
		}
		var theirs sample
		note := ""
		if usual, slow := recorded[e.engine]; slow && !m.long {
			if m.fabric == recordedFabric {
				theirs.took(usual)
				note = "(on record)"
			}
		} else {
			peer, err := m.openSMOnce(ctx, e.engine, logUsual|logPhases)
			switch {
			case m.absent(err):
				note = "not installed"
			case err != nil:
				return err
			case peer.engine != e.engine:
				note = "refused; fell back to " + peer.engine
			default:
				theirs.took(peer.routing)
				note = fmt.Sprintf("(process: %s)", inBytes.text(peer.memory))
			}
		}
		m.limit(e.engine+" routing alone", took, e.under, theirs, note)
		m.limit("– memory of a process that does just that", memory, gib, sample{}, "")
	}
	return nil
}

// linkLoss measures the repair after the loss of one link.
func (m *management) linkLoss(ctx context.Context) error {
	progress("loss of a link of %s", m.fabric)
	r, err := measure[lossFigures](ctx, m.bench, measureLoss, m.fabric, "")
	if err != nil {
		return err
	}
	m.limit("one link lost: tables repaired and programmed", sample{values: r.Seconds}, 0.1, sample{}, "")
	m.add(line{what: "– another link lost at that moment", ours: sample{values: r.Another}.String()})
	return nil
}

// What "-measure" does in a process of its own; the results are JSON on standard output.
const (
	measureRouting = "routing"
	measureLoss    = "loss"
)

type routingFigures struct {
	Seconds float64 `json:"seconds"`
	Memory  float64 `json:"memory"`
}

type lossFigures struct {
	Seconds []float64 `json:"seconds"`
	// Another is for links that are lost just when the tables without the one before are programmed, which is before
	// the manager has tidied up.
	Another []float64 `json:"another"`
}

// measure runs this program again to measure one thing, and returns the result.
func measure[T any](ctx context.Context, b *bench, what, fabric, engine string) (result T, err error) {
	self, err := os.Executable()
	if err != nil {
		return result, err
	}
	out, err := b.output(ctx, []string{"GOMAXPROCS=2"}, self, "-measure", what, "-fabric", fabric, "-engine", engine,
		"-smoke="+strconv.FormatBool(b.smoke))
	if err != nil {
		return result, err
	}
	return result, json.Unmarshal(out, &result)
}

// measureHere is the other end of measure.
func (b *bench) measureHere(ctx context.Context, what, fabric, engine string) error {
	g, err := topo.ParseSpec(fabric)
	if err != nil {
		return err
	}
	var result any
	switch what {
	case measureRouting:
		result, err = routeOnce(g, engine)
	case measureLoss:
		times, another := 9, 3
		if b.smoke {
			times, another = 2, 1
		}
		result, err = b.loseLinks(ctx, g, times, another)
	default:
		err = fmt.Errorf("-measure %s: want %s or %s", what, measureRouting, measureLoss)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// routeOnce computes tables once.
func routeOnce(g *topo.Graph, engine string) (r routingFigures, err error) {
	n := route.FromGraph(g)
	began := time.Now()
	if _, err := route.Compute(n, engine, route.Options{}); err != nil {
		return r, err
	}
	r.Seconds = time.Since(began).Seconds()
	r.Memory, err = memoryPeak(os.Getpid())
	return r, err
}

// loseLinks brings a fabric up and takes links between switches away, one after the other. The time is from the loss,
// of which the manager learns by trap, to the published subnet, whose tables are in the switches by then. Of some
// losses another one follows at once.
func (b *bench) loseLinks(ctx context.Context, g *topo.Graph, times, another int) (r lossFigures, err error) {
	f, err := live.New(g, live.Config{})
	if err != nil {
		return r, err
	}
	defer f.Close()
	s, err := f.OpenMgmt(topo.PortRef{Node: g.Hosts()[0].Index, Port: 1})
	if err != nil {
		return r, err
	}
	swept := make(chan time.Time, 64)
	run, err := smrun.New(sm.Config{Window: 1024, SweepInterval: -1}, s, smrun.Options{Log: func(e sm.Event) {
		if e.Kind == sm.EventSweep {
			swept <- time.Now()
		}
	}})
	if err != nil {
		return r, err
	}
	ctx, cancel := b.patient(ctx, "the manager to sweep and come to rest after each of the links that are lost")
	defer cancel()
	go func() { _ = run.Run(ctx) }()
	wait := func() (time.Time, error) {
		select {
		case at := <-swept:
			return at, nil
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		}
	}
	if _, err := wait(); err != nil {
		return r, err
	}
	var links []topo.Cable
	for _, c := range g.Cables() {
		if g.Nodes[c.A.Node].IsSwitch() && g.Nodes[c.B.Node].IsSwitch() {
			links = append(links, c)
		}
	}
	cut := map[topo.PortRef]bool{}
	lose := func() (float64, error) {
		// Far apart, so that no switch has to wait before it may send its next trap.
		c := links[(len(cut)/2+1)*1009%len(links)]
		cut[c.A], cut[c.B] = true, true
		began := time.Now()
		if err := f.SetLink(c.A, false); err != nil {
			return 0, err
		}
		for {
			at, err := wait()
			if err != nil {
				return 0, err
			}
			// A sweep for something before this loss may have ended meanwhile.
			var known bool
			if err := run.Do(func(m *sm.Manager) { known = hasLink(m.Subnet(), g, c) }); err != nil {
				return 0, err
			}
			if !known {
				return at.Sub(began).Seconds(), nil
			}
		}
	}
	for i := range times {
		if err := atRest(ctx, run); err != nil {
			return r, err
		}
		runtime.GC() // what the check has left behind is not the manager's
		took, err := lose()
		if err != nil {
			return r, err
		}
		r.Seconds = append(r.Seconds, took)
		if i < another {
			if took, err = lose(); err != nil {
				return r, err
			}
			r.Another = append(r.Another, took)
		}
		if err := reaches(f, cut); err != nil {
			return r, fmt.Errorf("%d links are lost: %w", len(cut)/2, err)
		}
	}
	return r, nil
}

// hasLink reports whether a published subnet has a cable.
func hasLink(s *subnet.Subnet, g *topo.Graph, c topo.Cable) bool {
	node, ok := s.ByGUID(g.Nodes[c.A.Node].GUID)
	return ok && s.Nodes[node].Ports[c.A.Port].Up()
}

// atRest waits until a manager has nothing more to do.
func atRest(ctx context.Context, run *smrun.Runner) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for busy := true; busy; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := run.Do(func(m *sm.Manager) { busy = m.Sweeping() }); err != nil {
			return err
		}
	}
	return nil
}

// reaches checks that the tables which the switches hold lead from every host to every other, without links that are
// cut.
func reaches(f *live.Fabric, cut map[topo.PortRef]bool) error {
	g := f.Graph()
	tables := make([][]ib.PortNum, len(g.Nodes))
	for _, n := range g.Switches() {
		var err error
		if tables[n.Index], err = tableOf(f, n.Index, ib.LID(g.NumLIDs())); err != nil {
			return err
		}
	}
	var leaves []int
	for _, h := range g.Hosts() {
		if at := h.Ports[1].Peer; len(leaves) == 0 || leaves[len(leaves)-1] != at {
			leaves = append(leaves, at)
		}
	}
	const hopsMax = 64
	for _, h := range g.Hosts() {
		pi, _ := f.PortInfo(topo.PortRef{Node: h.Index, Port: 1})
		for _, at := range leaves {
			from := at
			for hops := 0; at != h.Index; hops++ {
				out := topo.PortRef{Node: at, Port: tables[at][pi.LID]}
				p := g.Port(out)
				if hops == hopsMax || p == nil || !p.Connected() || cut[out] || !g.Nodes[p.Peer].IsSwitch() &&
					p.Peer != h.Index {
					return fmt.Errorf("no way from %s to %s: it ends at %s", g.Nodes[from].Name, h.Name,
						g.PortName(out))
				}
				at = p.Peer
			}
		}
	}
	return nil
}

// tableOf asks a switch for its forwarding table.
func tableOf(f *live.Fabric, node int, top ib.LID) ([]ib.PortNum, error) {
	var row []ib.PortNum
	for block := range int(top)/mad.LFTPerBlock + 1 {
		var req, resp [mad.Size]byte
		h := mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassSMLID, ClassVersion: 1, Method: mad.MethodGet,
			TransactionID: uint64(block) + 1, AttributeID: mad.AttrLFT, AttributeModifier: uint32(block)}
		h.Append(req[:0])
		if !f.SMP(node, 0, &req, &resp) || mad.View(resp[:]).Status() != mad.StatusOK {
			return nil, fmt.Errorf("%s does not show block %d of its table", f.Graph().Nodes[node].Name, block)
		}
		var table mad.LFT
		if _, err := table.Parse(resp[mad.SMPDataOff:][:mad.SMPDataLen]); err != nil {
			return nil, err
		}
		row = append(row, table[:]...)
	}
	return row, nil
}
