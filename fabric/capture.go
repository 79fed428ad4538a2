package fabric

import (
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/trace"
	"softib/proto/wire"
)

// Sink takes what happens on the cables: every packet as it begins to leave a port, every flow-control packet, every
// drop. trace.Pcapng and trace.JSON are sinks. The event and what it refers to are valid during the call only.
//
// tidy: calls out, a writer: nothing that it does comes back
type Sink interface {
	Write(*trace.Event) error
}

// SetSink turns the capture on, or off with nil.
func (e *Engine) SetSink(k Sink) { e.sink = k }

// Tap makes the sink see what arrives at a port too, or not any more.
func (e *Engine) Tap(at uint32, on bool) { setFlag(&e.ports[at].Site.Flags, endTapped, on) }

// SinkErr is the first error that the sink has returned; the capture ended there.
func (e *Engine) SinkErr() error { return e.sinkErr }

// emit shows the sink, which there is, what happens at a port.
func (e *Engine) emit(p *link.Port, ev trace.Event) {
	ev.Node, ev.Port = p.Site.Node, p.Site.Num
	if err := e.sink.Write(&ev); err != nil && e.sinkErr == nil {
		e.sink, e.sinkErr = nil, err
	}
}

func (e *Engine) tracePacket(start ib.Time, dir trace.Dir, p *link.Port, f *link.Frame) {
	if e.sink != nil {
		e.emit(p, trace.Event{Time: start, Kind: trace.Packet, Dir: dir, Packet: f.Sync()})
	}
}

func (e *Engine) traceDrop(at uint32, f *link.Frame, r trace.Reason) {
	if e.sink != nil {
		e.emit(e.ports[at], trace.Event{Time: e.now, Kind: trace.Drop, Reason: r, Packet: f.Sync()})
	}
}

// traceReasons says a link's reasons in the words of captures.
var traceReasons = [link.NumReason]trace.Reason{
	link.Physical: trace.BadVCRC, link.Malformed: trace.Malformed, link.Overrun: trace.NoCredit,
	link.VL15Full: trace.VL15Full, link.NotReady: trace.NotActive, link.PKeyIn: trace.InPKey, link.RawIn: trace.InPKey,
	link.Guarded:     trace.Guarded,
	link.UnknownDLID: trace.NoRoute, link.Looping: trace.Loopback, link.NoMember: trace.NoRoute,
	link.BadVLMap: trace.BadVL, link.Inactive: trace.NotActive, link.NeighborMTU: trace.TooLong,
	link.NoRoute: trace.NoRoute, link.HopLimit: trace.Lifetime,
	link.HOQLife: trace.HOQLife, link.SwitchLife: trace.Lifetime, link.VLStalled: trace.HOQLife,
	link.PKeyOut: trace.OutPKey, link.RawOut: trace.OutPKey, link.LinkDown: trace.LinkDown,
	link.BufferFull: trace.NoCredit, link.PauseStorm: trace.HOQLife,
}

// rewrite turns a packet into bytes and back, so that what flies is what the wire format can say.
func (e *Engine) rewrite(f *link.Frame) {
	e.scratch = f.Sync().Append(e.scratch[:0])
	if err := f.Packet.Parse(e.scratch); err != nil {
		// Engines only send what parses; a packet that does not is one that the receiver will refuse, by the flag.
		f.Flags |= link.BadVCRC
		return
	}
	f.Own(f.Packet.Payload)
	f.LRH = f.Packet.LRH
}

// rewriteFC does the same to a flow-control packet.
func (e *Engine) rewriteFC(fc wire.LinkPacket) wire.LinkPacket {
	e.scratch = fc.Append(e.scratch[:0])
	got, _, err := wire.ParseLinkPacket(e.scratch)
	if err != nil {
		panic(err) // a port has made a packet that the wire format cannot say
	}
	return got
}
