package fabric

import (
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/trace"
)

// DropRecord is one dropped packet.
type DropRecord struct {
	Time   ib.Time
	Node   int
	Port   ib.PortNum
	Reason link.Reason
	DLID   ib.LID
	SLID   ib.LID
	DestQP ib.QPN
	PSN    ib.PSN
}

// LogDrops makes DropLog keep a record of each dropped packet.
func (e *Engine) LogDrops(on bool) { e.logDrop = on }

// DropLog is what was dropped since LogDrops was turned on.
func (e *Engine) DropLog() []DropRecord { return e.dropLog }

// Drop ends a packet that goes no further, and counts why.
func (e *Engine) Drop(at uint32, f *link.Frame, r link.Reason) {
	e.drops[r]++
	e.Mix(uint64(r) ^ uint64(at)<<8 ^ uint64(e.now)<<32)
	if e.logDrop {
		p := e.ports[at]
		e.dropLog = append(e.dropLog, DropRecord{e.now, int(p.Site.Node), p.Site.Num, r, f.LRH.DLID, f.LRH.SLID,
			f.Packet.BTH.DestQP, f.Packet.BTH.PSN})
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
	if e.cfg.TellDrops {
		e.note(Ended, uint32(f.LRH.SLID)<<16|uint32(f.LRH.DLID), uint32(f.Packet.BTH.DestQP))
	}
	e.pool.Put(f)
}
