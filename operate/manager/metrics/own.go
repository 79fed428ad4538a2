package metrics

import (
	"bytes"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"softib/operate/manager"
	"softib/operate/manager/health"
	"softib/operate/manager/tenant"
	"softib/proto/ib"
	"softib/proto/mad"
)

// own makes the part that is softib's.
type own struct {
	process *prometheus.Registry
}

func (o *own) init() {
	o.process = prometheus.NewRegistry()
	o.process.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// text is all of it.
func (o *own) text(m *manager.Manager) []byte {
	t := &sheet{}
	fabricSheet(t, m)
	managerSheet(t, m)
	adminSheet(t, m)
	healthSheet(t, m)
	alarmSheet(t, m)
	tenantSheet(t, m)
	historySheet(t, m)
	programSheet(t, m)
	var b bytes.Buffer
	if list, err := o.process.Gather(); err == nil {
		for _, f := range list {
			if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
				break // a buffer takes everything
			}
		}
	}
	return append(t.b, b.Bytes()...)
}

// fabricSheet is what the fabric is and how its links are.
func fabricSheet(t *sheet, m *manager.Manager) {
	t.family("softib_info", "The fabric, what it was made from, and softib's version.", gauge)
	t.add("softib_info", 1, "fabric", m.Name(), "topology", m.Topology(), "version", m.Version())
	t.one("softib_start_time_seconds", "When the management of the fabric began, in seconds since 1970.", gauge,
		float64(m.Started().UnixNano())/1e9)

	g := m.Graph()
	t.family("softib_nodes", "Nodes by what they are.", gauge)
	hosts, service := g.HostsApart()
	t.add("softib_nodes", float64(len(hosts)), "type", "host")
	t.add("softib_nodes", float64(len(service)), "type", "service")
	t.add("softib_nodes", float64(len(g.Switches())), "type", "switch")
	t.add("softib_nodes", float64(len(g.Routers())), "type", "router")

	s := m.Sample()
	var states [ib.NumPortState]int
	slow := 0
	for _, c := range m.Cables() {
		a, _ := m.PortIndex(c.A)
		b, _ := m.PortIndex(c.B)
		x, y := &s.Ports[a], &s.Ports[b]
		states[max(min(x.State, y.State), ib.PortDown)]++
		if x.State > ib.PortDown && x.Rate.Mbps() < x.Capable.Mbps() {
			slow++
		}
	}
	t.family("softib_links", "Cables by the state of their links.", gauge)
	for st := ib.PortDown; st < ib.NumPortState; st++ {
		t.add("softib_links", float64(states[st]), "state", strings.ToLower(st.String()))
	}
	t.one("softib_links_degraded", "Links that are up at less than both of their ends can do.", gauge, float64(slow))
	t.one("softib_samples_total", "Times that the manager has looked at all ports.", counter, float64(s.Seq))
	t.one("softib_sample_age_seconds", "How long ago that was for the last time.", gauge, time.Since(s.At).Seconds())
	t.one("softib_events_total", "Events in the manager's journal since it began.", counter,
		float64(m.Journal().Last()))

	list := m.Faults()
	t.one("softib_faults", "Faults that are set at cables.", gauge, float64(len(list)))
	t.family("softib_fault_info", "A fault that is set at a cable.", gauge)
	for _, f := range list {
		t.add("softib_fault_info", 1, "link", f.Link, "fault", f.FaultSpec.String())
	}
	t.family("softib_fault_packets_total", "Packets that a fault has lost or corrupted.", counter)
	for _, f := range list {
		t.add("softib_fault_packets_total", float64(f.Dropped), "link", f.Link, "what", "dropped")
		t.add("softib_fault_packets_total", float64(f.Corrupted), "link", f.Link, "what", "corrupted")
	}
}

