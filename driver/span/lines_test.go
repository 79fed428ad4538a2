package span

import (
	"context"
	"encoding/json"
	"testing"

	"golang.org/x/sys/unix"

	"softib/driver/endpoint"
	"softib/driver/live"
	"softib/node/inspect"
	"softib/proto/ib"
	"softib/proto/topo"
)

// program is an attached process in a test: what it was told of lines.
type program struct {
	*live.Process
	at         topo.PortRef
	lid        ib.LID
	come, gone []*live.Line
}

func attach(t *testing.T, f *Fabric, n *topo.Node) *program {
	t.Helper()
	p, err := f.Attach(n.Name, live.Caller{PID: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	at := topo.PortRef{Node: n.Index, Port: 1}
	pi, _ := f.PortInfo(at)
	return &program{Process: p, at: at, lid: pi.LID}
}

// hear takes in what the program is told.
func (p *program) hear() {
	for n, ok := p.PollNote(); ok; n, ok = p.PollNote() {
		if n.Line != nil {
			p.come = append(p.come, n.Line)
		}
		if n.GoneLine != nil {
			p.gone = append(p.gone, n.GoneLine)
		}
	}
}

// ask asks for the way to another.
func (p *program) ask(t *testing.T, to *program) live.Resolved {
	t.Helper()
	r, err := p.Resolve(endpoint.Key{Port: 1, DLID: to.lid, PKey: ib.PKeyDefault, Block: to.Block()})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.New {
		if e, ok := c.Sender(); ok {
			e.Close()
		}
	}
	return r
}

// TestLines: two programs on two machines get a line whose packets a third would switch. All count what goes by; it is
// lifted when the third has something to do with the packets, when it is lost, or when one of the programs has ended,
// and laid again when it can be.
func TestLines(t *testing.T) {
	all := spread(t, "star:4", apart, "switch", "even", "odd")
	f := all["switch"]
	g := f.Graph()
	eventually(t, "cables stay down", func() bool { return links(f, ib.PortInit) == len(g.Cables()) })
	if _, err := all[f.Where(g.Hosts()[0].Index)].BringUp(); err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		eventually(t, "not all is up", func() bool { return links(f, ib.PortActive) == len(g.Cables()) })
	}
	var hosts [2]*topo.Node // of even, and of odd
	for _, n := range g.Hosts() {
		if f.Where(n.Index) == "even" {
			hosts[0] = n
		} else {
			hosts[1] = n
		}
	}
	p, q := attach(t, all["odd"], hosts[1]), attach(t, all["even"], hosts[0])
	r := p.ask(t, q)
	if q.hear(); r.Line == nil || len(r.Rings) != 1 || len(q.come) != 1 {
		t.Fatalf("no line: %+v, and the other end heard %v", r, q.come)
	}
	l, end := r.Line, q.come[0]
	switch {
	case l.Secret != end.Back || l.Back != end.Secret || l.Secret == l.Back:
		t.Fatal("the ends have other keys")
	case l.Far != end.Near || l.Near != end.Far || !l.Sends || end.Sends:
		t.Fatalf("the ends do not meet: %+v and %+v", l, end)
	case end.Origin.LID != p.lid || end.Block != p.Block() || end.Way.DLID != q.lid || end.Port != 1:
		t.Fatalf("the receiver takes packets of %+v", end)
	}
	if again := p.ask(t, q); again.Line != nil || len(again.Rings) != 1 || again.Rings[0] != l.ID {
		t.Fatalf("the second time: %+v", again)
	}
	for _, s := range []*program{p, q} {
		if fd := s.TakeSocket(); fd < 0 || s.TakeSocket() >= 0 {
			t.Fatal("a program's socket is not handed out once")
		} else {
			unix.Close(fd)
		}
	}

	// All ports on the way count what goes by, wherever they are.
	in, out := g.Peer(p.at), g.Peer(q.at)
	before := f.CountersOf([]topo.PortRef{in, out, q.at})
	all["odd"].lines.Sent(l, 5, 100)
	eventually(t, "ports do not count", func() bool {
		is := f.CountersOf([]topo.PortRef{in, out, q.at})
		return is[0][ib.PortRcvPkts]-before[0][ib.PortRcvPkts] == 5 &&
			is[1][ib.PortXmitData]-before[1][ib.PortXmitData] == 100 &&
			is[2][ib.PortRcvPkts]-before[2][ib.PortRcvPkts] == 5
	})

	gone := func(why string) {
		t.Helper()
		eventually(t, "no end heard of "+why, func() bool {
			p.hear()
			return len(p.gone) > 0 && p.gone[0] == l
		})
		p.gone = nil
		eventually(t, "machines keep a line after "+why, func() bool {
			return len(f.lines.all())+len(all["odd"].lines.all())+len(all["even"].lines.all()) == 0
		})
	}
	back := func(why string) {
		t.Helper()
		eventually(t, "no line after "+why, func() bool {
			r = p.ask(t, q)
			return r.Line != nil
		})
		l = r.Line
	}
	if err := f.SetFault(out, inspect.Fault{Drop: 0.5}); err != nil {
		t.Fatal(err)
	}
	gone("a fault")
	if r = p.ask(t, q); r.Line != nil {
		t.Fatal("packets pass by a bad cable without harm")
	}
	if err := f.ClearFault(out); err != nil {
		t.Fatal(err)
	}
	back("the fault")
	if err := f.SetLink(out, false); err != nil {
		t.Fatal(err)
	}
	gone("a cable")
	if err := f.SetLink(out, true); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cable stays down", func() bool { return links(f, ib.PortInit) == len(g.Cables()) })
	if _, err := all[f.Where(g.Hosts()[0].Index)].BringUp(); err != nil {
		t.Fatal(err)
	}
	back("the cable")
	q.Close()
	gone("the end of a program")
	q = attach(t, all["even"], hosts[0])
	back("a new program")
	all["odd"].Reached("switch", false)
	f.Reached("odd", false)
	gone("the loss of a machine")
}

// TestLinesOfOthers: a machine gets lines for its own programs alone, by the cables that it has, and ends none of
// others.
func TestLinesOfOthers(t *testing.T) {
	all := spread(t, "star:4", apart, "switch", "even", "odd")
	f := all["switch"]
	g := f.Graph()
	eventually(t, "cables stay down", func() bool { return links(f, ib.PortInit) == len(g.Cables()) })
	if _, err := all[f.Where(g.Hosts()[0].Index)].BringUp(); err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		eventually(t, "not all is up", func() bool { return links(f, ib.PortActive) == len(g.Cables()) })
	}
	by := map[string][]*topo.Node{}
	for _, n := range g.Hosts() {
		by[f.Where(n.Index)] = append(by[f.Where(n.Index)], n)
	}
	p, q := attach(t, all["odd"], by["odd"][0]), attach(t, all["even"], by["even"][0])
	r := p.ask(t, q)
	if r.Line == nil {
		t.Fatal("no line")
	}
	ask := func(machine, from string, name any, what any) error {
		b, err := json.Marshal(what)
		if err != nil {
			t.Fatal(err)
		}
		var method string
		switch x := name.(type) {
		case op[layAsked, string]:
			method = string(x)
		case op[meetAsked, live.LineEnd]:
			method = string(x)
		case op[[]lineName, struct{}]:
			method = string(x)
		}
		_, err = all[machine].Answer(context.Background(), from, method, b)
		return err
	}
	key := func(from topo.PortRef, to *program) live.LineKey {
		return live.LineKey{From: from, Block: 9, Way: endpoint.Key{Port: 1, DLID: to.lid, PKey: ib.PKeyDefault,
			Block: to.Block()}}
	}
	mine := topo.PortRef{Node: by["odd"][1].Index, Port: 1}
	theirs := topo.PortRef{Node: by["even"][1].Index, Port: 1}
	way := func(dlid ib.LID, pkey ib.PKey, block uint16) live.LineKey {
		return live.LineKey{From: mine, Way: endpoint.Key{Port: 1, DLID: dlid, PKey: pkey, Block: block}}
	}
	in := g.Peer(mine)
	for what, x := range map[string]layAsked{
		"another's host":              {lineName{"odd", 100}, key(theirs, p), in, 0},
		"another's cable":             {lineName{"odd", 101}, key(mine, q), g.Peer(theirs), 0},
		"another machine's name":      {lineName{"even", 102}, key(theirs, p), in, 0},
		"a port that is not there":    {lineName{"odd", 103}, key(mine, q), topo.PortRef{Node: 1 << 20, Port: 9}, 0},
		"a host that is not there":    {lineName{"odd", 104}, key(topo.PortRef{Node: -1}, q), in, 0},
		"a multicast":                 {lineName{"odd", 105}, way(0xC001, ib.PKeyDefault, q.Block()), in, 0},
		"a partition that it has not": {lineName{"odd", 106}, way(q.lid, 0x8123, q.Block()), in, 0},
		"a block that no program has": {lineName{"odd", 107}, way(q.lid, ib.PKeyDefault, 999), in, 0},
		"the number of another":       {lineName{"odd", r.Line.ID}, key(mine, q), in, 0},
	} {
		if err := ask("switch", "odd", opLay, x); err == nil {
			t.Errorf("a line for %s was laid", what)
		}
	}
	// Past the machine between.
	if err := ask("even", "odd", opLay, layAsked{lineName{"odd", 120}, key(mine, q), q.at, 0}); err == nil {
		t.Error("a line got past the machine between")
	}
	meet := meetAsked{r.Line.ID, r.Line.Near, make([]byte, 32), make([]byte, 32)}
	for _, from := range []string{"odd", "switch"} { // it has been met, and is not the other's
		if err := ask("even", from, opMeet, meet); err == nil {
			t.Errorf("%s has met a line that is not there for it", from)
		}
	}
	if err := ask("even", "odd", opLift, []lineName{{"odd", r.Line.ID}}); err != nil {
		t.Fatal(err)
	}
	if len(all["even"].lines.all()) != 1 {
		t.Error("a line was lifted by a machine that is not next to it")
	}
}
