package sa

import (
	"testing"

	"softib/internal/benchsize"
	"softib/proto/ib"
	"softib/proto/mad"
)

// BenchmarkPathGet asks for paths between hosts of the three-level fat tree of radix 36: 11,664 hosts.
func BenchmarkPathGet(b *testing.B) {
	s := world(b, benchsize.Tree("fat-tree:radix=36,levels=3"), 0)
	a := newAdmin(s)
	all := hosts(s)
	env := mad.Envelope{LID: s.Port(all[0]).Info.LID, QPN: ib.QPNGSI}
	reqs := make([][]byte, 4096)
	for i := range reqs {
		src, dst := all[i*7919%len(all)], all[i*104729%len(all)]
		reqs[i] = request(mad.MethodGet, mad.AttrPathRecord, 0, 0, prSGID|prDGID|prNumbPath|prReversible,
			&mad.PathRecord{
				SGID: ib.MakeGID(s.Prefix, s.Port(src).GUID), DGID: ib.MakeGID(s.Prefix, s.Port(dst).GUID), NumbPath: 1,
				Reversible: true})
	}
	for _, r := range reqs {
		if resp, ok := a.Handle(0, env, r); !ok || mad.View(resp).Status() != mad.StatusOK {
			b.Fatalf("%v %v", ok, mad.View(resp).Status())
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		a.Handle(0, env, reqs[i%len(reqs)])
	}
}

// BenchmarkNodeTable lists all nodes of the same fabric.
func BenchmarkNodeTable(b *testing.B) {
	s := world(b, benchsize.Tree("fat-tree:radix=36,levels=3"), 0)
	a := newAdmin(s)
	env := mad.Envelope{LID: 1}
	req := request(mad.MethodGetTable, mad.AttrNodeRecord, 0, 0, 0, nil)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if resp, ok := a.Handle(0, env, req); !ok || len(resp) != mad.SADataOff+len(s.Nodes)*112 {
			b.Fatalf("%v, %d bytes", ok, len(resp))
		}
	}
}

// BenchmarkJoins has all hosts join one group.
func BenchmarkJoins(b *testing.B) {
	s := world(b, benchsize.Tree("fat-tree:radix=36,levels=3"), 0)
	all := hosts(s)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		a := newAdmin(s)
		g, err := a.Precreate(broadcast(0xFFFF))
		if err != nil {
			b.Fatal(err)
		}
		for _, r := range all {
			p := s.Port(r)
			req := request(mad.MethodSet, mad.AttrMCMemberRecord, 0, 0, joinNeeds,
				&mad.MCMemberRecord{MGID: g.MGID, PortGID: ib.MakeGID(s.Prefix, p.GUID), JoinState: mad.JoinFull})
			if resp, ok := a.Handle(0, mad.Envelope{LID: p.Info.LID}, req); !ok || mad.View(resp).Status() != 0 {
				b.Fatal("a join failed")
			}
			if _, ok := a.PollEvent(); !ok {
				b.Fatal("a join is not heard of")
			}
		}
		if members, _ := a.Members(g.MLID); len(members) != len(all) {
			b.Fatalf("%d members", len(members))
		}
	}
}
