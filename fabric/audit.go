package fabric

import (
	"errors"
	"fmt"

	"softib/node/ibswitch"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/wire"
)

// ErrCredit is matched by every violation of credit conservation.
var ErrCredit = errors.New("credit")

// CreditError is a lane of a link on which credits are not conserved.
type CreditError struct {
	Time     ib.Time
	From, To topo.PortRef
	VL       ib.VL
	What     string
	Got      int
	Want     int
}

func (e *CreditError) Error() string {
	return fmt.Sprintf("fabric: %v: credit of VL%d from node %d[%d] to node %d[%d]: %s is %d, want %d",
		e.Time, e.VL, e.From.Node, e.From.Port, e.To.Node, e.To.Port, e.What, e.Got, e.Want)
}

// Unwrap makes errors.Is(err, ErrCredit) true.
func (e *CreditError) Unwrap() error { return ErrCredit }

// LinkCredit is one lane of one direction of a cable, as Credits reports it. In a lossless fabric the blocks that the
// sender may still send, those that fly, those in the receiver's buffer and those that the receiver has freed and not
// yet told make the buffer's size.
type LinkCredit struct {
	From, To  topo.PortRef
	VL        ib.VL
	Available int // what the sender may send
	InFlight  int // blocks on the cable
	Occupied  int // blocks in the receiver's buffer
	Untold    int // freed, not yet known to the sender
	Size      int // of the buffer
	Healing   bool
}

// inventory is what a walk over the whole fabric has counted, by place and lane.
type inventory struct {
	flying [][ib.NumVL]int
	held   [][ib.NumVL]int
	fcs    [][ib.NumVL]bool // a flow-control packet is on its way
}

func (e *Engine) takeInventory() inventory {
	n := len(e.ports)
	v := inventory{make([][ib.NumVL]int, n), make([][ib.NumVL]int, n), make([][ib.NumVL]bool, n)}
	e.q.each(func(d uint64) {
		place, arg := uint32(d>>32)&0xFFFFFF, uint32(d)
		switch kind(d >> 56) {
		case evArrive:
			f := e.pool.At(arg)
			if f.Flags&link.BadVCRC == 0 {
				v.flying[place][f.LRH.VL&15] += int(f.Blocks)
			}
		case evFC:
			v.fcs[place][unpackFC(arg).VL] = true
		case evRelease:
			c := unpackClaim(arg)
			v.hold(place, c)
		case evLate:
			f := e.pool.At(arg)
			v.hold(place, ibswitch.Claim{VL: f.InVL, Blocks: f.Blocks})
		}
	})
	var claims []ibswitch.Claim
	for node, sw := range e.switches {
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
func (v *inventory) hold(first uint32, c ibswitch.Claim) {
	n := int(c.Blocks)
	if c.VL == ib.VLMgmt {
		n = 1 // VL15's buffer counts packets
	}
	v.held[first+uint32(c.In)][c.VL] += n
}

// Credits is the state of every lane of every cable that is up.
func (e *Engine) Credits() []LinkCredit {
	inv := e.takeInventory()
	var list []LinkCredit
	for at, p := range e.ports {
		if p.Site.Peer == NoEnd || p.State() < ib.PortInit {
			continue
		}
		q := e.ports[p.Site.Peer]
		for vl := ib.VL(0); vl < ib.VL(p.OperVLs()); vl++ {
			tx, rx := p.Credit(vl), q.Credit(vl)
			list = append(list, LinkCredit{
				From: e.Ref(uint32(at)), To: e.Ref(p.Site.Peer), VL: vl,
				Available: tx.Available(), InFlight: inv.flying[p.Site.Peer][vl], Occupied: int(rx.Occupied),
				Untold: int(rx.Limit()-tx.FCCL) & wire.CreditMask, Size: int(rx.Size),
				Healing: p.Refreshing() || q.Refreshing(),
			})
		}
	}
	return list
}

// Audit checks that credits are conserved on every lane of every cable: what was sent was received or flies, what is
// received is held by a packet that exists, and the sender's limit is one that the receiver told. Cables on which
// something was lost lately are left out, since flow control is putting them right. Every violation is a *CreditError
// in what errors.Join joins.
func (e *Engine) Audit() error {
	inv := e.takeInventory()
	var errs []error
	for at, p := range e.ports {
		if p.Site.Peer == NoEnd || p.State() < ib.PortInit {
			continue
		}
		q := e.ports[p.Site.Peer]
		for vl := range ib.NumVL {
			bad := func(what string, got, want int) {
				if got != want {
					errs = append(errs, &CreditError{e.now, e.Ref(uint32(at)), e.Ref(p.Site.Peer), ib.VL(vl), what, got,
						want})
				}
			}
			tx, rx := p.Credit(ib.VL(vl)), q.Credit(ib.VL(vl))
			bad("occupied", int(rx.Occupied), inv.held[p.Site.Peer][vl])
			if vl == int(ib.VLMgmt) || p.Refreshing() || q.Refreshing() {
				continue
			}
			bad("sent and not received", int(tx.FCTBS-rx.ABR)&wire.CreditMask, inv.flying[p.Site.Peer][vl])
			if !inv.fcs[at][vl] {
				bad("limit", int(tx.FCCL), int(rx.Advertised))
			}
		}
	}
	return errors.Join(errs...)
}

// AtRest checks that nothing is left over in a fabric in which nothing happens
// any more: no packet in use, no buffer occupied, every credit back.
func (e *Engine) AtRest() error {
	var errs []error
	if n := e.pool.InUse(); n != 0 {
		errs = append(errs, fmt.Errorf("fabric: %v: %d packets are left in the fabric: want none", e.now, n))
	}
	for _, c := range e.Credits() {
		if c.Occupied != 0 || c.InFlight != 0 || c.Available+c.Untold != c.Size {
			errs = append(errs, &CreditError{e.now, c.From, c.To, c.VL, "available and untold", c.Available + c.Untold,
				c.Size})
		}
	}
	errs = append(errs, e.Audit())
	return errors.Join(errs...)
}
