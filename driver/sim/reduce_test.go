package sim

import (
	"encoding/binary"
	"testing"

	"softib/node/aggregate"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/am"
)

// TestLinkDownInTheMiddle: a link of the tree goes down while a long vector is on its way, and a switch of the next
// tree starts anew. All hosts hear of either; none gets a wrong or a half sum; and all have the whole one in the end.
func TestLinkDownInTheMiddle(t *testing.T) {
	const hosts, size = 8, 256 << 10
	g, err := topo.ParseSpec("fat-tree:radix=4,levels=2")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(g, Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.BringUp(); err != nil {
		t.Fatal(err)
	}
	var failures, wrong [hosts]int
	var have [hosts]uint64
	over := 0
	r := s.Reductions(ReductionConfig{
		Node: aggregate.Config{Latency: 100 * ib.Nanosecond,
			Limits: aggregate.Limits{Trees: 2, Streams: 1, OSTs: 64, Buffer: 1 << 22}},
		MTU: ib.MTU4096, Timeout: 4, RetryCnt: 3, Patience: ib.Millisecond, Mend: 5 * ib.Microsecond, Tries: 100,
		Fill: func(_ *Reduction, member int, _, offset uint64, b []byte) {
			for i := 0; i < len(b); i += 8 {
				binary.LittleEndian.PutUint64(b[i:], (offset+uint64(i))<<8|uint64(member))
			}
		},
		Got: func(_ *Reduction, member int, n aggregate.News) {
			if n.Again {
				return
			}
			if n.Offset == 0 {
				have[member] = 0
			}
			for i := 0; i < len(n.Vector); i += 8 {
				want := hosts*((n.Offset+uint64(i))<<8) + hosts*(hosts-1)/2
				if binary.LittleEndian.Uint64(n.Vector[i:]) != want {
					wrong[member]++
				}
			}
			if have[member] += uint64(len(n.Vector)); n.Over {
				over++
			}
		},
		Failed: func(_ *Reduction, member int, _ aggregate.Reason) { failures[member]++ },
		Ended:  func(_ *Reduction, err error) { t.Errorf("the job was given up: %v", err) },
	})
	var places []topo.PortRef
	for i := range hosts {
		places = append(places, topo.PortRef{Node: s.HostNode(i).Index, Port: 1})
	}
	j, err := r.Create(places, am.Request{OSTs: 32, Payload: 4000, Stream: true})
	if err != nil {
		t.Fatal(err)
	}
	for m := range hosts {
		r.Start(j, m, aggregate.Operation{Type: aggregate.Uint64, Bytes: size, Target: aggregate.Everybody,
			From: aggregate.Everybody})
	}
	first := j.Tree
	bad := first.Nodes[1]
	s.PlanDown(s.Now()+3*ib.Microsecond, topo.PortRef{Node: r.switches[bad.Switch].Index, Port: bad.Port})
	s.At(s.Now()+11*ib.Microsecond, 1)
	for over < hosts && s.Now() < 20*ib.Millisecond {
		switch w := s.Next(20 * ib.Millisecond); w.Kind {
		case WakeHost:
			a := s.Host(w.Host).(*hca.HCA)
			for _, ok := a.PollEvent(); ok; _, ok = a.PollEvent() {
			}
			r.ServeHost(w.Host)
		case WakeTimer:
			if w.ID == 1 {
				if j.Tree.ID == first.ID || j.Tree.Nodes[0].Switch == first.Nodes[0].Switch {
					t.Errorf("the tree is still %+v", j.Tree.Nodes[0])
				}
				s.PlanReboot(s.Now(), r.switches[j.Tree.Nodes[0].Switch].Index)
				s.At(s.Now()+40*ib.Microsecond, 2)
			} else if _, err := s.Program(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for m := range hosts {
		if wrong[m] > 0 || have[m] != size || failures[m] < 2 || failures[m] != failures[0] {
			t.Errorf("host %d: %d wrong elements, %d bytes of %d, told of %d lost trees (the first host of %d)", m,
				wrong[m], have[m], size, failures[m], failures[0])
		}
	}
	if r.Release(j); r.Used() != (aggregate.Limits{}) {
		t.Errorf("after the job %+v are taken", r.Used())
	}
}
