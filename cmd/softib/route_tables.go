package main

import (
	"context"
	"errors"
	"fmt"

	"softib/operate/control"
	"softib/operate/manager"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet"
	"softib/subnet/route"
	"softib/subnet/sm"
)

// wiring is a network with the names of what is in it.
type wiring struct {
	Net *route.Network `json:"net"`
	// Switches are the names by number, Dests those of the end ports by index into Net.Dests.
	Switches []string `json:"switches"`
	Dests    []string `json:"dests"`
	// Engine is what made the tables in force, where the fabric knows.
	Engine string `json:"engine,omitempty"`
	// Levels says how the service levels of the ways are known.
	Levels string `json:"levels,omitempty"`
	// Topology is the fabric as it is cabled, in ibnetdiscover's format, where it was asked for: links that are down
	// are not in it, and rates are those that links came up with.
	Topology string `json:"topology,omitempty"`
}

// tableRow is what one switch holds.
type tableRow struct {
	LFT []byte `json:"lft"`
	// SL is the level for packets of the switch's end ports, by destination; absent if all are 0.
	SL []byte `json:"sl,omitempty"`
	// Maps are the lanes of levels, 16 to a map, and Map says which one holds, by port of entry and port of exit;
	// absent if there is only one.
	Maps [][]byte `json:"maps"`
	Map  []uint16 `json:"map,omitempty"`
}

// tablesSaid is the network, or the next switch's tables.
type tablesSaid struct {
	Wiring *wiring   `json:"wiring,omitempty"`
	Table  *tableRow `json:"table,omitempty"`
}

// levelsAsked is up to how many ways the administrator is asked for their service levels.
const levelsAsked = 20_000

// tables answers with the whole network and all of its tables, for a client to judge: that takes a while, and the
// fabric has packets to carry.
func (s *server) tables(ctx context.Context, q routeRequest, r *control.Reply[tablesSaid]) error {
	f := s.f
	book := f.addresses()
	w := book.wiring()
	s.master(func(m *sm.Manager) { w.Engine = m.Subnet().Routing })
	levels, how, err := s.levels(ctx, book, w)
	if err != nil {
		return err
	}
	w.Levels = how
	if q.Topology {
		w.Topology = string(topo.Append(nil, f.cabled()))
	}
	if err := r.Say(tablesSaid{Wiring: w}); err != nil {
		return err
	}
	for i, n := range f.Graph().Switches() {
		t, _ := f.Tables(n.Index)
		row := tableRow{LFT: make([]byte, len(t.LFT))}
		for l, p := range t.LFT {
			row.LFT[l] = byte(p)
		}
		if levels != nil {
			row.SL = levels[i]
		}
		row.lanes(f.Lanes(n.Index))
		if err := r.Say(tablesSaid{Table: &row}); err != nil {
			return err
		}
	}
	return nil
}

// lanes notes the mapping of all pairs of ports.
func (r *tableRow) lanes(lanes [][][ib.NumSL]ib.VL) {
	seen := map[[ib.NumSL]ib.VL]uint16{}
	var which []uint16
	for in := range lanes {
		for _, m := range lanes[in] {
			at, known := seen[m]
			if !known {
				at = uint16(len(r.Maps))
				seen[m] = at
				b := make([]byte, len(m))
				for sl, vl := range m {
					b[sl] = byte(vl)
				}
				r.Maps = append(r.Maps, b)
			}
			which = append(which, at)
		}
	}
	if len(r.Maps) > 1 {
		r.Map = which
	}
}

