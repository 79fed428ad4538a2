package sm

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// TestTableGetsLaterEnd: entries above the end of a table are in nobody's way and may be anything. None comes into
// force when the end moves up: blocks that are not in use are written too, and a switch that does not take one keeps
// its end.
func TestTableGetsLaterEnd(t *testing.T) {
	const late, unused = 200, 100
	for _, c := range []struct {
		name    string
		refuses bool
	}{{"all take their blocks", false}, {"one does not", true}} {
		t.Run(c.name, func(t *testing.T) {
			n := newNetwork(t, "fat-tree:radix=4,levels=2")
			ref := n.hostRef(5)
			n.cut(ref)
			h := n.manage(0, Config{Memory: Memory{LIDs: map[ib.GUID]ib.LID{n.g.Nodes[ref.Node].PortGUID(1): late}}})
			n.up(h)
			leave := func(i int) {
				for _, lid := range []ib.LID{unused, late} {
					if err := n.switches[i].SetRoute(lid, 1); err != nil {
						t.Fatal(err)
					}
				}
			}
			for i, sw := range n.switches {
				if sw == nil {
					continue
				}
				if top := sw.Info().LinearFDBTop; top >= unused {
					t.Fatalf("%s: its table ends at %v: not much of a test", n.g.Nodes[i].Name, top)
				}
				leave(i)
			}
			leaf := n.leafOf(n.hostRef(0))
			if c.refuses {
				n.answers[leaf] = func(req, _ mad.View) fate {
					if req.Method() != mad.MethodSet || req.AttrID() != mad.AttrLFT {
						return fate{}
					}
					leave(leaf) // as it was
					return fate{drop: true}
				}
			}
			stale := func() {
				t.Helper()
				for i, sw := range n.switches {
					if sw != nil && sw.Info().LinearFDBTop >= unused && sw.Route(unused) != mad.LFTNone {
						t.Fatalf("%s: an entry that nobody has written is in force\n%s", n.g.Nodes[i].Name, n.logs())
					}
				}
			}
			n.join(ref)
			n.must(20*ib.Second, "the host is found", func() bool {
				stale()
				_, found := h.m.Subnet().ByLID(late)
				return found && h.rests()
			})
			if c.refuses {
				delete(n.answers, leaf)
			}
			n.must(20*ib.Second, "all tables have the new end", func() bool {
				stale()
				return n.switches[leaf].Info().LinearFDBTop == late && h.rests()
			})
			n.works()
		})
	}
}