// managerSheet is the subnet manager, as far as it is ours.
func managerSheet(t *sheet, m *manager.Manager) {
	s := m.Subnet()
	t.one("softib_sm_managed", "Whether softib's own subnet manager looks after the fabric.", gauge, flag(s.Managed))
	t.family("softib_sm_state", "The subnet manager's state: 1 for the one it is in.", gauge)
	for st := range mad.NumSMState {
		t.add("softib_sm_state", flag(s.Managed && s.State == st.String()), "state", strings.ToLower(st.String()))
	}
	if !s.Managed {
		return
	}
	t.one("softib_sm_sweeping", "Whether a sweep is under way.", gauge, flag(s.Sweeping))
	t.one("softib_sm_sweeps_total", "Sweeps that were completed.", counter, float64(s.Counters.Sweeps))
	t.one("softib_sm_light_sweeps_total", "Light sweeps that were begun.", counter, float64(s.Counters.LightSweeps))
	t.one("softib_sm_datagrams_sent_total", "Datagrams that the subnet manager has sent.", counter,
		float64(s.Counters.Sent))
	t.one("softib_sm_traps_total", "Traps that it has received, repetitions included.", counter,
		float64(s.Counters.Traps))
	t.one("softib_sm_problems_total", "What went wrong in its work.", counter, float64(s.Counters.Problems))
	t.one("softib_sm_events_lost_total", "Events that nobody took from it in time.", counter,
		float64(s.Counters.EventsLost))
	t.family("softib_sm_managers", "Subnet managers that it knows of, itself included, by state.", gauge)
	seen := map[string]int{}
	for _, o := range s.Managers {
		seen[o.State]++
	}
	for st := range mad.NumSMState {
		t.add("softib_sm_managers", float64(seen[st.String()]), "state", strings.ToLower(st.String()))
	}
	t.family("softib_partition_members", "Ports in a partition.", gauge)
	for _, p := range s.Partition {
		t.add("softib_partition_members", float64(p.Members), "pkey", p.Key, "partition", p.Name)
	}
	sweeps := m.Sweeps()
	if len(sweeps) == 0 {
		return
	}
	last := &sweeps[len(sweeps)-1]
	t.one("softib_sm_sweep_seconds", "Time that the last sweep took until the subnet was up.", gauge,
		seconds(last.Took))
	t.one("softib_sm_sweep_datagrams", "Datagrams that the last sweep took until the subnet was up.", gauge,
		float64(last.MADs))
	t.one("softib_sm_sweep_blocks", "Blocks of forwarding tables that the last sweep wrote.", gauge,
		float64(last.Blocks))
	t.one("softib_sm_sweep_problems", "What went wrong in the last sweep.", gauge, float64(last.Problems))
	// A phase that comes twice in a sweep, such as writing tables early and late, is one.
	var names []string
	took, mads := map[string]float64{}, map[string]float64{}
	for _, p := range last.Phases {
		if _, ok := took[p.Name]; !ok {
			names = append(names, p.Name)
		}
		took[p.Name] += seconds(p.Took)
		mads[p.Name] += float64(p.MADs)
	}
	t.family("softib_sm_sweep_phase_seconds",
		"Time that a phase of the last sweep took; the last ones come when the subnet is up already.", gauge)
	for _, n := range names {
		t.add("softib_sm_sweep_phase_seconds", took[n], "phase", n)
	}
	t.family("softib_sm_sweep_phase_datagrams",
		"Datagrams that a phase of the last sweep took; the last ones come when the subnet is up already.", gauge)
	for _, n := range names {
		t.add("softib_sm_sweep_phase_datagrams", mads[n], "phase", n)
	}
}

// tenantSheet is the tenants and how many ports are theirs.
func tenantSheet(t *sheet, m *manager.Manager) {
	var list []tenant.Tenant
	book := m.Tenants()
	if book != nil {
		list = book.List()
	}
	t.one("softib_tenants", "Tenants of the fabric.", gauge, float64(len(list)))
	t.family("softib_tenant_members", "Ports of a tenant.", gauge)
	for i := range list {
		t.add("softib_tenant_members", float64(len(list[i].Members)), "tenant", list[i].Name, "pkey",
			list[i].Key.Base().String())
	}
	t.one("softib_tenants_in_force", "Whether the tenants that are written down are kept apart: not where another's "+
		"subnet manager looks after the fabric.", gauge,
		flag(book == nil || book.Aside() == nil))
}

// historySheet is how the manager's own past is kept.
func historySheet(t *sheet, m *manager.Manager) {
	s := m.HistoryStats()
	t.one("softib_history_file_bytes", "Size of the file that the history is in; 0 if it is in memory.", gauge,
		float64(s.FileBytes))
	t.one("softib_history_head_bytes", "What of the history is in memory and not yet written.", gauge,
		float64(s.HeadBytes))
	t.one("softib_history_dropped_samples_total", "Samples that were lost because they could not be written.", counter,
		float64(s.Dropped))
}

// worstMax is how many cables are named.
const worstMax = 100

// healthSheet is the cables that something is wrong with.
func healthSheet(t *sheet, m *manager.Manager) {
	worst := m.Worst()
	var count [health.NumSeverity]int
	for i := range worst {
		count[worst[i].Severity]++
	}
	t.family("softib_cables_suspect", "Cables that something is wrong with, by how much.", gauge)
	for s := health.OK + 1; s < health.NumSeverity; s++ {
		t.add("softib_cables_suspect", float64(count[s]), "severity", s.String())
	}
	t.family("softib_cable_score", "The worst cables; a higher score is worse among those of one severity.", gauge)
	for i := range worst[:min(len(worst), worstMax)] {
		v := &worst[i]
		t.add("softib_cable_score", v.Score, "link", m.LinkName(v.Cable), "severity", v.Severity.String())
	}
}

// alarmSheet is the alarms that stand.
func alarmSheet(t *sheet, m *manager.Manager) {
	var count [health.NumKind][health.NumSeverity]int
	for _, a := range m.Alarms() {
		count[a.Kind][a.Severity]++
	}
	t.family("softib_alarms", "Alarms that stand, by what they are about.", gauge)
	for k := range health.NumKind {
		for s := health.OK + 1; s < health.NumSeverity; s++ {
			t.add("softib_alarms", float64(count[k][s]), "kind", k.String(), "severity", s.String())
		}
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(t ib.Time) float64 { return float64(t) / float64(ib.Second) }
