package sim

import (
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/trace"
	"softib/proto/wire"
)

// Sink takes what happens on the cables: every packet as it begins to leave a port,
// every flow-control packet, every drop. trace.Pcapng and trace.JSON are sinks.
// The event and what it refers to are valid during the call only.
type Sink interface {
	Write(*trace.Event) error
}

// SetSink turns the capture on, or off with nil.
func (s *Sim) SetSink(k Sink) { s.cfg.Sink = k }

// SinkErr is the first error that the sink has returned; the capture ended there.
func (s *Sim) SinkErr() error { return s.sinkErr }

func (s *Sim) emit(e *trace.Event) {
	if err := s.cfg.Sink.Write(e); err != nil && s.sinkErr == nil {
		s.sinkErr = err
		s.cfg.Sink = nil
	}
}

func (s *Sim) tracePacket(start ib.Time, p *link.Port, f *link.Frame) {
	s.emit(&trace.Event{Time: start, Node: p.Site.Node, Port: p.Site.Num, Kind: trace.Packet, Dir: trace.Out,
		Packet: f.Sync()})
}

func (s *Sim) traceLink(p *link.Port, fc wire.LinkPacket) {
	s.emit(&trace.Event{Time: s.now, Node: p.Site.Node, Port: p.Site.Num, Kind: trace.Link, Dir: trace.Out, Link: fc})
}

func (s *Sim) traceDrop(at uint32, f *link.Frame, r trace.Reason) {
	site := &s.ports[at].Site
	s.emit(&trace.Event{Time: s.now, Node: site.Node, Port: site.Num, Kind: trace.Drop, Reason: r, Packet: f.Sync()})
}

// traceBytes shows a packet as a fault has left it.
func (s *Sim) traceBytes(at uint32, b []byte) {
	site := &s.ports[s.ports[at].Site.Peer].Site
	s.emit(&trace.Event{Time: s.now, Node: site.Node, Port: site.Num, Kind: trace.Packet, Dir: trace.In, Bytes: b,
		Note: "corrupted on the way"})
}

// traceReasons says a link's reasons in the words of captures.
var traceReasons = [link.NumReason]trace.Reason{
	link.Physical: trace.BadVCRC, link.Malformed: trace.Malformed, link.Overrun: trace.NoCredit,
	link.VL15Full: trace.VL15Full,
	link.NotReady: trace.NotActive, link.PKeyIn: trace.InPKey, link.RawIn: trace.InPKey,
	link.UnknownDLID: trace.NoRoute,
	link.Looping:     trace.Loopback, link.NoMember: trace.NoRoute, link.BadVLMap: trace.BadVL,
	link.Inactive:    trace.NotActive,
	link.NeighborMTU: trace.TooLong, link.HOQLife: trace.HOQLife, link.SwitchLife: trace.Lifetime,
	link.VLStalled: trace.HOQLife,
	link.PKeyOut:   trace.OutPKey, link.RawOut: trace.OutPKey, link.LinkDown: trace.LinkDown,
}
