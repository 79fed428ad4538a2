package manager_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"softib/internal/benchsize"
	"softib/node/madrpc"
	"softib/operate/manager/tenant"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// lanes is what all ports of a fabric with one port a host hold: mappings and arbitration, asked for one by one.
func (x *ground) lanes(t testing.TB) string {
	t.Helper()
	s, err := x.f.OpenMgmt(x.ref(0))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	id, err := s.Register(madrpc.Registration{Class: mad.ClassSMLID, ClassVersion: 1, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out strings.Builder
	tid := uint64(0)
	get := func(lid ib.LID, port string, attr mad.AttrID, mod uint32) {
		b, err := (&mad.SMP{Method: mad.MethodGet, Attr: attr, Modifier: mod}).Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		tid++
		mad.View(b).SetTID(tid)
		if err := s.Send(id, madrpc.Message{Env: mad.Envelope{LID: lid, QPN: ib.QPNSMI}, Data: b, Timeout: ib.Second,
			Cookie: tid}); err != nil {
			t.Fatal(err)
		}
		d, err := s.Recv(ctx)
		if err != nil || d.Kind != madrpc.Response || mad.View(d.Data).Status() != mad.StatusOK {
			t.Fatalf("%s, %v %x: %+v, %v", port, attr, mod, d.Kind, err)
		}
		fmt.Fprintf(&out, "%s %v %x: %x\n", port, attr, mod, d.Data[mad.SMPDataOff:][:mad.SMPDataLen])
	}
	for i, n := range x.f.Graph().Nodes {
		for p := 1; p < len(n.Ports); p++ {
			if !n.Ports[p].Connected() {
				continue
			}
			ref, names, inputs := topo.PortRef{Node: i, Port: ib.PortNum(p)}, ib.PortNum(0), 1
			at := ref
			if n.IsSwitch() {
				at.Port, names, inputs = 0, ref.Port, len(n.Ports)
			}
			pi, _ := x.f.PortInfo(at)
			name := x.f.Graph().PortName(ref)
			for in := range inputs {
				get(pi.LID, name, mad.AttrSLtoVL, mad.SLtoVLModifier(ib.PortNum(in), names))
			}
			for block := mad.VLArbLow0; block < mad.NumVLArbBlock; block++ {
				get(pi.LID, name, mad.AttrVLArb, mad.VLArbModifier(names, block))
			}
		}
	}
	return out.String()
}

// TestLanesLiar: a node that says that it took its mapping or its weights, and keeps the old ones, is named with what
// it has and what it was told, and the lanes of all are what they were.
func TestLanesLiar(t *testing.T) {
	// The manager is at h1; one step away is its leaf, two steps the leaf's h2 (port 2) and a spine (port 3).
	at := func(v mad.View, path ...ib.PortNum) bool {
		if int(v.HopCount()) != len(path) {
			return false
		}
		for i, p := range path {
			if v.InitialPath(uint8(i+1)) != p {
				return false
			}
		}
		return true
	}
	for _, tc := range []struct {
		what string
		nods func(v mad.View) bool
		want []string
	}{
		{"a leaf keeps its mappings", func(v mad.View) bool { return v.AttrID() == mad.AttrSLtoVL && at(v, 1) },
			[]string{"leaf1[1]: puts packets from port 0 of service levels 0 to 15 on lanes 0 0 0 0 0 0 0 0 " +
				"0 0 0 0 0 0 0 0: want 0 1 2 3 0 0 0 0 0 0 0 0 0 0 0 0"}},
		{"a spine keeps its mappings", func(v mad.View) bool { return v.AttrID() == mad.AttrSLtoVL && at(v, 1, 3) },
			[]string{"spine1[1]: puts packets from port 0 of"}},
		{"a leaf's port keeps its weights", func(v mad.View) bool {
			return v.AttrID() == mad.AttrVLArb && at(v, 1) && v.AttrMod()&0xff == 4
		}, []string{"leaf1[4]: gives lanes in its table low[0:32] the weights 0:64: want 0:64,1:64,2:128,3:32"}},
		{"a leaf's port keeps its high-priority weights", func(v mad.View) bool {
			return v.AttrID() == mad.AttrVLArb && at(v, 1) && v.AttrMod() == mad.VLArbModifier(2, mad.VLArbHigh0)
		}, []string{"leaf1[2]: gives lanes in its table high[0:32] the weights none: want 1:192,3:32"}},
		{"an adapter keeps its mapping", func(v mad.View) bool { return v.AttrID() == mad.AttrSLtoVL && at(v, 1, 2) },
			[]string{"h2[1]: puts its packets of service levels 0 to 15 on lanes 0 0 "}},
		{"an adapter keeps its weights", func(v mad.View) bool { return v.AttrID() == mad.AttrVLArb && at(v, 1, 2) },
			[]string{"h2[1]: gives lanes in its table low[0:32]"}},
	} {
		t.Run(tc.what, func(t *testing.T) {
			x := newGround(t, "fat-tree:radix=4,levels=2", sm.Config{SweepInterval: -1}, memory(t))
			ctx := t.Context()
			if err := x.book.UseTemplate(ctx, "flat"); err != nil {
				t.Fatal(err)
			}
			held := x.lanes(t)
			x.tr.lie(tc.nods)
			err := x.book.UseTemplate(ctx, "classic")
			x.tr.lie(nil)
			var r *tenant.RefusedError
			if !errors.As(err, &r) || len(r.Left) > 0 || !strings.Contains(err.Error(), "nothing was changed") {
				t.Fatalf("%v", err)
			}
			for _, want := range tc.want {
				if !strings.HasPrefix(r.Refusals[0].String(), want) {
					t.Errorf("%v: want %s", r.Refusals[0], want)
				}
			}
			names := make([]string, len(r.Refusals))
			for i := range r.Refusals {
				names[i] = r.Refusals[i].Node
			}
			if slices.Sort(names); len(slices.Compact(names)) != len(r.Refusals) {
				t.Errorf("a port is named more than once: %v", err)
			}
			if now := x.lanes(t); now != held {
				t.Errorf("the fabric has\n%s\nwant\n%s", now, held)
			}
			if now := x.book.Template(); now != "flat" {
				t.Errorf("the book has %q", now)
			}
			if err := x.book.UseTemplate(ctx, "classic"); err != nil {
				t.Errorf("with everybody honest: %v", err)
			}
			if now := x.lanes(t); now == held {
				t.Error("the second time nothing has changed")
			}
		})
	}
}

// TestLanesLiarAmongMany: where a switch's ports take turns, one that does nothing is found all the same.
func TestLanesLiarAmongMany(t *testing.T) {
	x := newGround(t, "fat-tree:radix=36,levels=2", sm.Config{SweepInterval: -1}, memory(t))
	ctx := t.Context()
	for _, attr := range []mad.AttrID{mad.AttrSLtoVL, mad.AttrVLArb} {
		x.tr.lie(func(v mad.View) bool {
			return v.AttrID() == attr && v.HopCount() == 2 && v.InitialPath(2) == 20 // a spine
		})
		err := x.book.UseTemplate(ctx, "classic")
		x.tr.lie(nil)
		if !errors.Is(err, tenant.ErrRefused) || !strings.Contains(err.Error(), "spine2[") ||
			!strings.Contains(err.Error(), ": want ") || x.book.Template() != "" {
			t.Errorf("%v: %v", attr, err)
		}
	}
	if err := x.book.UseTemplate(ctx, "classic"); err != nil {
		t.Error(err)
	}
}

// BenchmarkTemplate is one change of lanes at all ports, read back.
func BenchmarkTemplate(b *testing.B) {
	for _, spec := range []string{"fat-tree:radix=8,levels=2", "fat-tree:radix=36,levels=2",
		"fat-tree:radix=36,levels=3"} {
		b.Run(spec, func(b *testing.B) {
			x := newGround(b, benchsize.Tree(spec), sm.Config{SweepInterval: -1}, memory(b))
			at := 0
			for b.Loop() {
				if err := x.book.UseTemplate(b.Context(), []string{"classic", "flat"}[at%2]); err != nil {
					b.Fatal(err)
				}
				at++
			}
		})
	}
}
