package agent

import (
	"bytes"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// seeds are well-formed requests of every attribute, both ways.
func seeds(f *testing.F) {
	for _, directed := range []bool{false, true} {
		for _, m := range []mad.Method{mad.MethodGet, mad.MethodSet} {
			for i := range smaTable {
				smp := mad.SMP{Method: m, Attr: smaTable[i].attr, Directed: directed,
					Data: bytes.Repeat([]byte{0x11}, 64)}
				if directed {
					smp.Path = []ib.PortNum{1, 2, 3}
				}
				b, err := smp.Append(nil)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(b, uint8(1), int64(0), false)
				f.Add(b, uint8(0), int64(ib.Second), true)
			}
		}
	}
	h := mad.Header{BaseVersion: 1, MgmtClass: mad.ClassPerf, ClassVersion: 1, Method: mad.MethodSet,
		AttributeID: mad.AttrPortCounters}
	f.Add(append(h.Append(nil), bytes.Repeat([]byte{0xFF}, mad.Size-mad.HeaderSize)...), uint8(1), int64(0), false)
	for class := range 256 {
		info := mad.Class(class).Info()
		if servers[class] == nil || mad.Class(class).IsSubnet() {
			continue
		}
		for id := range mad.AttrID(0x100) {
			if mad.Attr(mad.Class(class), id) == nil {
				continue
			}
			for _, m := range []mad.Method{mad.MethodGet, mad.MethodSet} {
				h := mad.Header{BaseVersion: 1, MgmtClass: mad.Class(class), ClassVersion: info.Version, Method: m,
					AttributeID: id}
				b := mad.View(append(h.Append(nil), make([]byte, mad.Size-mad.HeaderSize)...))
				b.Data()[1] = 1 // a port
				if info.DataOff == mad.Vendor2DataOff {
					b.SetOUI(mad.OUIOpenIB)
				}
				f.Add([]byte(b), uint8(1), int64(0), false)
			}
		}
	}
	f.Add([]byte{1, 1, 1, 1}, uint8(9), int64(0), false)
}

// FuzzHandleMAD: whatever comes, there is no panic, and an answer is well-formed.
func FuzzHandleMAD(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, req []byte, port uint8, now int64, fromHere bool) {
		// New ones each time: a request may set an M_Key that shuts out the next.
		for _, a := range []*Agent{New(newFakeNode(ib.NodeCA, 2)), New(newFakeSwitch(17))} {
			orig := append([]byte(nil), req...)
			resp := make([]byte, mad.Size)
			n, ok := a.HandleMAD(ib.Time(now), ib.PortNum(port), req, resp)
			if !bytes.Equal(req, orig) {
				t.Fatal("the request has changed")
			}
			if ok {
				checkResponse(t, orig, resp, n)
			} else if n != 0 {
				t.Fatalf("no answer of %d bytes", n)
			}

			buf := append([]byte(nil), req...)
			v := a.Deliver(ib.Time(now), ib.PortNum(port), fromHere, buf)
			if v.Do >= NumAction || v.Do == Local {
				t.Fatalf("verdict %v", v)
			}
			if v.Do == SendPort && (v.Port == 0 || uint8(v.Port) > a.ports) {
				t.Fatalf("sent out of port %d", v.Port)
			}
			if v.Do != Discard && len(buf) < mad.Size {
				t.Fatalf("%v on %d bytes", v.Do, len(buf))
			}
			trap := make([]byte, mad.Size)
			for range 3 {
				at := a.NextDeadline()
				if at == ib.Never {
					break
				}
				a.HandleTimer(max(at, ib.Time(now)))
				a.PollTrap(max(at, ib.Time(now)), trap)
			}
		}
	})
}

func checkResponse(t *testing.T, req, resp []byte, n int) {
	t.Helper()
	q, r := mad.View(req), mad.View(resp)
	switch {
	case n != mad.Size:
		t.Fatalf("answer of %d bytes", n)
	case r.Method() != mad.MethodGetResp || q.Method().IsResponse():
		t.Fatalf("%v answered by %v", q.Method(), r.Method())
	case r.TID() != q.TID() || r.AttrID() != q.AttrID() || r.AttrMod() != q.AttrMod() || r.Class() != q.Class():
		t.Fatalf("answer to something else:\n%s", mad.Dump(resp))
	case r.Class() == mad.ClassSMDirect && !r.Returning():
		t.Fatal("directed answer without D")
	}
	switch r.Status() {
	case mad.StatusOK, mad.StatusBadVersion, mad.StatusUnsupMethod, mad.StatusUnsupMethodAttr, mad.StatusInvalidField:
	default:
		t.Fatalf("status %v", r.Status())
	}
}

func BenchmarkSetLFT(b *testing.B) {
	s := newFakeSwitch(36)
	s.sets = nil
	a := New(s)
	lft := mad.LFT{}
	req, err := (&mad.SMP{Method: mad.MethodSet, Attr: mad.AttrLFT, Data: lft.Append(nil)}).Append(nil)
	if err != nil {
		b.Fatal(err)
	}
	resp := make([]byte, mad.Size)
	b.ReportAllocs()
	for b.Loop() {
		s.sets = s.sets[:0]
		if _, ok := a.HandleMAD(0, 1, req, resp); !ok {
			b.Fatal("no answer")
		}
	}
}

func BenchmarkSetPortInfo(b *testing.B) {
	n := newFakeNode(ib.NodeCA, 1)
	a := New(n)
	pi := mad.PortInfo{LID: 8, MasterSMLID: 3}
	req, err := (&mad.SMP{Method: mad.MethodSet, Attr: mad.AttrPortInfo, Data: pi.Append(nil)}).Append(nil)
	if err != nil {
		b.Fatal(err)
	}
	resp := make([]byte, mad.Size)
	b.ReportAllocs()
	for b.Loop() {
		n.sets = n.sets[:0]
		if _, ok := a.HandleMAD(0, 1, req, resp); !ok {
			b.Fatal("no answer")
		}
	}
}
