package sm

import (
	"slices"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// late is a request of a manager that stood still before it was carried.
type late struct {
	node int
	data [mad.Size]byte
}

// tables are what all switches forward by, and who has which address.
func (w *world) tables() (all [][]ib.PortNum) {
	for _, s := range w.switches {
		if s == nil {
			continue
		}
		var table []ib.PortNum
		for l := range ib.LID(200) {
			table = append(table, s.Route(l))
		}
		all = append(all, table)
	}
	return all
}

// TestTermsOfManagers: a manager that rules after another takes over its nodes, guarded or not, and nothing that the
// other still had on its way is carried out.
func TestTermsOfManagers(t *testing.T) {
	const secret = 4711
	for _, c := range []struct {
		name   string
		fenced bool
		cfg    Config
	}{
		{"no keys", true, Config{}},
		{"a key for each port", true, Config{MKey: 9, MKeyPerPort: true, MKeyProtect: 2}},
		{"nodes that know no terms", false, Config{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := build(t, spec(t, "fat-tree:radix=4,levels=2"))
			if c.fenced {
				for _, a := range w.agents {
					a.SetTerms(secret)
				}
			}
			first := c.cfg
			first.Terms, first.Term = secret, 1<<24-1
			a := newRig(t, w, first)
			var sent []late
			a.lose = func(node int, v mad.View) (bool, bool) {
				if v.Method() == mad.MethodSet && w.switches[node] != nil {
					sent = append(sent, late{node, [mad.Size]byte(v[:mad.Size])})
				}
				return false, false
			}
			a.settle()
			if len(sent) < 20 {
				t.Fatalf("the first manager has written %d times", len(sent))
			}

			second := c.cfg
			second.Terms, second.Term, second.Engines = secret, 1<<24, "minhop"
			second.Memory.LIDs = map[ib.GUID]ib.LID{}
			for i, r := range w.g.EndPorts() { // other addresses, so that all tables are others
				second.Memory.LIDs[w.g.Nodes[r.Node].PortGUID(r.Port)] = ib.LID(100 + i)
			}
			second.Memory.MKeys = a.m.keys.memory() // as of a manager of this machine that ruled before
			second.Plan, second.Self = w.g, w.g.Hosts()[0].PortGUID(1)
			b := newRig(t, w, second)
			b.settle()
			if b.m.Last().Problems > 0 {
				t.Errorf("the second manager has problems: %q", b.log)
			}
			was := w.tables()
			answered := 0
			for i := range sent {
				var resp [mad.Size]byte
				if _, ok := w.agents[sent[i].node].HandleMAD(b.now, 1, sent[i].data[:], resp[:]); ok {
					answered++
				}
			}
			changed := !slices.EqualFunc(w.tables(), was, slices.Equal[[]ib.PortNum])
			if want := !c.fenced; changed != want || (answered > 0) != want {
				t.Errorf("%d of %d late requests are carried out, and the tables change: %v; want none: %v", answered,
					len(sent), changed, c.fenced)
			}
			if !c.fenced {
				return
			}
			a.m.Sweep(a.now, "it knows nothing yet")
			a.pass(ib.Second)
			b.m.Sweep(b.now, "test")
			b.settle()
			if !slices.EqualFunc(w.tables(), was, slices.Equal[[]ib.PortNum]) || b.m.Last().Problems > 0 {
				t.Errorf("the first manager has changed something: %q", b.log)
			}
			for _, g := range w.g.EndPorts() {
				guid := w.g.Nodes[g.Node].PortGUID(g.Port)
				if key := b.m.MKey(guid); (key != 0) != (c.cfg.MKey != 0) {
					t.Errorf("port %v has key %#x", guid, key)
				}
			}
		})
	}
}

// TestTermsDecide: of managers that rule in turn the one of the later term rules, whatever their priorities and whoever
// was first; the other ends at once, also while its own machine has not told it yet.
func TestTermsDecide(t *testing.T) {
	const secret = 815
	for _, later := range []int{0, 1} { // which of the two comes second
		n := newNetwork(t, small)
		for _, a := range n.agents {
			a.SetTerms(secret)
		}
		cfg := func(k int, term uint32) Config {
			return Config{Terms: secret, Term: term, Priority: []uint8{9, 2}[k]}
		}
		old := n.manage(2*(1-later), cfg(1-later, 7))
		n.up(old)
		began := n.now
		now := n.manage(2*later, cfg(later, 8))
		n.must(2*ib.Second, "the later term rules", func() bool { return n.ruled(now) })
		if old.m.State() != mad.SMNotActive {
			t.Errorf("the earlier one is %v", old.m.State())
		}
		t.Logf("after %v", n.now-began)
		old.m.Sweep(n.now, "test")
		n.rules(0, now)
		// One that comes late, with a term that is over, is nobody.
		old.die()
		late := n.manage(2*(1-later), cfg(1-later, 6))
		n.pass(20 * ib.Second)
		if !n.ruled(now) && late.m.State() == mad.SMMaster {
			t.Errorf("one of an earlier term rules\n%s", n.logs())
		}
	}
}
