package check

import (
	"fmt"
	"strings"

	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/wire"
)

// waits guards that lanes keep packets from deadlock, where routing promises that: a packet that holds one lane's
// buffer at the end of a cable waits for the next, and all such pairs that have been seen, together, must have no
// circle. That finds what could lock long before anything does. It watches the cables.
type waits struct {
	ignore
	*scene
	last  map[flying]int32    // where a packet is, as a place in lanes; ambiguous if it is under way twice
	at    map[cableLane]int32 // places in lanes
	lanes []cableLane
	next  [][]int32 // by place: those that packets there have gone on to

	detours uint64
}

const waitsName = "waits"

// ambiguous stands for packets that were sent again: which of them leaves a switch cannot be seen.
const ambiguous = -1

// flying names a packet.
type flying struct {
	from, to ib.LID
	qp       ib.QPN
	psn      ib.PSN
	op       wire.Opcode
}

// cableLane is a lane of one direction of a cable, by the port that it leaves.
type cableLane struct {
	from topo.PortRef
	vl   ib.VL
}

// packet notes that a packet leaves a port.
func (w *waits) packet(from topo.PortRef, pkt *wire.Packet) {
	if w.sc.Engines == "" || pkt.LRH.VL == ib.VLMgmt || pkt.LRH.LNH < wire.LNHLocal || pkt.LRH.DLID.IsMulticast() {
		return
	}
	if pkt.LRH.VL == 3 { // the last lane where no link was missing from the start
		w.detours++
	}
	name := flying{pkt.LRH.SLID, pkt.LRH.DLID, pkt.BTH.DestQP, pkt.BTH.PSN, pkt.BTH.Opcode}
	was, under := w.last[name]
	g := w.sim.Graph()
	if isHost := !g.Nodes[from.Node].IsSwitch(); isHost && under || under && was == ambiguous {
		w.last[name] = ambiguous
		return
	}
	here := w.place(cableLane{from, pkt.LRH.VL})
	w.last[name] = here
	if !under || g.Port(w.lanes[was].from).Peer != from.Node {
		return
	}
	for _, n := range w.next[was] {
		if n == here {
			return
		}
	}
	w.next[was] = append(w.next[was], here)
}

func (w *waits) place(l cableLane) int32 {
	p, ok := w.at[l]
	if !ok {
		if w.at == nil {
			w.at, w.last = map[cableLane]int32{}, map[flying]int32{}
		}
		p = int32(len(w.lanes))
		w.at[l], w.lanes, w.next = p, append(w.lanes, l), append(w.next, nil)
	}
	return p
}

// Rest looks for a circle.
func (w *waits) Rest() {
	state := make([]uint8, len(w.lanes))
	var way []int32
	for p := range w.lanes {
		if way = w.circle(int32(p), state, way[:0]); way == nil {
			continue
		}
		var names []string
		for _, p := range way {
			names = append(names, fmt.Sprintf("%s VL %d", w.sim.Graph().PortName(w.lanes[p].from), w.lanes[p].vl))
		}
		w.report(waitsName, nil, "packets have waited in a circle: %s", strings.Join(names, ", "))
		return
	}
}

// circle is the way back to where it has been from a place, nil if there is none.
func (w *waits) circle(p int32, state []uint8, way []int32) []int32 {
	const open, done = 1, 2
	switch state[p] {
	case done:
		return nil
	case open:
		for way[0] != p {
			way = way[1:]
		}
		return way
	}
	state[p] = open
	for _, n := range w.next[p] {
		if c := w.circle(n, state, append(way, p)); c != nil {
			return c
		}
	}
	state[p] = done
	return nil
}
