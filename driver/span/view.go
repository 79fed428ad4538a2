package span

import (
	"fmt"
	"slices"
	"time"

	"softib/node/inspect"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// Epoch moves on whenever a state, a table or a key changes, here or elsewhere.
func (f *Fabric) Epoch() uint64 { return f.Fabric.Epoch() + f.changes.Load() }

// IsHere reports whether this machine has a node; also for one that does not exist.
func (f *Fabric) IsHere(node int) bool {
	return node < 0 || node >= len(f.cfg.Where) || f.elsewhere(node) == ""
}

// PortInfo is what the node of a port says of it.
func (f *Fabric) PortInfo(r topo.PortRef) (mad.PortInfo, bool) {
	if f.IsHere(r.Node) {
		return f.Fabric.PortInfo(r)
	}
	if p := f.mirror.port(r); p.known {
		return p.info, true
	}
	// Its machine is not reached: the fabric has such a port, and it is down.
	pi, ok := f.Fabric.PortInfo(r)
	return pi, ok
}

// PortState is how far a port's link is.
func (f *Fabric) PortState(r topo.PortRef) ib.PortState {
	if f.IsHere(r.Node) {
		return f.Fabric.PortState(r) // without all else that the node says of it
	}
	pi, _ := f.PortInfo(r)
	return pi.PortState
}

// PKeys is a port's partition table up to its last key.
func (f *Fabric) PKeys(r topo.PortRef) []ib.PKey {
	if f.IsHere(r.Node) {
		return f.Fabric.PKeys(r)
	}
	return f.mirror.port(r).pkeys
}

// GIDs is the table of addresses of a host's port.
func (f *Fabric) GIDs(r topo.PortRef) []ib.GID {
	if f.IsHere(r.Node) {
		return f.Fabric.GIDs(r)
	}
	return f.mirror.port(r).gids
}

// CountersOf reads ports' counters. Those of machines that are not reached are 0.
func (f *Fabric) CountersOf(refs []topo.PortRef) []ib.Counters {
	if !slices.ContainsFunc(refs, func(r topo.PortRef) bool { return !f.IsHere(r.Node) }) {
		return f.Fabric.CountersOf(refs) // as most fabrics are: half a million ports need not be sorted by machines
	}
	all := make([]ib.Counters, len(refs))
	by := map[string][]int{}
	for i, r := range refs {
		if m := f.cfg.Here; f.IsHere(r.Node) {
			by[m] = append(by[m], i)
		} else {
			m = f.cfg.Where[r.Node]
			by[m] = append(by[m], i)
		}
	}
	pick := func(m string) (list []topo.PortRef, some bool) {
		for _, i := range by[m] {
			list = append(list, refs[i])
		}
		return list, len(list) > 0
	}
	put := func(m string, got []ib.Counters) {
		for n, i := range by[m] {
			all[i] = got[n]
		}
	}
	if mine, some := pick(f.cfg.Here); some {
		put(f.cfg.Here, f.Fabric.CountersOf(mine))
	}
	for m, b := range askAll(f, opCounters, pick) {
		if got, ok := unpackCounters(b, len(by[m])); ok {
			put(m, got)
		}
	}
	return all
}

// Counters is CountersOf for one port.
func (f *Fabric) Counters(r topo.PortRef) ib.Counters { return f.CountersOf([]topo.PortRef{r})[0] }

// HostTraffic sums up what all hosts have sent into the fabric.
func (f *Fabric) HostTraffic() (pkts, words uint64) {
	pkts, words = f.Fabric.HostTraffic()
	for _, t := range askAll(f, opTraffic, always) {
		pkts, words = pkts+t[0], words+t[1]
	}
	return pkts, words
}

func always(string) (none struct{}, ok bool) { return none, true }

// waysMax bounds how often a way may go from machine to machine.
const waysMax = 256

// Way follows packets from an end port to an address, without sending any, from machine to machine.
func (f *Fabric) Way(from topo.PortRef, dlid ib.LID, sl ib.SL, pkey ib.PKey) (way inspect.Way, err error) {
	if !f.IsHere(from.Node) {
		return f.wayFrom(from, dlid, sl, pkey)
	}
	if way, err = f.Fabric.Way(from, dlid, sl, pkey); err != nil {
		return way, err
	}
	return f.goOn(way, dlid, sl, pkey)
}

// goOn completes a way that leaves for another machine.
func (f *Fabric) goOn(way inspect.Way, dlid ib.LID, sl ib.SL, pkey ib.PKey) (inspect.Way, error) {
	for range waysMax {
		next := way.Leaves
		if next == nil {
			return way, nil
		}
		in := next.In
		way.Hops, way.Leaves = append(way.Hops, *next), nil
		var on inspect.Way
		var err error
		if f.IsHere(in.Node) {
			on, err = f.Fabric.WayOn(in, next.VL, dlid, sl, pkey)
		} else {
			on, err = ask(f, f.cfg.Where[in.Node], opWay, wayAsked{In: in, VL: next.VL, DLID: dlid, SL: sl, PKey: pkey})
		}
		if err != nil {
			way.Lost, way.Reason = in, link.Inactive // nobody can say more of it
			return way, nil
		}
		way.Hops = append(way.Hops, on.Hops...)
		way.Lost, way.Reason, way.Out, way.Leaves = on.Lost, on.Reason, on.Out, on.Leaves
	}
	way.Reason = link.Looping
	return way, nil
}

// wayFrom is Way from a port of another machine.
func (f *Fabric) wayFrom(from topo.PortRef, dlid ib.LID, sl ib.SL, pkey ib.PKey) (way inspect.Way, err error) {
	q := wayAsked{In: from, DLID: dlid, SL: sl, PKey: pkey}
	if way, err = ask(f, f.cfg.Where[from.Node], opWayFrom, q); err != nil {
		return way, err
	}
	return f.goOn(way, dlid, sl, pkey)
}

// Probe sends one packet from a host's port to an address with a partition key, and says what becomes of it.
func (f *Fabric) Probe(from topo.PortRef, dlid ib.LID, sl ib.SL, key ib.PKey) (out inspect.Probed, err error) {
	q := probeAsked{wayAsked: wayAsked{In: from, DLID: dlid, SL: sl, PKey: key}}
	if out, err = f.probe(q); err != nil {
		return out, err
	}
	pi, _ := f.PortInfo(from)
	q.SLID = max(pi.LID, 1)
	for n := 0; out.Leaves != nil; n++ {
		q.In, q.VL = out.Leaves.In, out.Leaves.VL
		on, err := f.probe(q)
		if err != nil || n == waysMax {
			out.Leaves = nil // it was lost where its machine was
			break
		}
		out = on
	}
	return out, nil
}

// probe has the machine of a port send a probe, or take it further.
func (f *Fabric) probe(q probeAsked) (inspect.Probed, error) {
	switch {
	case !f.IsHere(q.In.Node):
		return ask(f, f.cfg.Where[q.In.Node], opProbe, q)
	case q.SLID == 0:
		return f.Fabric.Probe(q.In, q.DLID, q.SL, q.PKey)
	}
	return f.Fabric.ProbeOn(q.In, q.VL, q.SLID, q.DLID, q.SL, q.PKey)
}

// GuardManagement has the switches of all machines take no requests of subnet management from hosts, but at the ports
// where managers run.
func (f *Fabric) GuardManagement(on bool, managers []topo.PortRef) {
	f.Fabric.GuardManagement(on, managers)
	askAll(f, opGuard, func(string) (guardAsked, bool) { return guardAsked{on, managers}, true })
}

// RenewWays makes what has changed hold for everything that programs of any machine send from now on.
func (f *Fabric) RenewWays() {
	f.Fabric.RenewWays()
	askAll(f, opRenew, always)
	f.refresh()
}

// refresh makes what other machines have changed before the call seen here.
func (f *Fabric) refresh() {
	gens := map[string]int{}
	told := askAll(f, opPorts, func(m string) (q portsAsked, ok bool) {
		gens[m], q.Since = f.mirror.heard(m)
		return q, true
	})
	for m, t := range told {
		if f.mirror.hear(m, gens[m], t) && len(t.Nodes) > 0 {
			f.changes.Add(1)
		}
	}
}

// eachEnd does something to a cable at the machines that have its ends.
func (f *Fabric) eachEnd(r topo.PortRef, here func(topo.PortRef) error,
	there func(machine string, r topo.PortRef) error) error {
	ends := []topo.PortRef{r}
	if far := f.cfg.Graph.Peer(r); far.Port != 0 && f.Where(far.Node) != f.Where(r.Node) {
		ends = append(ends, far)
	}
	for _, e := range ends {
		var err error
		if m := f.elsewhere(e.Node); m == "" {
			err = here(e)
		} else {
			err = there(m, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// exists checks a port before somebody else is asked about it.
func (f *Fabric) exists(r topo.PortRef) error {
	if f.cfg.Graph.Peer(r).Port == 0 {
		return fmt.Errorf("span: no cable at %s: see the topology for the ports in use: %w",
			f.cfg.Graph.PortName(r), inspect.ErrFault)
	}
	return nil
}

// SetLink takes the cable at a port down or up again.
func (f *Fabric) SetLink(r topo.PortRef, up bool) error {
	if err := f.exists(r); err != nil {
		return err
	}
	return f.eachEnd(r, func(e topo.PortRef) error { return f.Fabric.SetLink(e, up) },
		func(m string, e topo.PortRef) error {
			no, err := ask(f, m, opLink, linkAsked{e, up})
			return no.err(err)
		})
}

// SetFault makes the cable at a port a bad one.
func (f *Fabric) SetFault(r topo.PortRef, fault inspect.Fault) error {
	if err := f.exists(r); err != nil {
		return err
	}
	return f.eachEnd(r, func(e topo.PortRef) error {
		if fault.OneWay && e != r {
			return nil
		}
		return f.Fabric.SetFault(e, fault)
	},
		func(m string, e topo.PortRef) error {
			if fault.OneWay && e != r {
				return nil
			}
			no, err := ask(f, m, opFault, faultAsked{e, &fault})
			return no.err(err)
		})
}

// ClearFault makes the cable at a port a good one again.
func (f *Fabric) ClearFault(r topo.PortRef) error {
	if err := f.exists(r); err != nil {
		return err
	}
	return f.eachEnd(r, f.Fabric.ClearFault, func(m string, e topo.PortRef) error {
		no, err := ask(f, m, opFault, faultAsked{Port: e})
		return no.err(err)
	})
}

// Faults are those that are set. One of a cable between machines, which each has at its end, is there once.
func (f *Fabric) Faults() []inspect.FaultState {
	all := f.Fabric.Faults()
	told := askAll(f, opFaults, always)
	for _, m := range f.others {
		for _, s := range told[m] {
			far := f.cfg.Graph.Peer(s.Port)
			if i := slices.IndexFunc(all, func(x inspect.FaultState) bool { return x.Port == far }); i >= 0 {
				all[i].Dropped += s.Dropped
				all[i].Corrupted += s.Corrupted
				continue
			}
			all = append(all, s)
		}
	}
	return all
}

// gather puts what all machines tell one behind the other, this one's first.
func gather[In, T any](f *Fabric, mine []T, o op[In, []T], in In) []T {
	told := askAll(f, o, func(string) (In, bool) { return in, true })
	for _, m := range f.others {
		mine = append(mine, told[m]...)
	}
	return mine
}

// Programs are the programs that are attached, on all machines.
func (f *Fabric) Programs() []inspect.ProgramStats {
	return gather(f, f.Fabric.Programs(), opPrograms, struct{}{})
}

// HostStats are what the programs of hosts have counted.
func (f *Fabric) HostStats() []inspect.HostStats { return gather(f, f.ownHosts(), opHosts, struct{}{}) }

// Peaks are the most that ports have carried in a moment.
func (f *Fabric) Peaks(over time.Duration) []inspect.PortPeak {
	return gather(f, f.Fabric.Peaks(over), opPeaks, over)
}

// Tables reads the forwarding tables of a switch as they are.
func (f *Fabric) Tables(node int) (t inspect.SwitchTables, ok bool) {
	if f.IsHere(node) {
		return f.Fabric.Tables(node)
	}
	if x, err := ask(f, f.cfg.Where[node], opTables, node); err == nil && x != nil {
		return *x, true
	}
	return t, f.cfg.Graph.Nodes[node].IsSwitch()
}

// Lanes reads the lanes of service levels at a switch.
func (f *Fabric) Lanes(node int) [][][ib.NumSL]ib.VL {
	if f.IsHere(node) {
		return f.Fabric.Lanes(node)
	}
	x, _ := ask(f, f.cfg.Where[node], opLanes, node)
	return x
}

// MgmtSession opens the management service of an end port. Where another machine has it, that of a port that is here
// serves as well: from any one all of the subnet is reached.
func (f *Fabric) MgmtSession(r topo.PortRef) (inspect.Session, error) {
	if !f.IsHere(r.Node) {
		own, ok := f.OwnPort()
		if !ok {
			return nil, fmt.Errorf("span: machine %s has no node to speak from", f.cfg.Here)
		}
		r = own
	}
	return f.Fabric.MgmtSession(r)
}

// OwnPort is an end port that is here: of a switch if there is one, else of a host.
func (f *Fabric) OwnPort() (r topo.PortRef, ok bool) {
	for i, n := range f.cfg.Graph.Nodes {
		if f.elsewhere(i) == "" && n.IsSwitch() {
			return topo.PortRef{Node: i}, true
		}
	}
	for i := range f.cfg.Graph.Nodes {
		if f.elsewhere(i) == "" {
			return topo.PortRef{Node: i, Port: 1}, true
		}
	}
	return r, false
}
