package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"softib/node/inspect"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// Route is the way that packets take from one port to another, as the switches' own tables have it.
type Route struct {
	From topo.PortRef
	To   Destination
	SL   ib.SL
	PKey ib.PKey // 0 where nothing leaves the adapter
	// Told says where SL and partition come from.
	Told string
	Hops []inspect.WayHop
	// Arrives, or Why not, at the port Lost, and what to do Next.
	Arrives   bool
	Why, Next string
	Lost      topo.PortRef
}

// Destination is where packets are to go: a port, or only an address that no port may have.
type Destination struct {
	LID  ib.LID
	Port topo.PortRef // whose it is
	Has  bool         // Port is one
}

// RouteOptions are what packets are to have in place of what the administrator names for them.
type RouteOptions struct {
	SL   *ib.SL
	PKey *ib.PKey
}

// Route follows packets from an end port to another, at the service level and in the partition that the administrator
// names for them.
func (m *Manager) Route(ctx context.Context, from, to topo.PortRef) (Route, error) {
	dlid := m.LID(to)
	if dlid == 0 {
		return Route{}, fmt.Errorf("%s has no address yet: %w", m.g.PortName(to), ErrUnknown)
	}
	return Follow(ctx, m.opts.Fabric, from, Destination{LID: dlid, Port: to, Has: true}, RouteOptions{})
}

// Follow follows packets from an end port.
func Follow(ctx context.Context, f Fabric, from topo.PortRef, to Destination, o RouteOptions) (Route, error) {
	w := Route{From: from, To: to, Lost: from}
	if to.LID == 0 {
		w.Why = fmt.Sprintf("%s has no LID", EndName(f.Graph(), to.Port))
		w.Next = "softib status shows whether a manager has brought the subnet up"
		return w, nil
	}
	if to.Has && from == to.Port {
		w.Arrives, w.Told = true, "it is the same port: nothing leaves the adapter"
		return w, nil
	}
	w.choose(ctx, f, o)
	if keys := f.PKeys(from); len(keys) > 0 && !slices.ContainsFunc(keys, w.isPartition) {
		w.Why, w.Next = fmt.Sprintf("%s is not in partition %v itself", EndName(f.Graph(), from), w.PKey), adviseKeys
		return w, nil
	}
	if x, ok := f.(Routed); ok && to.Has && isRemote(f, from, to.Port) {
		err := w.cross(ctx, f, x)
		w.Arrives = err == nil && w.Why == ""
		return w, err
	}
	way, err := f.Way(from, to.LID, w.SL, w.PKey)
	if err != nil {
		return w, err
	}
	w.Hops = way.Hops
	w.judge(f, &way)
	w.Arrives = w.Why == ""
	return w, nil
}

// EndName writes an end port: a switch by its name alone, since its port 0 is the switch itself.
func EndName(g *topo.Graph, ref topo.PortRef) string {
	if ref.Port == 0 {
		return g.Nodes[ref.Node].Name
	}
	return g.PortName(ref)
}

func (w *Route) isPartition(k ib.PKey) bool { return k.Base() == w.PKey.Base() }

// choose takes the level and the partition that were asked for, or that the administrator names.
func (w *Route) choose(ctx context.Context, f Fabric, o RouteOptions) {
	w.PKey = ib.PKeyDefault
	mine := f.PKeys(w.From)
	if len(mine) > 0 {
		w.PKey = mine[0]
	}
	if w.To.Has {
		theirs := f.PKeys(w.To.Port)
		if i := slices.IndexFunc(mine, func(k ib.PKey) bool { return slices.ContainsFunc(theirs, k.Matches) }); i >= 0 {
			w.PKey = mine[i]
		}
	}
	w.Told = "as asked for"
	if o.SL == nil || o.PKey == nil {
		rec, err := pathRecord(ctx, f, w.From, w.To.LID)
		switch {
		case err == nil && rec != nil:
			w.SL, w.PKey, w.Told = rec.SL, rec.PKey, "the administrator's"
		case err == nil:
			w.Told = "assumed: the administrator knows no path"
		case errors.Is(err, ErrNoAnswer):
			w.Told = "assumed: no administrator answers"
		default:
			w.Told = "assumed: " + err.Error()
		}
	}
	if o.SL != nil {
		w.SL = *o.SL
	}
	if o.PKey != nil {
		w.PKey = *o.PKey
	}
	// Packets carry the sender's own key, with its own kind of membership.
	if i := slices.IndexFunc(mine, w.isPartition); i >= 0 {
		w.PKey = mine[i]
	}
}

