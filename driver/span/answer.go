package span

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"softib/node/inspect"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// op is a question that machines ask each other, by name, with what goes there and what comes back.
type op[In, Out any] string

// Questions.
const (
	opPorts    op[portsAsked, portsTold]             = "fabric.ports"
	opCounters op[[]topo.PortRef, []byte]            = "fabric.counters"
	opWay      op[wayAsked, inspect.Way]             = "fabric.way"
	opWayFrom  op[wayAsked, inspect.Way]             = "fabric.wayfrom"
	opProbe    op[probeAsked, inspect.Probed]        = "fabric.probe"
	opGuard    op[guardAsked, struct{}]              = "fabric.guard"
	opRenew    op[struct{}, struct{}]                = "fabric.renew"
	opLink     op[linkAsked, refusal]                = "fabric.link"
	opFault    op[faultAsked, refusal]               = "fabric.fault"
	opFaults   op[struct{}, []inspect.FaultState]    = "fabric.faults"
	opPrograms op[struct{}, []inspect.ProgramStats]  = "fabric.programs"
	opHosts    op[struct{}, []inspect.HostStats]     = "fabric.hosts"
	opPeaks    op[time.Duration, []inspect.PortPeak] = "fabric.peaks"
	opTraffic  op[struct{}, [2]uint64]               = "fabric.traffic"
	opTables   op[int, *inspect.SwitchTables]        = "fabric.tables"
	opLanes    op[int, [][][ib.NumSL]ib.VL]          = "fabric.lanes"
)

// portsAsked asks for ports that have changed since a revision of the machine's.
type portsAsked struct {
	Since uint64
	// Wait is how long to wait for a change.
	Wait time.Duration
}

// portsTold is the machine's revision, and nodes that have changed.
type portsTold struct {
	Revision uint64
	Nodes    []nodeTold
}

// nodeTold is what a node's ports are like, by number.
type nodeTold struct {
	Node  int
	Ports []portTold
}

// portTold is one port: PortInfo as datagrams have it, and tables.
type portTold struct {
	Info  []byte `json:",omitempty"`
	PKeys []ib.PKey
	GIDs  []ib.GID
}

// wayAsked asks for the rest of a way that comes in by a port, or for one that begins there.
type wayAsked struct {
	In   topo.PortRef
	VL   ib.VL
	DLID ib.LID
	SL   ib.SL
	PKey ib.PKey
}

// probeAsked sends a probe: from a port that is there or, with a sender, on from one that it has come in by.
type probeAsked struct {
	wayAsked
	SLID ib.LID
}

type guardAsked struct {
	On       bool
	Managers []topo.PortRef
}

type linkAsked struct {
	Port topo.PortRef
	Up   bool
}

// faultAsked sets a fault, or without one clears it.
type faultAsked struct {
	Port  topo.PortRef
	Fault *inspect.Fault
}

// refusal is why a cable was left as it is, empty if it was not: an error that matches inspect.ErrFault does so at the
// machine that has asked, too.
type refusal string

func refused(err error) (refusal, error) {
	if errors.Is(err, inspect.ErrFault) {
		return refusal(err.Error()), nil
	}
	return "", err
}

// err is the refusal as the one who has asked has to have it.
func (r refusal) err(err error) error {
	if err == nil && r != "" {
		return fmt.Errorf("span: %s: %w", string(r), inspect.ErrFault)
	}
	return err
}

// method answers a question.
type method func(ctx context.Context, f *Fabric, machine string, in []byte) ([]byte, error)

// methods has how each question is answered.
var methods = map[string]method{}

func init() {
	answer(opPorts, (*Fabric).tellPorts)
	answer(opCounters, func(f *Fabric, _ context.Context, refs []topo.PortRef) ([]byte, error) {
		return packCounters(f.Fabric.CountersOf(refs)), nil
	})
	answer(opWay, func(f *Fabric, _ context.Context, q wayAsked) (inspect.Way, error) {
		return f.Fabric.WayOn(q.In, q.VL, q.DLID, q.SL, q.PKey)
	})
	answer(opWayFrom, func(f *Fabric, _ context.Context, q wayAsked) (inspect.Way, error) {
		return f.Fabric.Way(q.In, q.DLID, q.SL, q.PKey)
	})
	answer(opProbe, func(f *Fabric, _ context.Context, q probeAsked) (inspect.Probed, error) {
		if q.SLID == 0 {
			return f.Fabric.Probe(q.In, q.DLID, q.SL, q.PKey)
		}
		return f.Fabric.ProbeOn(q.In, q.VL, q.SLID, q.DLID, q.SL, q.PKey)
	})
	answer(opGuard, func(f *Fabric, _ context.Context, q guardAsked) (none struct{}, err error) {
		f.Fabric.GuardManagement(q.On, q.Managers)
		return none, nil
	})
	answer(opRenew, func(f *Fabric, _ context.Context, none struct{}) (struct{}, error) {
		f.Fabric.RenewWays()
		return none, nil
	})
	answer(opLink, func(f *Fabric, _ context.Context, q linkAsked) (refusal, error) {
		return refused(f.Fabric.SetLink(q.Port, q.Up))
	})
	answer(opFault, func(f *Fabric, _ context.Context, q faultAsked) (refusal, error) {
		if q.Fault == nil {
			return refused(f.Fabric.ClearFault(q.Port))
		}
		return refused(f.Fabric.SetFault(q.Port, *q.Fault))
	})
	answer(opFaults, func(f *Fabric, _ context.Context, _ struct{}) ([]inspect.FaultState, error) {
		return f.Fabric.Faults(), nil
	})
	answer(opPrograms, func(f *Fabric, _ context.Context, _ struct{}) ([]inspect.ProgramStats, error) {
		return f.Fabric.Programs(), nil
	})
	answer(opHosts, func(f *Fabric, _ context.Context, _ struct{}) ([]inspect.HostStats, error) {
		return f.ownHosts(), nil
	})
	answer(opPeaks, func(f *Fabric, _ context.Context, over time.Duration) ([]inspect.PortPeak, error) {
		return f.Fabric.Peaks(over), nil
	})
	answer(opTraffic, func(f *Fabric, _ context.Context, _ struct{}) (t [2]uint64, err error) {
		t[0], t[1] = f.Fabric.HostTraffic()
		return t, nil
	})
	answer(opTables, func(f *Fabric, _ context.Context, node int) (*inspect.SwitchTables, error) {
		if t, ok := f.Fabric.Tables(node); ok {
			return &t, nil
		}
		return nil, nil
	})
	answer(opLanes, func(f *Fabric, _ context.Context, node int) ([][][ib.NumSL]ib.VL, error) {
		return f.Fabric.Lanes(node), nil
	})
}

