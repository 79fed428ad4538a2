package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"softib/internal/patience"
	"softib/node/inspect"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"

	"softib/operate/manager/tenant"
)

// OpenMgmt opens a management service of the fabric.
func (m *Manager) OpenMgmt(r topo.PortRef) (inspect.Session, error) {
	return m.opts.Fabric.MgmtSession(r)
}

// Asker asks managers and administrators with datagrams, from an end port of a fabric. So it is told what any
// program at that port is told, whoever manages the fabric.
type Asker struct {
	s    inspect.Session
	smp  madrpc.AgentID
	sa   madrpc.AgentID
	info mad.PortInfo
	far  bool // the port is another machine's, and the session that of a port which is here
}

// Machines is a fabric that spans machines.
type Machines interface {
	// IsHere reports whether this machine has a node, and Where names the one that has it.
	IsHere(node int) bool
	Where(node int) string
}

// Patience with managers: they run in this machine, or near it.
const (
	askTimeout = 500 * ib.Millisecond
	askRetries = 1
	askWindow  = 64
)

// ErrNoAnswer is what comes of a question that nobody answers.
var ErrNoAnswer = errors.New("no answer")

// NewAsker opens the management service of a port.
func NewAsker(f Fabric, ref topo.PortRef) (*Asker, error) {
	s, err := f.MgmtSession(ref)
	if err != nil {
		return nil, err
	}
	a := &Asker{s: s}
	class := mad.ClassSMDirect
	if m, ok := f.(Machines); ok && !m.IsHere(ref.Node) {
		a.far, class = true, mad.ClassSMLID
	}
	a.smp, err = s.Register(madrpc.Registration{Class: class, ClassVersion: 1, Name: "softib status"})
	if err == nil {
		a.sa, err = s.Register(madrpc.Registration{Class: mad.ClassSA, ClassVersion: mad.SAVersion, RMPP: true,
			Name: "softib route"})
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	a.info, _ = f.PortInfo(ref)
	return a, nil
}

// Close ends it.
func (a *Asker) Close() { a.s.Close() }

// ManagerHere asks the manager at this port who it is. Without the port's M_Key it may not say all.
func (a *Asker) ManagerHere(ctx context.Context, mkey uint64) (info mad.SMInfo, err error) {
	b, err := (&mad.SMP{Method: mad.MethodGet, Attr: mad.AttrSMInfo, MKey: mkey, Directed: !a.far}).Append(nil)
	if err != nil {
		return info, err
	}
	lid := ib.LIDPermissive
	if a.far {
		lid = a.info.LID
	}
	answers, err := a.ask(ctx, a.smp, []Question{{Env: mad.Envelope{LID: lid, QPN: ib.QPNSMI}, Data: b}})
	if err != nil {
		return info, err
	}
	if answers[0] == nil {
		return info, ErrNoAnswer
	}
	if s := mad.View(answers[0]).Status(); s != mad.StatusOK {
		return info, fmt.Errorf("SMInfo was answered with %v", s)
	}
	_, err = info.Parse(answers[0][mad.SMPDataOff:][:mad.SMPDataLen])
	return info, err
}

// Paths asks the administrator for the way from this port to each of some LIDs; nil where it knows none. Managers are
// the LIDs of ports at which one runs: nobody else is asked.
func (a *Asker) Paths(ctx context.Context, managers, lids []ib.LID) ([]*mad.PathRecord, error) {
	want := make([]mad.PathRecord, len(lids))
	for i, lid := range lids {
		want[i] = mad.PathRecord{SLID: a.info.LID, DLID: lid, NumbPath: 1}
	}
	return a.paths(ctx, managers, []string{"SLID", "DLID", "NumbPath"}, want)
}

// PathTo asks for a path to a GID; nil where the administrator knows none.
func (a *Asker) PathTo(ctx context.Context, managers []ib.LID, gid ib.GID) (*mad.PathRecord, error) {
	recs, err := a.paths(ctx, managers, []string{"SLID", "DGID", "NumbPath"},
		[]mad.PathRecord{{SLID: a.info.LID, DGID: gid, NumbPath: 1}})
	if err != nil {
		return nil, err
	}
	return recs[0], nil
}

// paths asks for one path each that fits what is wanted of some components.
func (a *Asker) paths(ctx context.Context, managers []ib.LID, components []string,
	want []mad.PathRecord) ([]*mad.PathRecord, error) {
	if !slices.Contains(managers, a.info.MasterSMLID) {
		return nil, ErrNoAnswer // the port knows of none, or of one that is gone
	}
	comps := uint64(0)
	for _, c := range components {
		comps |= mad.PathRecordTable.Component(c)
	}
	env := mad.Envelope{LID: a.info.MasterSMLID, QPN: ib.QPNGSI, QKey: ib.QKeyGSI, SL: a.info.MasterSMSL}
	list := make([]Question, len(want))
	for i := range want {
		h := mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassSA, ClassVersion: mad.SAVersion,
			Method: mad.MethodGet, AttributeID: mad.AttrPathRecord}
		b := h.Append(nil)
		b = (&mad.RMPP{}).Append(b)
		b = (&mad.SAHeader{ComponentMask: comps}).Append(b)
		b = want[i].Append(b)
		list[i] = Question{Env: env, Data: append(b, make([]byte, mad.Size-len(b))...)}
	}
	answers, err := a.ask(ctx, a.sa, list)
	if err != nil {
		return nil, err
	}
	recs := make([]*mad.PathRecord, len(want))
	silent := 0
	for i, b := range answers {
		if b == nil {
			silent++
			continue
		}
		var rec mad.PathRecord
		if len(b) < mad.SADataOff || mad.View(b).Status() != mad.StatusOK {
			continue
		}
		if _, err := rec.Parse(b[mad.SADataOff:]); err == nil {
			recs[i] = &rec
		}
	}
	if silent > 0 && silent == len(want) {
		return recs, ErrNoAnswer
	}
	return recs, nil
}