// wiring is the network of the links that are ACTIVE, with the addresses that the ports have.
func (book *addressBook) wiring() *wiring {
	f := book.f
	g := f.Graph()
	net := route.FromGraphLIDs(g, func(r topo.PortRef) (ib.LID, uint8) {
		pi, _ := f.PortInfo(r)
		return book.of[r], pi.LMC
	})
	number := map[int]int32{}
	for i, n := range g.Switches() {
		number[n.Index] = int32(i)
	}
	for _, c := range g.Cables() {
		if min(f.PortState(c.A), f.PortState(c.B)) == ib.PortActive {
			continue
		}
		a, b := g.Nodes[c.A.Node], g.Nodes[c.B.Node]
		switch {
		case a.IsSwitch() && b.IsSwitch():
			net.Cut(route.Link{Switch: number[a.Index], Port: c.A.Port})
		case a.IsSwitch():
			net.Switches[number[a.Index]].Ends--
		case b.IsSwitch():
			net.Switches[number[b.Index]].Ends--
		}
	}
	// End ports behind a dead link are nobody's destination.
	kept := net.Dests[:0]
	for _, d := range net.Dests {
		sw := g.Switches()[d.Switch]
		if d.IsEnd() {
			x := &sw.Ports[d.Port]
			if min(f.PortState(topo.PortRef{Node: sw.Index, Port: d.Port}),
				f.PortState(topo.PortRef{Node: x.Peer, Port: x.PeerPort})) != ib.PortActive {
				continue
			}
		}
		kept = append(kept, d)
	}
	net.Dests = kept
	w := &wiring{Net: net}
	w.name(g)
	return w
}

// name fills in the names of a network that was made of a graph.
func (w *wiring) name(g *topo.Graph) {
	for _, n := range g.Switches() {
		w.Switches = append(w.Switches, n.Name)
	}
	for _, d := range w.Net.Dests {
		sw := g.Switches()[d.Switch]
		name := sw.Name
		if d.IsEnd() {
			x := &sw.Ports[d.Port]
			name = g.PortName(topo.PortRef{Node: x.Peer, Port: x.PeerPort})
		}
		w.Dests = append(w.Dests, name)
	}
}

// levels finds out which service level packets take, from each switch's end ports to each destination; nil if all take
// 0.
func (s *server) levels(ctx context.Context, book *addressBook, w *wiring) (levels [][]byte, how string, err error) {
	var from []int
	for i := range w.Net.Switches {
		if w.Net.Switches[i].Ends > 0 {
			from = append(from, i)
		}
	}
	if len(from)*len(w.Net.Dests) <= levelsAsked {
		levels, err = book.askLevels(ctx, w, from)
		if err == nil || !errors.Is(err, manager.ErrNoAnswer) {
			return someLevel(levels), "asked of the administrator", err
		}
		return nil, "assumed to be 0: no administrator answers", nil
	}
	levels = make([][]byte, len(w.Net.Switches))
	if s.master(func(m *sm.Manager) { routedLevels(m.Subnet(), w, levels) }) {
		return someLevel(levels), "as routing planned them", nil
	}
	return nil, "assumed to be 0: too many ways to ask for", nil
}

// someLevel is nil if all levels are 0.
func someLevel(levels [][]byte) [][]byte {
	for _, row := range levels {
		for _, sl := range row {
			if sl != 0 {
				return levels
			}
		}
	}
	return nil
}

// askLevels asks the administrator from the first end port of each switch.
func (book *addressBook) askLevels(ctx context.Context, w *wiring, from []int) ([][]byte, error) {
	f := book.f
	g := f.Graph()
	lids := make([]ib.LID, len(w.Net.Dests))
	first := map[int32]topo.PortRef{}
	for i, d := range w.Net.Dests {
		lids[i] = d.LID
		if _, has := first[d.Switch]; !has && d.IsEnd() {
			x := &g.Switches()[d.Switch].Ports[d.Port]
			first[d.Switch] = topo.PortRef{Node: x.Peer, Port: x.PeerPort}
		}
	}
	levels := make([][]byte, len(w.Net.Switches))
	for _, s := range from {
		ref, has := first[int32(s)]
		if !has {
			continue
		}
		a, err := manager.NewAsker(f.Fabric, ref)
		if err != nil {
			return nil, err
		}
		recs, err := a.Paths(ctx, book.managers, lids)
		a.Close()
		if err != nil {
			return nil, err
		}
		levels[s] = make([]byte, len(recs))
		for i, r := range recs {
			if r != nil {
				levels[s][i] = byte(r.SL)
			}
		}
	}
	return levels, nil
}

