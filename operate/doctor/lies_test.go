package doctor_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"softib/driver/live"
	"softib/node/madrpc"
	"softib/operate/doctor"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// liar is a port of a running fabric some of whose nodes do not say what they are.
type liar struct {
	*live.Session
	g *topo.Graph
	// twist may change the answer of a node to an SMP; false takes it away.
	twist func(node *topo.Node, v mad.View, data []byte) bool
}

// Poll changes what has come. Who has answered a directed request is found along its route.
func (l *liar) Poll(take func(madrpc.Delivery)) bool {
	return l.Session.Poll(func(d madrpc.Delivery) {
		v := mad.View(d.Data)
		if d.Kind == madrpc.Response && v.Class() == mad.ClassSMDirect {
			at := l.Ref().Node
			for h := uint8(1); h <= v.HopCount(); h++ {
				at = l.g.Nodes[at].Ports[v.InitialPath(h)].Peer
			}
			if !l.twist(l.g.Nodes[at], v, d.Data[mad.SMPDataOff:][:mad.SMPDataLen]) {
				d.Kind, d.Data = madrpc.TimedOut, nil
			}
		}
		take(d)
	})
}

// believe runs the doctor among liars.
func (r *rig) believe(twist func(node *topo.Node, v mad.View, data []byte) bool) *doctor.Report {
	r.t.Helper()
	s, err := r.OpenMgmt(topo.PortRef{Node: r.g.Hosts()[1].Index, Port: 1})
	if err != nil {
		r.t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	found, err := doctor.Run(ctx, &liar{s, r.g, twist}, doctor.RunOptions{Interval: quick, Timeout: unhurried})
	if err != nil {
		r.t.Fatal(err)
	}
	return doctor.Judge(found.Before, found.After, doctor.Options{Plan: r.g})
}

// info changes a node's NodeInfo.
func info(name string, change func(*mad.NodeInfo)) func(*topo.Node, mad.View, []byte) bool {
	return func(n *topo.Node, v mad.View, data []byte) bool {
		if n.Name == name && v.AttrID() == mad.AttrNodeInfo {
			var i mad.NodeInfo
			if _, err := i.Parse(data); err != nil {
				return false
			}
			change(&i)
			i.Append(data[:0])
		}
		return true
	}
}

// TestDuplicateGUID: two nodes of a running fabric with one GUID are both found, each where it is, and nothing else
// about them is mistaken.
func TestDuplicateGUID(t *testing.T) {
	r := newRig(t, topo.DefaultSpec, sm.Config{})
	for _, c := range []struct{ twin, of string }{{"h9", "h5"}, {"h9", "h2"}, {"spine3", "spine1"}, {"leaf4", "leaf1"},
		{"h7", "leaf3"}} {
		t.Run(c.twin+" has that of "+c.of, func(t *testing.T) {
			guid := r.g.ByName(c.of).GUID
			rep := r.believe(info(c.twin, func(i *mad.NodeInfo) { i.NodeGUID = guid }))
			f := wantFinding(t, rep, "duplicate-node-guid", doctor.Fail, c.twin, c.of)
			if len(f.Objects) != 2 || !strings.Contains(f.Measured, guid.String()) {
				t.Errorf("%v: %s", f.Objects, f.Measured)
			}
			if rep.Fabric.Cables != r.g.NumCables() || rep.Fabric.Hosts != len(r.g.Hosts()) ||
				rep.Fabric.Switches != len(r.g.Switches()) {
				t.Errorf("found %+v", rep.Fabric)
			}
			for _, check := range []doctor.Check{doctor.Answers, doctor.LIDs, doctor.Links, doctor.Routing,
				doctor.Cables, doctor.Managers} {
				if s := rep.Section(check); s.Severity >= doctor.Warn {
					t.Errorf("%v is mistaken:\n%s", check, all(rep))
				}
			}
		})
	}
	rep := r.believe(info("h9", func(i *mad.NodeInfo) { i.PortGUID = r.g.ByName("h5").PortGUID(1) }))
	wantFinding(t, rep, "duplicate-port-guid", doctor.Fail, "h9[1]", "h5[1]")
}

// TestRevision: one switch with other firmware.
func TestRevision(t *testing.T) {
	r := newRig(t, topo.DefaultSpec, sm.Config{})
	rep := r.believe(info("spine2", func(i *mad.NodeInfo) { i.Revision = 0x1234 }))
	f := wantFinding(t, rep, "revision", doctor.Warn, "spine2")
	if !slices.Equal(f.Objects, []string{"spine2"}) || !strings.Contains(f.Measured, "0x1234") {
		t.Errorf("%v: %s", f.Objects, f.Measured)
	}
}

// TestSilentNode: a host that hangs, and a switch that answers only half of what it is asked.
func TestSilentNode(t *testing.T) {
	r := newRig(t, topo.DefaultSpec, sm.Config{})
	rep := r.believe(func(n *topo.Node, v mad.View, _ []byte) bool {
		return n.Name != "h10" && (n.Name != "spine4" || v.AttrID() != mad.AttrLFT)
	})
	wantFinding(t, rep, "silent-node", doctor.Fail, r.cable("h10[1]")...)
	wantFinding(t, rep, "no-answer", doctor.Warn, "spine4")
}

// TestAsymmetric: a port that says another width than its peer.
func TestAsymmetric(t *testing.T) {
	r := newRig(t, topo.DefaultSpec, sm.Config{})
	rep := r.believe(func(n *topo.Node, v mad.View, data []byte) bool {
		if n.Name == "h10" && v.AttrID() == mad.AttrPortInfo {
			var pi mad.PortInfo
			if _, err := pi.Parse(data); err != nil {
				return false
			}
			pi.LinkWidthActive = ib.Width1x
			pi.Append(data[:0])
		}
		return true
	})
	wantFinding(t, rep, "asymmetric-link", doctor.Fail, r.cable("h10[1]")...)
}
