package sm

import (
	"softib/ib"
	"softib/route"
)

type routePlan struct{ Rounds []routeRound }
type routeRound struct{ Writes []routeWrite }
type routeWrite struct {
	Switch  int32
	Block   int
	Entries [64]ib.PortNum
}

func routeTransition(n *route.Network, old, new *route.Tables) routePlan {
	var p routePlan
	var r routeRound
	for s := range new.LFT {
		for b := 0; b*64 < len(new.LFT[s]); b++ {
			var o, w routeWrite
			for k := range w.Entries {
				o.Entries[k], w.Entries[k] = 255, 255
			}
			copy(o.Entries[:], old.LFT[s][b*64:])
			copy(w.Entries[:], new.LFT[s][b*64:])
			w.Switch, w.Block = int32(s), b
			if o.Entries != w.Entries {
				r.Writes = append(r.Writes, w)
			}
		}
	}
	p.Rounds = append(p.Rounds, r)
	return p
}
