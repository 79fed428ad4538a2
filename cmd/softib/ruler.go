package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"softib/driver/smrun"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// errNotMaster says that the subnet is managed from another machine.
var errNotMaster = errors.New("another machine manages the subnet")

// ruler is the subnet manager of a fabric that spans machines: it runs while this machine is the master, and no longer.
type ruler struct {
	f   *fabric
	cfg sm.Config

	mu   sync.Mutex
	run  *smrun.Runner // nil while another rules
	stop context.CancelFunc
	// told is called with each manager that begins, and returns what to do when it ends.
	told func(*smrun.Runner) func()
	end  func()
}

// Do calls fn with the manager, if it runs here.
func (r *ruler) Do(fn func(*sm.Manager)) error {
	r.mu.Lock()
	run := r.run
	r.mu.Unlock()
	if run == nil {
		return errNotMaster
	}
	return run.Do(fn)
}

// tell has somebody told of managers, of the one that runs too.
func (r *ruler) tell(begins func(*smrun.Runner) func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told = begins; r.run != nil {
		r.end = begins(r.run)
	}
}

// rule begins to manage the subnet, or ends it. When it has ended nothing more is written.
func (r *ruler) rule(ctx context.Context, on bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if on == (r.run != nil) {
		return nil
	}
	if !on {
		r.stop()
		<-r.run.Done()
		if r.end != nil {
			r.end()
		}
		r.run, r.end = nil, nil
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	run, err := startSM(ctx, r.f.Fabric, r.cfg, topo.PortRef{Node: -1}, "sm", r.f.log, r.f.journal)
	if err != nil {
		stop()
		return err
	}
	r.run, r.stop = run, stop
	if r.told != nil {
		r.end = r.told(run)
	}
	return nil
}

// plannedLIDs gives every end port the address that it has by its place in the graph: whoever is master gives the same,
// also while parts of the fabric do not reach each other.
func plannedLIDs(g *topo.Graph, lmc uint8) (map[ib.GUID]ib.LID, error) {
	if lids, _ := sm.HintedLIDs(g); lids != nil {
		return lids, nil
	}
	lids := map[ib.GUID]ib.LID{}
	for i, r := range g.EndPorts() {
		lid := (i + 1) << lmc
		if lid > int(ib.LIDUnicastMax) {
			return nil, next(fmt.Errorf("%d end ports with LMC %d need more addresses than a subnet has",
				len(g.EndPorts()), lmc), "a smaller topology, or --lmc 0")
		}
		lids[g.Nodes[r.Node].PortGUID(r.Port)] = ib.LID(lid)
	}
	return lids, nil
}
