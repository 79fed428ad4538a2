package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"softib/internal/patience"
	"softib/operate/control"
	"softib/operate/forwarding"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet/sm"
)

func newRoute() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "route",
		Short: "Show, trace and judge the ways that packets take",
	}
	return family(cmd, newRouteShow(), newRouteTrace(), newRouteCheck())
}

// routeRequest asks a running fabric about its tables.
type routeRequest struct {
	// Switch and To are what to show.
	Switch string `json:"switch,omitempty"`
	To     string `json:"to,omitempty"`
	// Brief leaves the entries out and counts them.
	Brief bool `json:"brief,omitempty"`
	// From is where a trace starts, to To. SL and PKey are what the administrator says unless they are given.
	From string   `json:"from,omitempty"`
	SL   *ib.SL   `json:"sl,omitempty"`
	PKey *ib.PKey `json:"pkey,omitempty"`
	Both bool     `json:"both,omitempty"`
	// Topology asks for the cabling itself beside the tables.
	Topology bool `json:"topology,omitempty"`
}

// tables answers with the whole network and all of its tables, for a client to judge.
func (s *server) tables(ctx context.Context, q routeRequest, r *control.Reply[forwarding.Part]) error {
	if g := s.f.Graph(); len(s.f.runners) > 1 && g.NumLIDs() > ownLIDsMost {
		return next(fmt.Errorf("the subnets of fabric %s share LIDs, by which tables are judged", s.f.name),
			"softib doctor judges each subnet, softib route trace FROM TO follows one way")
	}
	limit := patience.New(settlePatience)
	r.Doing(func() string { return fmt.Sprintf("waiting for the subnet manager's sweep to end (%v)", limit) })
	sweeping := !s.settled(ctx, limit)
	r.Doing(func() string { return "" })
	return forwarding.Read(ctx, s.f.Fabric, s.subnets(), q.Topology, func(p forwarding.Part) error {
		if p.Network != nil {
			if p.Network.Sweeping = sweeping; sweeping {
				p.Network.Waited = limit.String()
			}
		}
		return r.Say(p)
	})
}

// settlePatience is how long somebody who wants to judge tables waits for managers that are changing them, on an
// idle machine. Tests have less.
var settlePatience = 5 * time.Second

// settled waits until the managers of this process have nothing to do: a link that has just come up is not in the
// tables yet, and whoever judges them at once would find hosts that nobody reaches. It is false if they go on.
func (s *server) settled(ctx context.Context, limit *patience.Limit) bool {
	busy := func() (is bool) {
		master := false
		for _, run := range s.f.managers() {
			_ = run.Do(func(m *sm.Manager) { // one that has ended changes nothing
				master = master || m.State() == mad.SMMaster
				is = is || m.State() == mad.SMMaster && m.Sweeping()
			})
		}
		for _, c := range s.f.Graph().Cables() {
			if !master || is {
				break
			}
			state := s.f.PortState(c.A)
			is = state == ib.PortInit || state == ib.PortArmed
		}
		return is
	}
	for busy() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(10 * time.Millisecond):
		}
		if limit.Over() {
			return false
		}
	}
	return true
}

// heldTables are a running fabric's.
func (p place) heldTables(ctx context.Context, r routeRequest) (*forwarding.Held, error) {
	h := &forwarding.Held{}
	err := askFabric(ctx, p, opTables, r, func(x forwarding.Part) error {
		h.Add(x)
		return nil
	})
	if err == nil && !h.IsWhole() {
		err = fmt.Errorf("fabric %s answered without all of its tables", p.name)
	}
	return h, err
}
