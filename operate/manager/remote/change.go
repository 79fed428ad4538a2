package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"softib/internal/patience"
	"softib/node/inspect"
	"softib/node/madrpc"
	"softib/operate/manager"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/survey"
)

// errWatched is what comes of a fault that only a cable in software can have.
var errWatched = fmt.Errorf("the cables of this fabric are not softib's, and cannot be made worse; next: rehearse "+
	"on a copy of it, softib up FILE with what ibnetdiscover prints: %w", manager.ErrFault)

// ErrReadOnly is matched where something would have to be changed and nothing may.
var ErrReadOnly = fmt.Errorf("this fabric is only watched; next: start softib watch with --allow-changes to "+
	"disable and enable ports: %w", manager.ErrFault)

// SetFault cannot be.
func (f *Fabric) SetFault(topo.PortRef, inspect.Fault) error { return errWatched }

// ClearFault finds none.
func (f *Fabric) ClearFault(r topo.PortRef) error {
	return fmt.Errorf("remote: the cable at %s has no fault: %w", f.Graph().PortName(r), manager.ErrFault)
}

// Faults are none: links that are down are known by LinksTaken.
func (f *Fabric) Faults() []inspect.FaultState { return nil }

// LinksTaken are the ports that SetLink has disabled, and since when.
func (f *Fabric) LinksTaken() map[topo.PortRef]time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.taken)
}

// askRetries is how often a question of people's is asked again: a real fabric may lose it.
const askRetries = 2

// SetLink disables or enables the port at one end of a cable: the end that can still be asked when the link is down.
func (f *Fabric) SetLink(r topo.PortRef, up bool) error {
	if !f.opts.AllowChanges {
		return ErrReadOnly
	}
	end, err := f.endToSet(r, up)
	if err != nil {
		return err
	}
	ctx, cancel := patience.Context(context.Background(), 10*time.Second)
	defer cancel()
	state := ib.PhysDisabled
	if up {
		state = ib.PhysPolling
	}
	if err := f.setPhys(ctx, end, state); err != nil {
		return fmt.Errorf("remote: %s: %w", f.Graph().PortName(end), err)
	}
	f.mu.Lock()
	if up {
		delete(f.taken, end)
	} else {
		f.taken[end] = time.Now()
	}
	f.mu.Unlock()
	ring(f.wake)
	return nil
}

// endToSet chooses the end of a cable: the one that was disabled if the link is to come up; else a switch, and of two
// the nearer one.
func (f *Fabric) endToSet(r topo.PortRef, up bool) (topo.PortRef, error) {
	g, v := f.Graph(), f.view.Load()
	p := g.Port(r)
	if p == nil || !p.Connected() {
		return r, fmt.Errorf("remote: no cable is plugged into %s: %w", g.PortName(r), manager.ErrFault)
	}
	ends := []topo.PortRef{r, {Node: p.Peer, Port: p.PeerPort}}
	if up {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, e := range ends {
			if _, ok := f.taken[e]; ok {
				return e, nil
			}
		}
	}
	best := topo.PortRef{Node: survey.None}
	for _, e := range ends {
		if e == v.from {
			return r, fmt.Errorf("remote: this fabric is watched through the cable at %s, which therefore stays "+
				"as it is: %w", g.PortName(r), manager.ErrFault)
		}
		if g.Nodes[e.Node].IsSwitch() && v.nodes[e.Node].seen &&
			(best.Node == survey.None || len(v.nodes[e.Node].route) < len(v.nodes[best.Node].route)) {
			best = e
		}
	}
	if best.Node == survey.None {
		return r, fmt.Errorf("remote: neither end of the cable at %s is a switch that answers: %w", g.PortName(r),
			manager.ErrFault)
	}
	return best, nil
}

// setPhys commands the physical state of a switch's port. What the port says of itself is written back but for what
// would be a command (IBA 14.2.5.6).
func (f *Fabric) setPhys(ctx context.Context, r topo.PortRef, state ib.PhysState) error {
	route := f.view.Load().nodes[r.Node].route
	q := mad.SMP{Method: mad.MethodGet, Attr: mad.AttrPortInfo, Modifier: uint32(r.Port), Directed: true, Path: route,
		MKey: f.opts.MKey}
	b, err := f.askSMP(ctx, q)
	if err != nil {
		return err
	}
	var pi mad.PortInfo
	if _, err := pi.Parse(b); err != nil {
		return err
	}
	pi.PortState, pi.PortPhysicalState, pi.ClientReregister = ib.PortNoChange, state, false
	q.Method, q.Data = mad.MethodSet, pi.Append(nil)
	if b, err = f.askSMP(ctx, q); err != nil {
		return err
	}
	if _, err := pi.Parse(b); err != nil {
		return err
	}
	if state == ib.PhysDisabled && pi.PortPhysicalState != ib.PhysDisabled && pi.PortState > ib.PortDown {
		return fmt.Errorf("the port was to be %v and says that it is %v", state, pi.PortPhysicalState)
	}
	return nil
}

