package fabric

import "softib/proto/ib"

// touch reads, for all events of the open bucket, the memory that handling them will need. A fabric of a thousand hosts
// does not fit the inner caches; fetched one after the other, misses would be most of the time that a hop takes.
func (e *Engine) touch(events []event) {
	v := uint64(0)
	for i := range events {
		d := events[i].d
		k := kind(d >> 56)
		if k > evWake || k == evNone {
			continue
		}
		v += uint64(e.ports[uint32(d>>32)&0xFFFFFF].Site.Flags)
		if k == evArrive {
			v += uint64(e.pool.At(uint32(d)).Blocks)
		}
	}
	for i := range events {
		d := events[i].d
		k := kind(d >> 56)
		if k > evWake || k == evNone {
			continue
		}
		p := e.ports[uint32(d>>32)&0xFFFFFF]
		switch {
		case k == evWake:
			v += p.TouchHead()
		case k == evFC:
			v += p.TouchTx(ib.VL(d >> 24 & 15))
		case p.Site.Host < 0:
			v += e.switches[p.Site.Node].Touch(p.Site.Num, e.pool.At(uint32(d)))
		default:
			f := e.pool.At(uint32(d))
			v += p.TouchRx(f.LRH.VL) + uint64(f.Packet.BTH.Opcode)
		}
	}
	e.warm = v
}
