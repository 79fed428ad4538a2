package doctor

import (
	"time"

	"softib/node/inspect"
	"softib/operate/manager/health"
	"softib/operate/manager/tenant"
	"softib/proto/ib"
	"softib/proto/topo"
)

// Interval is how long counters are watched for whoever does not say.
const Interval = 2 * time.Second

// Keeper is who keeps a fabric running and knows what no datagram tells: package manager's Manager.
type Keeper interface {
	Graph() *topo.Graph
	Version() string
	// Limits are what counters are judged by, with their age where it is known.
	Limits() health.Thresholds
	// Programs are those that are attached; nil where nobody knows.
	Programs() []inspect.ProgramStats
	// OwnManager is the port GUID of the manager that is the keeper's; 0 if there is none, or if it has ended.
	OwnManager() ib.GUID
	Acknowledged() []tenant.Tenant
}

// Known is what a keeper knows, for Judge: all who look at a kept fabric, by whatever way, find the same.
func Known(k Keeper) Options {
	limits := k.Limits()
	o := Options{Thresholds: &limits, Plan: k.Graph(), Version: k.Version(), Manager: k.OwnManager(),
		Tenants: k.Acknowledged()}
	list := k.Programs()
	if list == nil {
		return o
	}
	o.Programs, o.Hosts = []ProgramFacts{}, []HostTraffic{} // none is not the same as not known
	at := map[string]int{}
	for _, p := range list {
		o.Programs = append(o.Programs, ProgramFacts{Host: p.Host, PID: p.PID, Name: p.Name, Version: p.Library})
		i, known := at[p.Host]
		if !known {
			i = len(o.Hosts)
			at[p.Host] = i
			o.Hosts = append(o.Hosts, HostTraffic{Host: p.Host})
		}
		o.Hosts[i].IPBytes += p.Stats.IPoIBTxBytes
		o.Hosts[i].NativeBytes += p.Stats.TxBytes - min(p.Stats.TxBytes, p.Stats.IPoIBTxBytes)
	}
	return o
}

// Named is the same with the names that a plan has.
func (s Surveys) Named(plan *topo.Graph) Surveys {
	s.Before = s.Before.Renamed(func(g ib.GUID) string {
		if n := plan.ByGUID(g); n != nil {
			return n.Name
		}
		return ""
	})
	if s.After != nil {
		after := *s.After
		after.Nodes = s.Before.Nodes
		s.After = &after
	}
	return s
}
