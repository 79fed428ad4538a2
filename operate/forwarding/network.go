package forwarding

import (
	"context"
	"errors"
	"fmt"

	"softib/operate/manager"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet"
	"softib/subnet/route"
	"softib/subnet/sm"
)

// Network is a network with the names of what is in it.
type Network struct {
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
	// Sweeping says that a manager was still at work: tables may be of before, or of no moment at all.
	Sweeping bool `json:"sweeping,omitempty"`
	// Waited is how long that was waited for in vain, and at which load.
	Waited string `json:"waited,omitempty"`
}

// Row is what one switch holds.
type Row struct {
	LFT []byte `json:"lft"`
	// SL is the level for packets of the switch's end ports, by destination; absent if all are 0.
	SL []byte `json:"sl,omitempty"`
	// Maps are the lanes of levels, 16 to a map, and Map says which one holds, by port of entry and port of exit;
	// absent if there is only one.
	Maps [][]byte `json:"maps"`
	Map  []uint16 `json:"map,omitempty"`
}

// Part is a part of all tables: the network, which comes first, or the tables of its next switch.
type Part struct {
	Network *Network `json:"network,omitempty"`
	Row     *Row     `json:"table,omitempty"`
}

// levelsAsked is up to how many ways the administrator is asked for their service levels.
const levelsAsked = 20_000

// Read says the whole network and all of its tables, for somebody else to judge: that takes a while, and the fabric has
// packets to carry. Managers are the subnet managers of this process; with topology the cabling comes too.
func Read(ctx context.Context, f Fabric, managers []manager.Subnet, topology bool, say func(Part) error) error {
	r := reader{NewBook(f), managers}
	w := r.network()
	r.master(func(m *sm.Manager) { w.Engine = m.Subnet().Routing })
	levels, how, err := r.levels(ctx, w)
	if err != nil {
		return err
	}
	w.Levels = how
	if topology {
		w.Topology = string(topo.Append(nil, r.cabled()))
	}
	if err := say(Part{Network: w}); err != nil {
		return err
	}
	for i, n := range f.Graph().Switches() {
		t, _ := f.Tables(n.Index)
		row := Row{LFT: make([]byte, len(t.LFT))}
		for l, p := range t.LFT {
			row.LFT[l] = byte(p)
		}
		if levels != nil {
			row.SL = levels[i]
		}
		row.lanes(f.Lanes(n.Index))
		if err := say(Part{Row: &row}); err != nil {
			return err
		}
	}
	return nil
}

// reader reads a fabric's tables.
type reader struct {
	*Book
	managers []manager.Subnet
}

// master calls do with the manager of this process that is the master and has the subnet up, if one has.
func (r *reader) master(do func(*sm.Manager)) bool {
	found := false
	for _, x := range r.managers {
		_ = x.Do(func(m *sm.Manager) {
			if !found && m.State() == mad.SMMaster && m.Subnet() != nil {
				found = true
				do(m)
			}
		})
	}
	return found
}

// cabled is the fabric as it is cabled: links that are down are not in it, and rates are those that links came up with.
func (r *reader) cabled() *topo.Graph {
	g := r.g.Clone()
	for _, c := range r.g.Cables() {
		if stateOf(r.f, c.A, c.B) <= ib.PortDown {
			if err := g.Disconnect(c.A.Node, c.A.Port); err != nil {
				panic(err) // the clone has every cable of its original
			}
			continue
		}
		for _, end := range [2]topo.PortRef{c.A, c.B} {
			if pi, ok := r.f.PortInfo(end); ok && pi.Rate().Mbps() > 0 {
				x := g.Port(end)
				x.Width, x.Speed = pi.Rate().Width, pi.Rate().Speed
			}
		}
	}
	return g
}

