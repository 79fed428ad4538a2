package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"softib/driver/smrun"
	"softib/driver/span"
	"softib/operate/manager"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/policy"
	"softib/subnet/route"
	"softib/subnet/sm"
)

// smOptions are what a command line says about a subnet manager.
type smOptions struct {
	Engines  string        `json:"engines"`
	Priority uint8         `json:"priority"`
	LMC      uint8         `json:"lmc"`
	Sweep    time.Duration `json:"sweep"`
	SMKey    uint64        `json:"sm_key"`
	MKey     uint64        `json:"m_key"`
	MaxVLs   int           `json:"max_vls"`
	CC       string        `json:"cc,omitempty"`
	smFiles
	// Given are the flags that were on the command line: they go before what files say.
	Given []string `json:"given,omitempty"`

	cmd   *cobra.Command // nil where the options came from another process
	notes []string       // about the files, for people
}

// flags gives a command the options of a manager.
func (o *smOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Engines, "engine", sm.DefaultEngines,
		"routing engines in the order in which they are tried: `CHAIN` of "+strings.Join(route.Names(), ", "))
	f.Uint8Var(&o.Priority, "sm-priority", 0, "the manager's priority among managers, 0 to 15")
	f.Uint8Var(&o.LMC, "lmc", 0, "give every end port 2^`LMC` addresses, 0 to 7")
	f.DurationVar(&o.Sweep, "sweep", 10*time.Second, "time between two light sweeps; 0 for none")
	f.Uint64Var(&o.SMKey, "sm-key", 0, "key by which managers and trusted clients know each other")
	f.Uint64Var(&o.MKey, "m-key", 0, "`KEY` that guards the nodes against other managers")
	f.IntVar(&o.MaxVLs, "max-vls", 0, "use at most so many data lanes; 0 for all")
	f.StringVar(&o.CC, "cc", "", "congestion control, with settings for links of `RATE`, such as 400G; "+
		"--config has it with others (congestion_control TRUE, cc_…)")
	o.smFiles.flags(cmd)
	o.cmd = cmd
}

// config checks the options and makes the manager's configuration of them.
func (o *smOptions) config() (sm.Config, error) {
	if _, err := route.ParseChain(o.Engines); err != nil {
		return sm.Config{}, next(&usageError{err}, "softib up --engine ftree,updn")
	}
	if o.Priority > 15 {
		return sm.Config{}, next(&usageError{fmt.Errorf("--sm-priority %d: want 0 to 15", o.Priority)},
			"--sm-priority 15 is the highest")
	}
	if o.LMC > 7 {
		return sm.Config{}, next(&usageError{fmt.Errorf("--lmc %d: want 0 to 7", o.LMC)},
			"--lmc 2 gives every port four addresses")
	}
	var ccRate int64
	if o.CC != "" {
		var err error
		if ccRate, err = manager.ParseRate(o.CC); err != nil {
			return sm.Config{}, next(&usageError{fmt.Errorf("--cc %s: want bits a second", o.CC)},
				"--cc 400G is for links of 4x NDR")
		}
	}
	if err := o.resolve(); err != nil {
		return sm.Config{}, err
	}
	o.notes = nil
	c := sm.Config{Window: 1024}
	if err := o.readFiles(&c); err != nil {
		return sm.Config{}, err
	}
	for _, f := range []struct {
		flag string
		set  func()
	}{
		{"engine", func() { c.Engines = o.Engines }}, {"sm-priority", func() { c.Priority = o.Priority }},
		{"lmc", func() { c.LMC = o.LMC }},
		{"sm-key", func() { c.SMKey = o.SMKey }},
		{"m-key", func() {
			if c.MKey = o.MKey; c.MKey != 0 && c.MKeyProtect == 0 {
				c.MKeyProtect = 2 // below it anybody can read the key
			}
		}},
		{"max-vls", func() { c.MaxVLs = o.MaxVLs }},
		{"cc", func() {
			if ccRate != 0 {
				key := c.Congestion.Key
				c.Congestion = policy.CongestionFor(ccRate)
				c.Congestion.Key = key
			}
		}},
		{"sweep", func() {
			if c.SweepInterval = ib.Time(o.Sweep) * ib.Nanosecond; o.Sweep == 0 {
				c.SweepInterval = -1
			}
		}},
	} {
		if o.Config == "" || o.given(f.flag) {
			f.set()
		}
	}
	return c, nil
}

// logTime is how lines of the log begin.
const logTime = "2006-01-02 15:04:05.000"

// eventLog writes a manager's events as lines for an operator.
func eventLog(w io.Writer, who string) func(sm.Event) {
	return func(e sm.Event) {
		fmt.Fprintf(w, "%s %s %s\n", time.Now().Format(logTime), who, e)
	}
}

// startSM runs a manager at a port of a fabric of this process, or where managers run if there is no such node.
func startSM(ctx context.Context, f *span.Fabric, cfg sm.Config, ref topo.PortRef, name string, log io.Writer,
	journal *manager.Journal) (_ *smrun.Runner, err error) {
	if ref.Node < 0 {
		if ref, err = smPort(f, ""); err != nil {
			return nil, err
		}
	}
	s, err := f.OpenMgmt(ref)
	if err != nil {
		return nil, err
	}
	if cfg.Memory.LIDs == nil {
		cfg.Memory.LIDs, cfg.LMCs = sm.HintedLIDs(f.Graph())
	}
	cfg.Self, cfg.Plan = f.Graph().Nodes[ref.Node].PortGUID(ref.Port), f.Graph()
	cfg.Groups = f.Groups()
	write := eventLog(log, name)
	r, err := smrun.New(cfg, s, smrun.Options{Log: func(e sm.Event) {
		write(e)
		journal.AddSM(e)
	}})
	if err != nil {
		return nil, err
	}
	go func() { _ = r.Run(ctx) }()
	return r, nil
}
