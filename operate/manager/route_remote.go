package manager

import (
	"context"
	"fmt"

	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
)

// Routed is a fabric that can say what its routers do with packets; *live.Fabric is one.
type Routed interface {
	// Relay is what a router does with a packet between two GIDs that comes in by one of its ports: by which it leaves,
	// and to which LID; or why it does not.
	Relay(in topo.PortRef, from, to ib.GID, hops uint8) (out topo.PortRef, dlid ib.LID, why link.Reason)
}

// isRemote reports whether two ports are in different subnets of a fabric with routers.
func isRemote(f Fabric, a, b topo.PortRef) bool {
	if len(f.Graph().Routers()) == 0 {
		return false
	}
	s := f.Graph().Subnets()
	return s.Of(a) != s.Of(b) && s.Of(a) >= 0 && s.Of(b) >= 0
}

// gidOf is the first GID of an end port.
func gidOf(f Fabric, r topo.PortRef) ib.GID {
	pi, _ := f.PortInfo(r)
	return ib.MakeGID(pi.GidPrefix, f.Graph().Nodes[r.Node].PortGUID(r.Port))
}

// routersMost bounds how many routers a way is followed over.
const routersMost = 16

// cross follows packets to another subnet: to the router that the administrator names, and on from each router as that
// decides.
func (w *Route) cross(ctx context.Context, f Fabric, x Routed) error {
	from, to := gidOf(f, w.From), gidOf(f, w.To.Port)
	a, err := NewAsker(f, w.From)
	if err != nil {
		return err
	}
	rec, err := a.PathTo(ctx, ManagerLIDs(f), to)
	a.Close()
	if err != nil || rec == nil {
		w.Why = fmt.Sprintf("the administrator knows no path to %v", to)
		w.Next = "softib log says what managers know of other subnets; softib status names the links that are down"
		return nil
	}
	w.Told = "the administrator's"
	at, dlid, dest := w.From, rec.DLID, w.To.LID
	for hops := rec.HopLimit; ; hops-- {
		way, err := f.Way(at, dlid, w.SL, w.PKey)
		if err != nil {
			return err
		}
		w.Hops = append(w.Hops, way.Hops...)
		end := way.End()
		if way.Reason != link.OK || f.Graph().Nodes[end.Node].Type != ib.NodeRouter {
			if way.Reason != link.OK {
				w.To.LID = dlid
			}
			w.judge(f, &way)
			w.To.LID = dest
			return nil
		}
		out, next, why := x.Relay(end, from, to, hops)
		if why != link.OK || rec.HopLimit-hops >= routersMost {
			w.Lost, w.Next = end, adviseTables
			w.Why = fmt.Sprintf("%s has no way on to %v: %v", f.Graph().Nodes[end.Node].Name, to, why)
			return nil
		}
		at, dlid = out, next
	}
}
