package check

import (
	"fmt"
	"io"
	"strings"

	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/trace"
	"softib/proto/wire"
)

// recorder watches the cables: for the checkers of partitions and of deadlock, and to keep the last
// packets of the flows that somebody asks for.
type recorder struct {
	*scene
	part  *partition
	waits *waits
	graph *topo.Graph
	max   int
	flows []int
	ring  []seen
	next  int
	total int
	file  *trace.Pcapng // nil if nobody asked for a capture
}

// newCapture begins a capture with one interface for each port in use.
func newCapture(g *topo.Graph, w io.Writer) (*trace.Pcapng, error) {
	f, err := trace.NewPcapng(w, trace.PcapngOptions{})
	if err != nil {
		return nil, err
	}
	for _, n := range g.Nodes {
		for p := 1; p <= n.NumPorts(); p++ {
			if !n.Ports[p].Connected() {
				continue
			}
			ref := topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}
			if err := f.Port(uint32(n.Index), ref.Port, g.PortName(ref), g.LinkRate(ref)); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

type seen struct {
	at       ib.Time
	from, to topo.PortRef
	what     string // what befell the packet, empty if it passed
	packet   []byte
}

// Write takes what the simulation shows.
func (r *recorder) Write(e *trace.Event) error {
	if r.file != nil {
		if err := r.file.Write(e); err != nil {
			return err
		}
	}
	if e.Packet == nil || e.Kind != trace.Packet && e.Kind != trace.Drop {
		return nil
	}
	from := topo.PortRef{Node: int(e.Node), Port: e.Port}
	s := seen{at: e.Time, from: from, to: from}
	if e.Kind == trace.Packet {
		p := r.graph.Nodes[from.Node].Ports[from.Port]
		s.to = topo.PortRef{Node: p.Peer, Port: p.PeerPort}
		r.part.packet(s.to, e.Packet)
		r.waits.packet(from, e.Packet)
	} else {
		s.what = "dropped: " + e.Reason.String()
	}
	if r.max > 0 && r.concerns(e.Packet) {
		s.packet = e.Packet.Append(nil)
		r.keep(s)
	}
	return nil
}

func (r *recorder) keep(s seen) {
	r.total++
	if len(r.ring) < r.max {
		r.ring = append(r.ring, s)
		return
	}
	r.ring[r.next] = s
	r.next = (r.next + 1) % r.max
}

// concerns reports whether a packet belongs to one of the flows, either way.
func (r *recorder) concerns(p *wire.Packet) bool {
	if len(r.flows) == 0 || r.run == nil {
		return true
	}
	for _, id := range r.flows {
		f := r.run.FlowByID(id)
		if f == nil {
			continue
		}
		a, b := r.lid(f.From.Host), r.lid(f.To.Host)
		n := p.BTH.DestQP
		if p.LRH.SLID == a && (n == f.To.QP.Num() || n == ib.QPNMulticast) || p.LRH.SLID == b && n == f.From.QP.Num() {
			return true
		}
	}
	return false
}

// lines prints what was kept.
func (r *recorder) lines() []string {
	var out []string
	g := r.graph
	for i := range r.ring {
		e := &r.ring[(r.next+i)%len(r.ring)]
		where := g.PortName(e.from)
		if e.what == "" {
			where += " > " + g.PortName(e.to)
		} else {
			where += " " + e.what
		}
		out = append(out, fmt.Sprintf("%14v  %s  %s", e.at, where, wire.Sprint(e.packet)))
	}
	if n := r.total - len(out); n > 0 {
		out = append([]string{fmt.Sprintf("(%d packets before)", n)}, out...)
	}
	return out
}

// brief is a packet on one line.
func brief(p *wire.Packet) string { return strings.TrimSpace(p.String()) }