// routedLevels takes the levels from the manager's own plan.
func routedLevels(sub *subnet.Subnet, w *wiring, levels [][]byte) {
	if sub.Levels == nil {
		return
	}
	for s := range w.Net.Switches {
		at, ok := sub.ByGUID(w.Net.Switches[s].GUID)
		if !ok || w.Net.Switches[s].Ends == 0 {
			continue
		}
		levels[s] = make([]byte, len(w.Net.Dests))
		ref, ok := sub.ByLID(sub.Nodes[at].BaseLID(0)) // levels go by switch: the switch stands for its end ports
		if !ok {
			continue
		}
		for i, d := range w.Net.Dests {
			levels[s][i] = byte(sub.Levels.Level(ref, d.LID))
		}
	}
}

// heldTables puts a running fabric's tables together at the client.
type heldTables struct {
	w    *wiring
	rows []tableRow
}

func (p place) heldTables(ctx context.Context) (*heldTables, error) {
	return p.askTables(ctx, routeRequest{})
}

func (p place) askTables(ctx context.Context, r routeRequest) (*heldTables, error) {
	h := &heldTables{}
	err := askFabric(ctx, p, opTables, r, func(a tablesSaid) error {
		switch {
		case a.Wiring != nil:
			h.w = a.Wiring
		case a.Table != nil:
			h.rows = append(h.rows, *a.Table)
		}
		return nil
	})
	if err == nil && (h.w == nil || h.w.Net == nil || len(h.rows) != len(h.w.Net.Switches) ||
		len(h.w.Switches) != len(h.rows) || len(h.w.Dests) != len(h.w.Net.Dests)) {
		err = fmt.Errorf("fabric %s answered without all of its tables", p.name)
	}
	return h, err
}

// tables makes them what routing's judge takes.
func (h *heldTables) tables() *route.Tables {
	n := h.w.Net
	t := &route.Tables{Engine: h.w.Engine, VLs: 1, LFT: make([][]ib.PortNum, len(h.rows))}
	used := [ib.NumSL]bool{true}
	for s, r := range h.rows {
		row := make([]ib.PortNum, int(n.Top)+1)
		for l := range row {
			row[l] = route.NoPort
			if l < len(r.LFT) {
				row[l] = ib.PortNum(r.LFT[l])
			}
		}
		t.LFT[s] = row
		if r.SL == nil {
			continue
		}
		if t.SL == nil {
			t.SL = make([][]ib.SL, len(h.rows))
		}
		t.SL[s] = make([]ib.SL, len(n.Dests))
		for i, sl := range r.SL {
			if i < len(t.SL[s]) {
				t.SL[s][i] = ib.SL(sl & 15)
				used[sl&15] = true
			}
		}
	}
	if !h.plain(used) {
		t.SLtoVL = h
	}
	return t
}

// plain reports whether every level in use has the lane of its number everywhere.
func (h *heldTables) plain(used [ib.NumSL]bool) bool {
	for _, r := range h.rows {
		for _, m := range r.Maps {
			for sl, vl := range m {
				if sl < len(used) && used[sl] && int(vl) != sl {
					return false
				}
			}
		}
	}
	return true
}

// VL is the lane that a switch's own mapping gives.
func (h *heldTables) VL(sw int32, in, out ib.PortNum, sl ib.SL) ib.VL {
	if sw < 0 || int(sw) >= len(h.rows) {
		return ib.VL(sl)
	}
	r := &h.rows[sw]
	at := 0
	if r.Map != nil {
		ports := len(h.w.Net.Switches[sw].Ports)
		if i := int(in)*ports + int(out); i < len(r.Map) {
			at = int(r.Map[i])
		}
	}
	if at >= len(r.Maps) || int(sl) >= len(r.Maps[at]) {
		return 0
	}
	return ib.VL(r.Maps[at][sl])
}