// answer says how a question is answered, whoever asks.
func answer[In, Out any](o op[In, Out], do func(*Fabric, context.Context, In) (Out, error)) {
	answerFrom(o, func(f *Fabric, ctx context.Context, _ string, q In) (Out, error) { return do(f, ctx, q) })
}

// answerFrom is answer where it matters who asks.
func answerFrom[In, Out any](o op[In, Out], do func(*Fabric, context.Context, string, In) (Out, error)) {
	methods[string(o)] = func(ctx context.Context, f *Fabric, machine string, in []byte) ([]byte, error) {
		var q In
		if err := json.Unmarshal(in, &q); err != nil {
			return nil, fmt.Errorf("span: question %s: %w", o, err)
		}
		out, err := do(f, ctx, machine, q)
		if err != nil {
			return nil, err
		}
		return json.Marshal(out)
	}
}

// Methods are the names of all questions, in order.
func Methods() []string { return slices.Sorted(maps.Keys(methods)) }

// Answer answers what another machine asks.
func (f *Fabric) Answer(ctx context.Context, machine, name string, in []byte) ([]byte, error) {
	m := methods[name]
	if m == nil {
		return nil, fmt.Errorf("span: machine %s asks for %q, which this softib does not know: next: run the same "+
			"release of softib on all machines", machine, name)
	}
	return m(ctx, f, machine, in)
}

// ownHosts are the statistics of hosts that are here.
func (f *Fabric) ownHosts() (own []inspect.HostStats) {
	for _, h := range f.Fabric.HostStats() {
		if f.elsewhere(h.Node) == "" {
			own = append(own, h)
		}
	}
	return own
}

// packCounters writes counters one after the other.
func packCounters(all []ib.Counters) (b []byte) {
	for i := range all {
		for _, v := range all[i] {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	return b
}

// unpackCounters reads those of n ports; false if they are not so many.
func unpackCounters(b []byte, n int) (all []ib.Counters, ok bool) {
	if len(b) != n*8*int(ib.NumCounter) {
		return nil, false
	}
	all = make([]ib.Counters, n)
	for i := range all {
		for c := range all[i] {
			all[i][c], b = binary.LittleEndian.Uint64(b), b[8:]
		}
	}
	return all, true
}

// tellPorts answers with what has changed, when something has.
func (f *Fabric) tellPorts(ctx context.Context, q portsAsked) (told portsTold, err error) {
	deadline := time.Now().Add(min(max(q.Wait, 0), tellWait))
	for {
		if told = f.own.changed(f, q.Since); len(told.Nodes) > 0 || q.Since == 0 || time.Now().After(deadline) {
			return told, nil
		}
		select {
		case <-ctx.Done():
			return told, ctx.Err()
		case <-f.ctx.Done():
			return told, f.ctx.Err()
		case <-time.After(tellEvery):
		}
	}
}

const (
	// tellWait is how long a question for changes may wait, and tellEvery how often is looked for them meanwhile.
	// tidy: not patience, what has not changed by then is asked for again.
	tellWait  = 5 * time.Second
	tellEvery = 50 * time.Millisecond
)

// describePort says what a port is like.
func (f *Fabric) describePort(r topo.PortRef) (p portTold) {
	if pi, ok := f.Fabric.PortInfo(r); ok {
		p.Info = pi.Append(nil)
	}
	p.PKeys, p.GIDs = f.Fabric.PKeys(r), f.Fabric.GIDs(r)
	return p
}

func (p *portTold) equal(o *portTold) bool {
	return bytes.Equal(p.Info, o.Info) && slices.Equal(p.PKeys, o.PKeys) && slices.Equal(p.GIDs, o.GIDs)
}

// info is the port's PortInfo, if there is one.
func (p *portTold) info() (pi mad.PortInfo, ok bool) {
	if len(p.Info) == 0 {
		return pi, false
	}
	_, err := pi.Parse(p.Info)
	return pi, err == nil
}
