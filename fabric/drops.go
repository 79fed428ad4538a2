package fabric

import (
	"softib/node/link"
	"softib/proto/trace"
)

// LogDrops makes Log keep a record of each dropped packet.
func (e *Engine) LogDrops(on bool) { e.logDrop = on }

// Drop ends a packet that goes no further, and counts why.
func (e *Engine) Drop(at uint32, f *link.Frame, r link.Reason) {
	e.drops[r]++
	e.Mix(at, uint64(r)<<48)
	if e.logDrop {
		e.record(at, f, FaultDrop, r)
	}
	e.traceDrop(at, f, traceReasons[r])
	e.end(f)
}

// lose ends a packet that a cable has lost.
func (e *Engine) lose(k FaultKind, at uint32, f *link.Frame, r trace.Reason) {
	e.LogFault(k, at, f)
	e.traceDrop(at, f, r)
	e.end(f)
}

// end gives back a packet that the driver has not been handed.
func (e *Engine) end(f *link.Frame) {
	if e.cfg.TellDrops && f.IsFlight() {
		e.note(Ended, uint32(f.LRH.SLID)<<16|uint32(f.LRH.DLID), uint32(f.Packet.BTH.DestQP))
	}
	e.pool.Put(f)
}
