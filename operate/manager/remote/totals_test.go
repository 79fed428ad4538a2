package remote

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet/survey"
)

// reading is one of a port that has sent so much and counted so many symbol errors.
func reading(w width, data, errs uint64) *survey.Reading {
	r := &survey.Reading{Valid: true, Narrow: w == narrow, Wide: w == wide, WideData: w == wide}
	r.Counters[ib.PortXmitData], r.Counters[ib.SymbolErrorCounter] = data, errs
	return r
}

// Totals never go back, whatever ports' counters do.
func TestTotals(t *testing.T) {
	mixed := func(data, errs uint64, answered bool) *survey.Reading { // traffic in 64 bits, errors in old fields
		r := reading(unread, data, errs)
		r.WideData, r.Narrow = true, answered
		return r
	}
	for _, c := range []struct {
		name       string
		list       []*survey.Reading
		data, errs uint64
		resets     int
	}{
		{"grows", []*survey.Reading{reading(wide, 10, 1), reading(wide, 30, 1), reading(wide, 35, 4)}, 35, 4, 0},
		{"begins high", []*survey.Reading{reading(wide, 1<<40, 7)}, 1 << 40, 7, 0},
		{"reset by somebody", []*survey.Reading{reading(wide, 100, 5), reading(wide, 20, 0), reading(wide, 50, 2)}, 150,
			7, 1},
		{"reset twice", []*survey.Reading{reading(wide, 100, 5), reading(wide, 0, 0), reading(wide, 9, 0),
			reading(wide, 3, 0)}, 112, 5, 2},
		{"stops at its most", []*survey.Reading{reading(narrow, 1<<32-10, 65535), reading(narrow, 1<<32-1, 65535),
			reading(narrow, 1<<32-1, 65535)}, 1<<32 - 1, 65535, 0},
		{"stops and is cleared", []*survey.Reading{reading(narrow, 1<<32-1, 0), reading(narrow, 5, 0)}, 1<<32 + 4, 0,
			1},
		{"no answer", []*survey.Reading{reading(wide, 10, 1), {}, reading(wide, 12, 1)}, 12, 1, 0},
		{"wide ones not answered once", []*survey.Reading{reading(wide, 1<<33, 70000), reading(narrow, 1<<32-1, 65535),
			reading(wide, 1<<33+8, 70001)}, 1<<33 + 8, 70001, 0},
		{"wide ones answered at last", []*survey.Reading{reading(narrow, 1<<32-1, 3), reading(wide, 1<<34, 3),
			reading(wide, 1<<34+6, 3)}, 1<<34 + 6, 3, 0},
		{"old fields not answered once", []*survey.Reading{mixed(10, 3, true), mixed(20, 0, false), mixed(30, 4, true)},
			30, 4, 0},
	} {
		var x total
		resets := 0
		var was ib.Counters
		for i, r := range c.list {
			if x.add(r) {
				resets++
			}
			for k := range was {
				if x.sum[k] < was[k] {
					t.Errorf("%s: %v goes from %d back to %d at reading %d", c.name, ib.Counter(k), was[k], x.sum[k], i)
				}
			}
			was = x.sum
		}
		if x.sum[ib.PortXmitData] != c.data || x.sum[ib.SymbolErrorCounter] != c.errs || resets != c.resets {
			t.Errorf("%s: %d and %d with %d resets, want %d and %d with %d", c.name, x.sum[ib.PortXmitData],
				x.sum[ib.SymbolErrorCounter], resets, c.data, c.errs, c.resets)
		}
	}
}

