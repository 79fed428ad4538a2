package fabric

// touch reads, for all events of the open bucket, the memory that handling them will need. A fabric of a thousand hosts
// does not fit the inner caches; fetched one after the other, misses would be most of the time that a hop takes.
func (e *Engine) touch(events []event) {
	v := uint64(0)
	for i := range events {
		switch k, place, arg := split(events[i].d); k {
		case evArrive:
			v += uint64(e.ports[place].Site.Flags) + uint64(e.pool.At(arg).Blocks)
		case evFC, evWake:
			v += uint64(e.ports[place].Site.Flags)
		}
	}
	for i := range events {
		switch k, place, arg := split(events[i].d); k {
		case evArrive:
			p, f := e.ports[place], e.pool.At(arg)
			if p.Site.Host < 0 {
				v += e.switches[p.Site.Node].Touch(p.Site.Num, f)
			} else {
				v += p.TouchRx(f.LRH.VL) + uint64(f.Packet.BTH.Opcode)
			}
		case evFC:
			v += e.ports[place].TouchTx(unpackFC(arg).VL)
		case evWake:
			v += e.ports[place].TouchHead()
		}
	}
	e.warm = v
}
