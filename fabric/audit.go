package fabric

import (
	"errors"
	"fmt"

	"softib/node/ibswitch"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/wire"
)

// ErrCredit is matched by every violation of credit conservation.
var ErrCredit = errors.New("credit")

// inventory is what a walk over the whole fabric has counted, by place and lane.
type inventory [][ib.NumVL]struct {
	flying int  // blocks on their way
	held   int  // blocks that packets occupy
	fc     bool // a flow-control packet is on its way
}

// Kept is a packet that has arrived at a host's place and that the driver has not taken: its buffer is occupied.
type Kept struct {
	Place uint32
	Frame *link.Frame
}

func (e *Engine) takeInventory(kept []Kept) inventory {
	v := make(inventory, len(e.ports))
	for _, k := range kept {
		v.hold(k.Place, ibswitch.Claim{VL: k.Frame.InVL, Blocks: k.Frame.Blocks})
	}
	e.q.each(func(ev *event) {
		switch k, place, arg := split(ev.d); k {
		case evArrive:
			f := e.pool.At(arg)
			if f.Flags&link.BadVCRC == 0 {
				v[place][f.LRH.VL&15].flying += int(f.Blocks)
			}
		case evFC:
			v[place][unpackFC(arg).VL].fc = true
		case evRelease:
			v.hold(place, unpackClaim(arg))
		case Arrived: // when its time has come
			f := e.pool.At(arg)
			v.hold(place, ibswitch.Claim{VL: f.InVL, Blocks: f.Blocks})
		}
	})
	var claims []ibswitch.Claim
	for node, sw := range e.switches {
		if r := e.Router(node); r != nil {
			var frames []*link.Frame
			for _, p := range e.portsOf(node) {
				frames = p.AppendQueued(frames)
			}
			for _, f := range r.Holders(frames) {
				v.hold(e.first[node], ibswitch.Claim{In: f.InPort, VL: f.InVL, Blocks: f.Blocks})
			}
		}
		if sw == nil {
			continue
		}
		claims = sw.AppendClaims(claims[:0])
		for _, c := range claims {
			v.hold(e.first[node], c)
		}
	}
	return v
}

// hold counts a claim on a buffer of the node whose first place is given.
func (v inventory) hold(first uint32, c ibswitch.Claim) {
	n := int(c.Blocks)
	if c.VL == ib.VLMgmt {
		n = 1 // VL15's buffer counts packets
	}
	v[first+uint32(c.In)][c.VL].held += n
}

// Audit checks that credits are conserved on every lane of every cable: what was sent was received or flies, what is
// received is held by a packet that exists, here or with the driver, and the sender's limit is one that the receiver
// told. Cables on which something was lost lately are left out, since flow control is putting them right. Every
// violation is an ErrCredit in what errors.Join joins.
func (e *Engine) Audit(kept ...Kept) error { return e.audit(false, kept) }

// AtRest checks that nothing is left over in a fabric in which nothing happens any more: no packet in use, no buffer
// occupied, every credit back.
func (e *Engine) AtRest() error {
	err := e.audit(true, nil)
	if n := e.pool.InUse(); n != 0 {
		left := fmt.Errorf("fabric: %v: %d packets are left in the fabric: want none", e.now, n)
		err = errors.Join(left, err)
	}
	return err
}

func (e *Engine) audit(rest bool, kept []Kept) error {
	inv := e.takeInventory(kept)
	var errs []error
	for at, p := range e.ports {
		peer := p.Site.Peer
		if peer == NoEnd || p.State() < ib.PortInit {
			continue
		}
		q := e.ports[peer]
		for vl := range ib.VL(ib.NumVL) {
			bad := func(what string, got, want int) {
				if got != want {
					const text = "fabric: %v: %w of VL%d from node %d[%d] to node %d[%d]: %s is %d, want %d"
					errs = append(errs, fmt.Errorf(text, e.now, ErrCredit, vl, p.Site.Node, p.Site.Num, q.Site.Node,
						q.Site.Num, what, got, want))
				}
			}
			tx, rx, there := p.Credit(vl), q.Credit(vl), inv[peer][vl]
			if p.Flow() != link.Credits {
				bad("occupied", int(rx.Occupied), there.held)
				if rest {
					bad("occupied at rest", int(rx.Occupied), 0)
					bad("in flight at rest", there.flying, 0)
				}
				continue
			}
			if rest && uint8(vl) < p.OperVLs() {
				// All of the buffer is what the sender may send, or was freed and is not yet told.
				untold := int(rx.Limit()-tx.FCCL) & wire.CreditMask
				bad("available and untold", tx.Available()+untold, int(rx.Size))
				bad("occupied at rest", int(rx.Occupied), 0)
				bad("in flight at rest", there.flying, 0)
			}
			bad("occupied", int(rx.Occupied), there.held)
			if vl == ib.VLMgmt || p.Refreshing() || q.Refreshing() {
				continue
			}
			bad("sent and not received", int(tx.FCTBS-rx.ABR)&wire.CreditMask, there.flying)
			if !inv[at][vl].fc {
				bad("limit", int(tx.FCCL), int(rx.Advertised))
			}
		}
	}
	return errors.Join(errs...)
}
