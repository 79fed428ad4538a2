package manager

import (
	"context"
	"fmt"

	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
)

// Route is the way that packets take from one port to another, as the switches' own tables have it.
type Route struct {
	From, To topo.PortRef
	SL       ib.SL
	PKey     ib.PKey
	Hops     []Hop
	// Arrives, or Why not, at the port Lost.
	Arrives bool
	Why     string
	Lost    topo.PortRef
}

// Hop is a cable on the way.
type Hop struct {
	Out, In topo.PortRef
	VL      ib.VL
}

// Route follows packets from an end port to another, at the service level and in the partition that the administrator
// names for them; those of the default partition where it names none.
func (m *Manager) Route(ctx context.Context, from, to topo.PortRef) (Route, error) {
	w := Route{From: from, To: to, PKey: ib.PKeyDefault}
	dlid := m.LID(to)
	if dlid == 0 {
		return w, fmt.Errorf("%s has no address yet: %w", m.g.PortName(to), ErrUnknown)
	}
	if a, err := NewAsker(m.opts.Fabric, from); err == nil {
		info, _ := m.opts.Fabric.PortInfo(from)
		recs, err := a.Paths(ctx, []ib.LID{info.MasterSMLID}, []ib.LID{dlid})
		a.Close()
		if err == nil && recs[0] != nil {
			w.SL, w.PKey = recs[0].SL, recs[0].PKey
		}
	}
	way, err := m.opts.Fabric.Way(from, dlid, w.SL, w.PKey)
	if err != nil {
		return w, err
	}
	for _, h := range way.Hops {
		w.Hops = append(w.Hops, Hop{Out: h.Out, In: h.In, VL: h.VL})
	}
	w.Arrives = way.Reason == link.OK
	if !w.Arrives {
		w.Why, w.Lost = way.Reason.String(), way.Lost
	}
	return w, nil
}