// pathRecord asks the administrator for a path; nil where it knows none.
func pathRecord(ctx context.Context, f Fabric, from topo.PortRef, to ib.LID) (*mad.PathRecord, error) {
	a, err := NewAsker(f, from)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	recs, err := a.Paths(ctx, ManagerLIDs(f), []ib.LID{to})
	if err != nil {
		return nil, err
	}
	return recs[0], nil
}

// ManagerLIDs are the addresses of ports at which a subnet manager runs, as the ports themselves say.
func ManagerLIDs(f Fabric) (list []ib.LID) {
	for _, ref := range f.Graph().EndPorts() {
		if pi, ok := f.PortInfo(ref); ok && pi.LID.IsUnicast() && pi.CapabilityMask&mad.CapIsSM != 0 {
			list = append(list, pi.LID)
		}
	}
	return list
}

// Advice that several ends of a way share.
const (
	adviseTables = "softib route check judges all tables; softib log says what the manager did last"
	adviseLinks  = "softib status names the links that are down"
	adviseKeys   = "softib status lists the partitions; --pkey tries another"
)

// judge says in words where a way ends and why, unless it arrives where it should.
func (w *Route) judge(f Fabric, way *inspect.Way) {
	g := f.Graph()
	w.Lost = way.Lost
	lost := g.PortName(way.Lost)
	node := g.Nodes[way.Lost.Node].Name
	switch way.Reason {
	case link.OK:
		w.refused(f, way.End())
	case link.UnknownDLID:
		w.Why, w.Next = fmt.Sprintf("%s has no entry for LID %d", node, w.To.LID), adviseTables
		if way.Out == 0 {
			w.Why = fmt.Sprintf("%s takes LID %d for its own", node, w.To.LID)
		}
	case link.Looping:
		w.Why, w.Next = fmt.Sprintf("the tables run in a circle: %s sends it back by %s", node, lost), adviseTables
		if n := len(w.Hops); n > 1 && w.Hops[n-1].In != w.Hops[0].In && way.Out != way.Lost.Port {
			w.Why = fmt.Sprintf("the tables run in a circle: from %s it goes out by %s again", node,
				g.PortName(topo.PortRef{Node: way.Lost.Node, Port: way.Out}))
		}
	case link.Inactive:
		w.inactive(f, way)
	case link.BadVLMap:
		w.Why = fmt.Sprintf("%s has no lane for service level %d", node, w.SL)
		w.Next = "softib route trace --sl tries another"
	case link.PKeyIn:
		w.Why, w.Next = fmt.Sprintf("%s lets nothing of partition %v in", lost, w.PKey), adviseKeys
	case link.PKeyOut:
		w.Why, w.Next = fmt.Sprintf("%s lets nothing of partition %v out", lost, w.PKey), adviseKeys
	default:
		w.Why, w.Next = fmt.Sprintf("%s at %s", way.Reason, lost), adviseTables
	}
}

// inactive names the link that a way ends at.
func (w *Route) inactive(f Fabric, way *inspect.Way) {
	g := f.Graph()
	state := func(r topo.PortRef) ib.PortState {
		pi, _ := f.PortInfo(r)
		return pi.PortState
	}
	at := way.Lost
	if state(at) == ib.PortActive && g.Nodes[at.Node].IsSwitch() && way.Out != at.Port {
		at.Port = way.Out
	}
	x := g.Port(at)
	if x == nil || !x.Connected() {
		w.Why, w.Next = fmt.Sprintf("%s has no cable", g.PortName(at)), adviseTables
		return
	}
	far := topo.PortRef{Node: x.Peer, Port: x.PeerPort}
	w.Why, w.Next = fmt.Sprintf("the link from %s to %s is %s", g.PortName(at), g.PortName(far),
		inspect.StateName(min(state(at), state(far)))), adviseLinks
}

// refused says why the port where packets end will not have them, if it will not.
func (w *Route) refused(f Fabric, end topo.PortRef) {
	at := end
	if f.Graph().Nodes[end.Node].IsSwitch() {
		at.Port = 0
	}
	w.Lost = at
	pi, _ := f.PortInfo(at)
	if w.To.LID < pi.LID || w.To.LID >= pi.LID+1<<pi.LMC {
		w.Why = fmt.Sprintf("it comes to %s, whose LID is %d, not %d", EndName(f.Graph(), at), pi.LID, w.To.LID)
		w.Next = adviseTables
		return
	}
	keys := f.PKeys(at)
	if len(keys) == 0 || slices.ContainsFunc(keys, w.PKey.Matches) {
		return
	}
	w.Why, w.Next = fmt.Sprintf("%s is not in partition %v", EndName(f.Graph(), at), w.PKey), adviseKeys
	if slices.ContainsFunc(keys, w.isPartition) {
		w.Why = fmt.Sprintf("both are limited members of partition %v: they may not talk", w.PKey|ib.PKeyFull)
	}
}