// lanes notes the mapping of all pairs of ports.
func (r *Row) lanes(lanes [][][ib.NumSL]ib.VL) {
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

// network is that of the links that are ACTIVE, with the addresses that the ports have.
func (b *Book) network() *Network { return Named(manager.ActiveNetwork(b.f), b.g) }

// Named is a network that was made of a graph, with its names.
func Named(net *route.Network, g *topo.Graph) *Network {
	w := &Network{Net: net}
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
	return w
}

// levels finds out which service level packets take, from each switch's end ports to each destination; nil if all take
// 0.
func (r *reader) levels(ctx context.Context, w *Network) (levels [][]byte, how string, err error) {
	var from []int
	for i := range w.Net.Switches {
		if w.Net.Switches[i].Ends > 0 {
			from = append(from, i)
		}
	}
	if len(from)*len(w.Net.Dests) <= levelsAsked {
		levels, err = r.askLevels(ctx, w, from)
		if err == nil || !errors.Is(err, manager.ErrNoAnswer) {
			return someLevel(levels), "asked of the administrator", err
		}
		return nil, "assumed to be 0: no administrator answers", nil
	}
	levels = make([][]byte, len(w.Net.Switches))
	if r.master(func(m *sm.Manager) { routedLevels(m.Subnet(), w, levels) }) {
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
func (b *Book) askLevels(ctx context.Context, w *Network, from []int) ([][]byte, error) {
	g := b.g
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
	managers := manager.ManagerLIDs(b.f)
	for _, s := range from {
		ref, has := first[int32(s)]
		if !has {
			continue
		}
		a, err := manager.NewAsker(b.f, ref)
		if err != nil {
			return nil, err
		}
		recs, err := a.Paths(ctx, managers, lids)
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
func routedLevels(sub *subnet.Subnet, w *Network, levels [][]byte) {
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

// Held puts a fabric's tables together again.
type Held struct {
	Network *Network
	Rows    []Row
}

// Add takes the next part.
func (h *Held) Add(p Part) {
	switch {
	case p.Network != nil:
		h.Network = p.Network
	case p.Row != nil:
		h.Rows = append(h.Rows, *p.Row)
	}
}

// IsWhole reports whether all parts are there.
func (h *Held) IsWhole() bool {
	w := h.Network
	return w != nil && w.Net != nil && len(h.Rows) == len(w.Net.Switches) && len(w.Switches) == len(h.Rows) &&
		len(w.Dests) == len(w.Net.Dests)
}

// Tables makes them what routing's judge takes.
func (h *Held) Tables() *route.Tables {
	n := h.Network.Net
	t := &route.Tables{Engine: h.Network.Engine, VLs: 1, LFT: make([][]ib.PortNum, len(h.Rows))}
	used := [ib.NumSL]bool{true}
	for s, r := range h.Rows {
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
			t.SL = make([][]ib.SL, len(h.Rows))
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
func (h *Held) plain(used [ib.NumSL]bool) bool {
	for _, r := range h.Rows {
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
func (h *Held) VL(sw int32, in, out ib.PortNum, sl ib.SL) ib.VL {
	if sw < 0 || int(sw) >= len(h.Rows) {
		return ib.VL(sl)
	}
	r := &h.Rows[sw]
	at := 0
	if r.Map != nil {
		ports := len(h.Network.Net.Switches[sw].Ports)
		if i := int(in)*ports + int(out); i < len(r.Map) {
			at = int(r.Map[i])
		}
	}
	if at >= len(r.Maps) || int(sl) >= len(r.Maps[at]) {
		return 0
	}
	return ib.VL(r.Maps[at][sl])
}

// Step is a cable in one direction: leaf1[5] -> spine1[1].
func (w *Network) Step(s int32, p ib.PortNum) string {
	if s < 0 || int(s) >= len(w.Switches) {
		return "no switch"
	}
	from := fmt.Sprintf("%s[%d]", w.Switches[s], p)
	if int(p) < len(w.Net.Switches[s].Ports) {
		if h := w.Net.Switches[s].Ports[p]; h.To != route.NoSwitch {
			return fmt.Sprintf("%s -> %s[%d]", from, w.Switches[h.To], h.Port)
		}
	}
	return from
}

// Dest names the end port of a LID.
func (w *Network) Dest(l ib.LID) string {
	for i, d := range w.Net.Dests {
		if d.LID == l {
			return fmt.Sprintf("%s (LID %d)", w.Dests[i], l)
		}
	}
	return fmt.Sprintf("LID %d", l)
}