// Counters that are about to stop are found, and go on once they were cleared.
func TestFull(t *testing.T) {
	var x total
	x.add(reading(narrow, 1<<31, 100))
	if got := x.full(); got != 0 {
		t.Errorf("half of it is full: %x", got)
	}
	x.add(reading(narrow, 1<<32-100, 60000))
	mask := x.full()
	want := uint64(0)
	for _, row := range mad.CounterAttrByID(mad.AttrPortCounters).Rows {
		if row.Counter == ib.PortXmitData || row.Counter == ib.SymbolErrorCounter {
			want |= 1 << row.Select
		}
	}
	if mask != want || want == 0 {
		t.Fatalf("full are %x, want %x", mask, want)
	}
	x.cleared(mask)
	if x.add(reading(narrow, 50, 1)) {
		t.Error("what was cleared here is no news")
	}
	if x.sum[ib.PortXmitData] != 1<<32-50 || x.sum[ib.SymbolErrorCounter] != 60001 || x.full() != 0 {
		t.Errorf("%d and %d", x.sum[ib.PortXmitData], x.sum[ib.SymbolErrorCounter])
	}
	var y total
	y.add(reading(wide, 1<<63, 1<<40))
	if y.full() != 0 {
		t.Error("64 bits are full")
	}
}

// Two nodes with one GUID stay two, whoever was found first; a cable that is elsewhere has moved.
func TestShape(t *testing.T) {
	node := func(name string, typ ib.NodeType, guid ib.GUID, ports uint8) *survey.Node {
		n := &survey.Node{Name: name, Info: mad.NodeInfo{NodeType: typ, NodeGUID: guid, PortGUID: guid + 1,
			NumPorts: ports}, Ports: make([]survey.Port, int(ports)+1)}
		for p := range n.Ports {
			n.Ports[p] = survey.Port{Known: true, Peer: survey.None, GUID: guid + ib.GUID(p)}
		}
		return n
	}
	join := func(s *survey.Survey, a, pa, b, pb int) {
		x, y := &s.Nodes[a].Ports[pa], &s.Nodes[b].Ports[pb]
		x.Peer, x.PeerPort, y.Peer, y.PeerPort = b, ib.PortNum(pb), a, ib.PortNum(pa)
	}
	made := func(twin int, port int) *survey.Survey { // the order of the twins, and where the first host is plugged in
		s := &survey.Survey{Nodes: []*survey.Node{node("h1", ib.NodeCA, 0x10, 1), node("sw1", ib.NodeSwitch, 0x20, 8),
			node("t", ib.NodeCA, 0x30, 1), node("t-2", ib.NodeCA, 0x30, 1)}}
		join(s, 0, 1, 1, port)
		join(s, 2, 1, 1, 2+twin)
		join(s, 3, 1, 1, 3-twin)
		s.From.Port = 1
		return s
	}
	h := newShape()
	at, news := h.absorb(made(0, 1))
	if len(news) != 7 || len(at) != 4 {
		t.Fatalf("%q", news)
	}
	if again, news := h.absorb(made(1, 1)); len(news) != 0 || again[2] != at[3] || again[3] != at[2] {
		t.Errorf("%v, then %v: %q", at, again, news)
	}
	g, err := h.graph()
	if err != nil || g.NumCables() != 3 || len(g.Hosts()) != 3 {
		t.Fatalf("%v, %v", g, err)
	}
	if _, news := h.absorb(made(0, 7)); len(news) != 1 ||
		news[0] != "the cable h1[1] sw1[7] is new; it was h1[1] sw1[1]" {
		t.Errorf("%q", news)
	}
	if g, err = h.graph(); err != nil || g.NumCables() != 3 || g.Nodes[1].Ports[1].Connected() ||
		!g.Nodes[1].Ports[7].Connected() {
		t.Errorf("%v, %v", g, err)
	}
	// A node that is gone stays.
	s := made(0, 7)
	s.Nodes = s.Nodes[:3]
	s.Nodes[1].Ports[3].Peer = survey.None
	at, news = h.absorb(s)
	v := h.look(s, at, nil)
	if len(news) != 0 || len(v.nodes) != 4 || v.nodes[3].seen {
		t.Errorf("%q, %+v", news, v)
	}
}
