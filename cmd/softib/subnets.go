package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"softib/driver/smrun"
	"softib/internal/patience"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet"
	"softib/subnet/sm"
)

// ownLIDsMost is up to how many LIDs of all subnets together each has those that no other has: what is keyed by LIDs
// alone needs not ask then which subnet is meant. Beyond that tables would be several times as long as they need to be.
const ownLIDsMost = 8192

// startSMs runs a manager in each subnet of a fabric. Where routers join them each has a prefix of its own and, in
// fabrics that are not large, LIDs of its own.
func (f *fabric) startSMs(ctx context.Context, cfg sm.Config) error {
	g := f.Graph()
	if len(g.Routers()) == 0 {
		run, err := startSM(ctx, f.Fabric, cfg, topo.PortRef{Node: -1}, "sm", f.log, f.journal)
		f.runner = run
		return err
	}
	f.subnets = g.Subnets()
	first := 1
	for k := range f.subnets.Count {
		ref, err := f.managerPort(k)
		if err != nil {
			return err
		}
		own := cfg
		if own.Prefix = g.Prefix(k); g.NumLIDs() <= ownLIDsMost {
			own.FirstLID = ib.LID(first)
			first += f.subnets.Ends[k]
		}
		run, err := startSM(ctx, f.Fabric, own, ref, fmt.Sprintf("sm%d", k+1), f.log, f.journal)
		if err != nil {
			return err
		}
		f.runners = append(f.runners, run)
	}
	f.runner = f.runners[0]
	return nil
}

// managerPort is where the manager of a subnet runs: in its first switch.
func (f *fabric) managerPort(k int) (topo.PortRef, error) {
	for _, n := range f.Graph().Switches() {
		if ref := (topo.PortRef{Node: n.Index}); f.subnets.Of(ref) == k {
			return ref, nil
		}
	}
	return topo.PortRef{}, next(fmt.Errorf("subnet %d has no switch for its manager to run in", k+1),
		"cable routers and hosts to switches, not to each other")
}

// managers are the fabric's own, one for each subnet.
func (f *fabric) managers() []*smrun.Runner {
	switch {
	case len(f.runners) > 0:
		return f.runners
	case f.runner != nil:
		return []*smrun.Runner{f.runner}
	}
	return nil
}

// routersPatience is how long managers may take to learn what routers reach.
const routersPatience = 30 * time.Second

// awaitUp waits until all subnets are up and their managers know the ways to the others that the cables show.
func (f *fabric) awaitUp(ctx context.Context) error {
	for _, run := range f.managers() {
		select {
		case <-run.Up():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, run := range f.runners {
		_ = run.Do((*sm.Manager).LookAtRouters)
	}
	ctx, cancel := patience.Context(ctx, routersPatience)
	defer cancel()
	for k, run := range f.runners {
		reached := f.reachable(k)
		err := run.Await(ctx, func(m *sm.Manager) bool {
			return m.Subnet() != nil && len(reaches(m.Subnet())) >= reached
		})
		if err != nil {
			return fmt.Errorf("the manager of subnet %d does not learn of all others: %w", k+1, err)
		}
	}
	return nil
}

// reachable counts the other subnets that routers join to one, directly or not.
func (f *fabric) reachable(k int) (count int) {
	g := f.Graph()
	seen := map[int]bool{k: true}
	for again := true; again; {
		again = false
		for _, rt := range g.Routers() {
			var at []int
			for p := 1; p < len(rt.Ports); p++ {
				if s := f.subnets.Of(topo.PortRef{Node: rt.Index, Port: ib.PortNum(p)}); s >= 0 {
					at = append(at, s)
				}
			}
			if !slices.ContainsFunc(at, func(s int) bool { return seen[s] }) {
				continue
			}
			for _, s := range at {
				again = again || !seen[s]
				seen[s] = true
			}
		}
	}
	return len(seen) - 1
}

// reaches are the LIDs of the nearest routers to each other subnet, by prefix.
func reaches(s *subnet.Subnet) map[uint64][]ib.LID {
	best, lids := map[uint64]uint8{}, map[uint64][]ib.LID{}
	for _, r := range s.Routers {
		for _, h := range r.Hops {
			if w, known := best[h.Prefix]; !known || h.Weight < w {
				best[h.Prefix], lids[h.Prefix] = h.Weight, nil
			}
			if h.Weight == best[h.Prefix] {
				lids[h.Prefix] = append(lids[h.Prefix], s.Port(r.Port).Info.LID)
			}
		}
	}
	return lids
}

// routes are the nearest routers from each subnet to each other, by prefixes.
func (f *fabric) routes() map[[2]uint64][]ib.LID {
	all := map[[2]uint64][]ib.LID{}
	for _, run := range f.runners {
		_ = run.Do(func(m *sm.Manager) {
			if s := m.Subnet(); s != nil && m.State() == mad.SMMaster {
				for prefix, lids := range reaches(s) {
					all[[2]uint64{s.Prefix, prefix}] = lids
				}
			}
		})
	}
	return all
}
