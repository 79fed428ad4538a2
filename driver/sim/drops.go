package sim

import (
	"softib/node/link"
	"softib/proto/ib"
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
func (s *Sim) LogDrops(on bool) { s.logDrop = on }

// DropLog is what was dropped since LogDrops was turned on.
func (s *Sim) DropLog() []DropRecord { return s.dropLog }

// drop ends a packet.
func (s *Sim) drop(at uint32, f *link.Frame, r link.Reason) {
	s.drops[r]++
	s.mix(uint64(r) ^ uint64(at)<<8 ^ uint64(s.now)<<32)
	if s.logDrop {
		p := s.ports[at]
		s.dropLog = append(s.dropLog, DropRecord{s.now, int(p.Site.Node), p.Site.Num, r, f.LRH.DLID, f.LRH.SLID,
			f.Packet.BTH.DestQP, f.Packet.BTH.PSN})
	}
	if s.cfg.Sink != nil {
		s.traceDrop(at, f, traceReasons[r])
	}
	s.pool.Put(f)
}
