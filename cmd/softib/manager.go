package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"softib/ib"
	"softib/live"
	"softib/route"
	"softib/sm"
	"softib/smrun"
	"softib/topo"
)

// smOptions are what a command line says about a subnet manager.
type smOptions struct {
	engines  string
	priority uint8
	lmc      uint8
	sweep    time.Duration
	smKey    uint64
	mKey     uint64
	maxVLs   int
}

// flags gives a command the options of a manager.
func (o *smOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.engines, "engine", sm.DefaultEngines, "routing engines in the order in which they are tried: `CHAIN` of "+strings.Join(route.Names(), ", "))
	f.Uint8Var(&o.priority, "sm-priority", 0, "the manager's priority among managers, 0 to 15")
	f.Uint8Var(&o.lmc, "lmc", 0, "give every end port 2^`LMC` addresses, 0 to 7")
	f.DurationVar(&o.sweep, "sweep", 10*time.Second, "time between two light sweeps; 0 for none")
	f.Uint64Var(&o.smKey, "sm-key", 0, "key by which managers and trusted clients know each other")
	f.Uint64Var(&o.mKey, "m-key", 0, "key that guards the nodes against other managers")
	f.IntVar(&o.maxVLs, "max-vls", 0, "use at most so many data lanes; 0 for all")
}

// config checks the options and makes the manager's configuration of them.
func (o *smOptions) config() (sm.Config, error) {
	if _, err := route.ParseChain(o.engines); err != nil {
		return sm.Config{}, next(&usageError{err}, "softib up --engine ftree,updn")
	}
	if o.priority > 15 {
		return sm.Config{}, next(&usageError{fmt.Errorf("--sm-priority %d: want 0 to 15", o.priority)}, "--sm-priority 15 is the highest")
	}
	if o.lmc > 7 {
		return sm.Config{}, next(&usageError{fmt.Errorf("--lmc %d: want 0 to 7", o.lmc)}, "--lmc 2 gives every port four addresses")
	}
	c := sm.Config{
		Engines: o.engines, Priority: o.priority, LMC: o.lmc, SMKey: o.smKey, MKey: o.mKey, MaxVLs: o.maxVLs,
		SweepInterval: ib.Time(o.sweep) * ib.Nanosecond, Window: 1024,
	}
	if o.sweep == 0 {
		c.SweepInterval = -1
	}
	return c, nil
}

// eventLog writes a manager's events as lines for an operator.
func eventLog(w io.Writer) func(sm.Event) {
	return func(e sm.Event) {
		fmt.Fprintf(w, "%s sm %s\n", time.Now().Format("2006-01-02 15:04:05.000"), e)
	}
}

// startManager runs a manager on a host of a fabric of this process.
func startManager(ctx context.Context, f *live.Fabric, cfg sm.Config, log io.Writer) (*smrun.Runner, error) {
	g := f.Graph()
	host := g.Hosts()[0]
	for _, h := range g.Hosts() {
		if h.Ports[1].Connected() {
			host = h
			break
		}
	}
	s, err := f.OpenMgmt(topo.PortRef{Node: host.Index, Port: 1})
	if err != nil {
		return nil, err
	}
	cfg.Memory.LIDs, cfg.LMCs = sm.HintedLIDs(g)
	cfg.Groups = f.Groups()
	r, err := smrun.New(cfg, s, smrun.Options{Log: eventLog(log)})
	if err != nil {
		return nil, err
	}
	go func() { _ = r.Run(ctx) }()
	return r, nil
}