// ask asks with one agent.
func (a *Asker) ask(ctx context.Context, id madrpc.AgentID, list []Question) ([][]byte, error) {
	for i := range list {
		list[i].Agent = id
	}
	return Ask(ctx, a.s, askRetries, list)
}

// Question is a datagram that wants an answer.
type Question struct {
	Agent madrpc.AgentID
	Env   mad.Envelope
	Data  []byte
}

// Ask asks all questions, a window of them at once and each again where no answer comes, and waits for the answers; nil
// where there is none. Nobody else may use the session meanwhile.
func Ask(ctx context.Context, s inspect.Session, retries int, list []Question) ([][]byte, error) {
	ctx, cancel := patience.Context(ctx, time.Minute)
	defer cancel()
	far := tenant.ProgressOf(ctx)
	answers := make([][]byte, len(list))
	sent, done := 0, 0
	for done < len(list) {
		for ; sent < len(list) && sent < done+askWindow; sent++ {
			q := &list[sent]
			mad.View(q.Data).SetTID(uint64(sent) + 1) // the lower half tells the requests apart
			err := s.Send(q.Agent, madrpc.Message{Env: q.Env, Data: q.Data, Timeout: askTimeout, Retries: retries,
				Cookie: uint64(sent)})
			if err != nil {
				return nil, err
			}
		}
		d, err := s.Recv(ctx)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%d of %d questions were answered: %w", done, len(list), context.Cause(ctx))
		case err != nil:
			return nil, err
		}
		if d.Kind == madrpc.Unsolicited || d.Cookie >= uint64(len(list)) || d.Agent != list[d.Cookie].Agent {
			continue
		}
		done++
		far.Step()
		if d.Kind == madrpc.Response {
			answers[d.Cookie] = d.Data
		}
	}
	return answers, nil
}