// query is a question of the moment.
type query struct {
	class mad.Class
	env   mad.Envelope
	data  []byte
}

// askSMP asks one question of subnet management, and returns the data of the answer.
func (f *Fabric) askSMP(ctx context.Context, q mad.SMP) ([]byte, error) {
	b, err := q.Append(nil)
	if err != nil {
		return nil, err
	}
	answers, err := f.ask(ctx, []query{{mad.ClassSMDirect, mad.Envelope{LID: ib.LIDPermissive, QPN: ib.QPNSMI}, b}})
	if err != nil {
		return nil, err
	}
	if answers[0] == nil {
		return nil, manager.ErrNoAnswer
	}
	if s := mad.View(answers[0]).Status(); s != mad.StatusOK {
		return nil, fmt.Errorf("%v of %v was answered with %v", q.Method, q.Attr, s)
	}
	return answers[0][mad.SMPDataOff:][:mad.SMPDataLen], nil
}

// ask asks questions and waits for the answers; nil where none comes.
func (f *Fabric) ask(ctx context.Context, list []query) ([][]byte, error) {
	s := f.port.open()
	defer s.Close()
	ask := make([]manager.Question, len(list))
	for i, q := range list {
		id, err := s.Register(madrpc.Registration{Class: q.class})
		if err != nil {
			return nil, err
		}
		ask[i] = manager.Question{Agent: id, Env: q.env, Data: q.data}
	}
	answers, err := manager.Ask(ctx, s, askRetries, ask)
	for i, b := range answers {
		if len(b) < mad.Size {
			answers[i] = nil
		}
	}
	return answers, err
}

// clear clears counters that are about to stop, where that is allowed.
func (f *Fabric) clear(refs []topo.PortRef) {
	if len(refs) == 0 {
		return
	}
	if !f.opts.AllowChanges {
		f.once("full", manager.Event{Kind: "counters", Severity: manager.Warning, Object: f.shape.portName(refs[0]),
			Text: f.some("counters are about to stop at the most that they hold at ", refs) +
				"; next: start softib watch with --allow-changes, which clears them in time, or clear them " +
				"with perfquery -R"})
		return
	}
	v := f.view.Load()
	if v == nil {
		return // the first look: the next one will find them again
	}
	attr := mad.CounterAttrByID(mad.AttrPortCounters)
	var list []query
	var masks []uint64
	key := f.keyIndex(v)
	f.mu.Lock()
	for _, r := range refs {
		mask := f.totals[r.Node][r.Port].full()
		lidAt := r
		if f.shape.members[r.Node].isSwitch() {
			lidAt.Port = 0
		}
		h := mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassPerf, ClassVersion: 1, Method: mad.MethodSet,
			AttributeID: mad.AttrPortCounters}
		b := append(h.Append(nil), make([]byte, mad.Size-mad.HeaderSize)...)
		attr.SetPortSelect(b[mad.PMDataOff:], uint8(r.Port))
		attr.SetSelect(b[mad.PMDataOff:], mask)
		list = append(list, query{mad.ClassPerf, mad.Envelope{LID: v.port(lidAt).info.LID, QPN: ib.QPNGSI,
			QKey: ib.QKeyGSI, PKeyIndex: key}, b})
		masks = append(masks, mask)
	}
	f.mu.Unlock()
	ctx, cancel := patience.Context(context.Background(), 10*time.Second)
	defer cancel()
	answers, err := f.ask(ctx, list)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, b := range answers {
		if b != nil && mad.View(b).Status() == mad.StatusOK {
			f.totals[refs[i].Node][refs[i].Port].cleared(masks[i])
		}
	}
}

// keyIndex is the place of the default partition's key at our own port.
func (f *Fabric) keyIndex(v *view) uint16 {
	for i, k := range v.port(v.from).keys {
		if k.Base() == ib.PKeyDefault.Base() {
			return uint16(i)
		}
	}
	return 0
}
