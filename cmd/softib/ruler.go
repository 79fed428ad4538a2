package main

import (
	"context"
	"fmt"
	"sync"

	"softib/driver/smrun"
	"softib/operate/manager/tenant"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// errNotMaster says that the subnet is managed from another machine.
var errNotMaster = fmt.Errorf("another machine manages the subnet: %w", tenant.ErrUnmanaged)

// ruler is the subnet manager of a fabric that spans machines: it runs while this machine is the master, and no longer.
type ruler struct {
	f       *fabric
	cfg     sm.Config
	tenants *tenancy // nil if there can be none

	mu   sync.Mutex
	run  *smrun.Runner // nil while another rules
	term uint32        // of run
	stop context.CancelFunc
	// told is called with each manager that begins, and returns what to do when it ends.
	told func(*smrun.Runner) func()
	end  func()
	// follow ends what the tenants have of it.
	follow func()
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

// Await waits until is is true of the manager.
func (r *ruler) Await(ctx context.Context, is func(*sm.Manager) bool) error {
	r.mu.Lock()
	run := r.run
	r.mu.Unlock()
	if run == nil {
		return errNotMaster
	}
	return run.Await(ctx, is)
}

// tell has somebody told of managers, of the one that runs too.
func (r *ruler) tell(begins func(*smrun.Runner) func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told = begins; r.run != nil {
		r.end = begins(r.run)
	}
}

// rule begins to manage the subnet, or ends it: what this machine writes says the term, and nodes take nothing of one
// that is over. When it has ended nothing more is written.
func (r *ruler) rule(ctx context.Context, on bool, term uint32) error {
	r.mu.Lock()
	is, same := r.run != nil, r.term == term
	r.mu.Unlock()
	if is && !(on && same) {
		r.rest() // another may have ruled in between
		is = false
	}
	if on && !is {
		return r.start(ctx, term)
	}
	return nil
}

// rest ends the manager that runs.
func (r *ruler) rest() {
	r.mu.Lock()
	r.stop()
	<-r.run.Done()
	if r.end != nil {
		r.end()
	}
	r.run, r.end = nil, nil
	r.mu.Unlock() // a change of tenants that is under way asks for the manager
	if r.follow != nil {
		r.follow()
	}
}

// start begins to manage the subnet.
func (r *ruler) start(ctx context.Context, term uint32) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cfg, store := r.cfg, tenant.Store(nil)
	cfg.Term, r.term = term, term
	if r.tenants != nil {
		if store, cfg, err = r.tenants.begin(cfg); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	run, err := startSM(ctx, r.f.Fabric, cfg, topo.PortRef{Node: -1}, "sm", r.f.log, r.f.journal)
	if err != nil {
		stop()
		return err
	}
	r.run, r.stop, r.follow = run, stop, nil
	if r.tenants != nil {
		r.follow = r.tenants.rule(ctx, r.f, run, store)
	}
	if r.told != nil {
		r.end = r.told(run)
	}
	return nil
}

// plannedLIDs gives every end port the address that it has by its place in the graph: whoever is master gives the same,
// also while parts of the fabric do not reach each other. What a dump says comes first.
func plannedLIDs(g *topo.Graph, lmc uint8) (map[ib.GUID]ib.LID, error) {
	lids, lmcs := sm.HintedLIDs(g)
	if lids == nil {
		lids = map[ib.GUID]ib.LID{}
	}
	taken := map[ib.LID]bool{}
	for guid, lid := range lids {
		for i := range ib.LID(1) << max(lmcs[guid], lmc) {
			taken[lid+i] = true
		}
	}
	isFree := func(from int) bool {
		for i := range 1 << lmc {
			if taken[ib.LID(from+i)] {
				return false
			}
		}
		return true
	}
	at := 1 << lmc
	for _, r := range g.EndPorts() {
		guid := g.Nodes[r.Node].PortGUID(r.Port)
		if lids[guid] != 0 {
			continue
		}
		for !isFree(at) {
			at += 1 << lmc
		}
		if at > int(ib.LIDUnicastMax) {
			return nil, next(fmt.Errorf("%d end ports with LMC %d need more addresses than a subnet has",
				len(g.EndPorts()), lmc), "a smaller topology, or --lmc 0")
		}
		lids[guid] = ib.LID(at)
		at += 1 << lmc
	}
	return lids, nil
}
