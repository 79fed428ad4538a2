package span

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
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
	opLink     op[linkAsked, struct{}]               = "fabric.link"
	opFault    op[faultAsked, struct{}]              = "fabric.fault"
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

// Answer answers what another machine asks.
func (f *Fabric) Answer(ctx context.Context, machine, method string, in []byte) ([]byte, error) {
	switch method {
	case string(opPorts):
		return answer(opPorts, in, func(q portsAsked) (portsTold, error) { return f.tellPorts(ctx, q) })
	case string(opCounters):
		return answer(opCounters, in, func(refs []topo.PortRef) ([]byte, error) {
			return packCounters(f.Fabric.CountersOf(refs)), nil
		})
	case string(opWay):
		return answer(opWay, in, func(q wayAsked) (inspect.Way, error) {
			return f.Fabric.WayOn(q.In, q.VL, q.DLID, q.SL, q.PKey)
		})
	case string(opWayFrom):
		return answer(opWayFrom, in, func(q wayAsked) (inspect.Way, error) {
			return f.Fabric.Way(q.In, q.DLID, q.SL, q.PKey)
		})
	case string(opProbe):
		return answer(opProbe, in, func(q probeAsked) (inspect.Probed, error) {
			if q.SLID == 0 {
				return f.Fabric.Probe(q.In, q.DLID, q.SL, q.PKey)
			}
			return f.Fabric.ProbeOn(q.In, q.VL, q.SLID, q.DLID, q.SL, q.PKey)
		})
	case string(opGuard):
		return answer(opGuard, in, func(q guardAsked) (none struct{}, err error) {
			f.Fabric.GuardManagement(q.On, q.Managers)
			return none, nil
		})
	case string(opRenew):
		return answer(opRenew, in, func(none struct{}) (struct{}, error) {
			f.Fabric.RenewWays()
			return none, nil
		})
	case string(opLink):
		return answer(opLink, in, func(q linkAsked) (struct{}, error) {
			return struct{}{}, f.Fabric.SetLink(q.Port, q.Up)
		})
	case string(opFault):
		return answer(opFault, in, func(q faultAsked) (struct{}, error) {
			if q.Fault == nil {
				return struct{}{}, f.Fabric.ClearFault(q.Port)
			}
			return struct{}{}, f.Fabric.SetFault(q.Port, *q.Fault)
		})
	case string(opFaults):
		return answer(opFaults, in, func(struct{}) ([]inspect.FaultState, error) { return f.Fabric.Faults(), nil })
	case string(opPrograms):
		return answer(opPrograms, in, func(struct{}) ([]inspect.ProgramStats, error) {
			return f.Fabric.Programs(), nil
		})
	case string(opHosts):
		return answer(opHosts, in, func(struct{}) ([]inspect.HostStats, error) { return f.ownHosts(), nil })
	case string(opPeaks):
		return answer(opPeaks, in, func(over time.Duration) ([]inspect.PortPeak, error) {
			return f.Fabric.Peaks(over), nil
		})
	case string(opTraffic):
		return answer(opTraffic, in, func(struct{}) (t [2]uint64, err error) {
			t[0], t[1] = f.Fabric.HostTraffic()
			return t, nil
		})
	case string(opTables):
		return answer(opTables, in, func(node int) (*inspect.SwitchTables, error) {
			if t, ok := f.Fabric.Tables(node); ok {
				return &t, nil
			}
			return nil, nil
		})
	case string(opLanes):
		return answer(opLanes, in, func(node int) ([][][ib.NumSL]ib.VL, error) { return f.Fabric.Lanes(node), nil })
	}
	return nil, fmt.Errorf("span: machine %s asks for %q, which this softib does not know: next: run the same release "+
		"of softib on all machines", machine, method)
}

func answer[In, Out any](_ op[In, Out], in []byte, do func(In) (Out, error)) ([]byte, error) {
	var q In
	if err := json.Unmarshal(in, &q); err != nil {
		return nil, fmt.Errorf("span: question: %w", err)
	}
	out, err := do(q)
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
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
