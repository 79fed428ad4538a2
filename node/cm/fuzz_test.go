package cm

import (
	"math/rand/v2"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// FuzzHandle: any sequence of datagrams, on top of connections in all states, is survived; and when all IDs are
// destroyed and all time has passed, nothing is left.
func FuzzHandle(f *testing.F) {
	for _, m := range []*message{
		format(mad.AttrCMReq, 1, &mad.CMReq{LocalCommID: 5, ServiceID: service, LocalQPN: 9, PathMTU: ib.MTU1024,
			MaxCMRetries: 3}),
		format(mad.AttrCMRep, 1, &mad.CMRep{LocalCommID: 5, LocalQPN: 9}),
		format(mad.AttrCMRej, 1, &mad.CMRej{LocalCommID: 5, Reason: mad.RejTimeout, InfoLength: 8}),
		format(mad.AttrCMMRA, 1, &mad.CMMRA{LocalCommID: 5, ServiceTimeout: 31}),
		format(mad.AttrCMRTU, 1, &mad.CMRTU{LocalCommID: 5}),
		format(mad.AttrCMDReq, 1, &mad.CMDReq{LocalCommID: 5, RemoteQPN: 0x10}),
		format(mad.AttrCMDRep, 1, &mad.CMDRep{LocalCommID: 5}),
		format(mad.AttrCMLAP, 1, &mad.CMLAP{LocalCommID: 5}),
		format(mad.AttrSIDRReq, 1, &mad.SIDRReq{RequestID: 5, ServiceID: service}),
		format(mad.AttrSIDRRep, 1, &mad.SIDRRep{RequestID: 5}),
	} {
		f.Add(uint64(1), m[mad.HeaderSize-8:])
		f.Add(uint64(2), append(m[mad.HeaderSize-8:], m[mad.HeaderSize-8:]...))
	}
	f.Fuzz(func(t *testing.T, seed uint64, b []byte) {
		rng := rand.New(rand.NewPCG(seed, 1))
		p := New(Config{Rand: rng, CAGUID: 1, PendingMax: 8})
		if _, err := p.Listen(0, 0); err != nil {
			t.Fatal(err)
		}
		now := ib.Time(0)
		ids := []ConnID{0}
		for i := range 4 {
			id, err := p.Connect(now, req(0, 1, ib.QPN(0x10+i)))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		// Each piece is an attribute and a body, which is aimed at what exists.
		for len(b) > 8 {
			h := mad.Header{BaseVersion: 1, MgmtClass: mad.ClassCM, ClassVersion: 2, Method: mad.MethodSend,
				AttributeID: mad.AttrID(0x10 + b[1]%11)}
			dgram := append(h.Append(nil), make([]byte, mad.CMDataLen)...)
			aim, n := b[0], copy(dgram[mad.CMDataOff:], b[8:])
			b = b[8+n:]
			if aim&1 != 0 {
				id := ids[rng.IntN(len(ids))]
				info, _ := p.Info(id)
				off := mad.CMDataOff + 4*int(aim>>1&1)
				copy(dgram[off:], []byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)})
				if off > mad.CMDataOff && aim&4 != 0 {
					r := info.RemoteCommID
					copy(dgram[mad.CMDataOff:], []byte{byte(r >> 24), byte(r >> 16), byte(r >> 8), byte(r)})
				}
			}
			now += ib.Time(rng.IntN(20)) * ib.Millisecond
			if p.NextDeadline() <= now {
				p.HandleTimer(now)
			}
			p.Handle(now, mad.Envelope{LID: ib.LID(aim >> 4), QPN: 1}, dgram)
			for {
				e, ok := p.PollEvent()
				if !ok {
					break
				}
				if _, known := p.Info(e.ID); !known {
					t.Fatalf("event %s of no connection", e.Kind)
				}
				switch e.Kind {
				case ReqReceived:
					ids = append(ids, e.ID)
					if rng.IntN(2) == 0 {
						_ = p.Accept(now, e.ID, rep(0x20))
					}
				case RepReceived:
					_ = p.Ready(now, e.ID, nil)
				case SIDRReqReceived:
					ids = append(ids, e.ID)
					if rng.IntN(2) == 0 {
						_ = p.SIDRReply(now, e.ID, SIDRReplyParams{QPN: 3})
					}
				case DReqReceived:
					_ = p.Disconnect(now, e.ID, nil)
				}
			}
			for _, id := range ids {
				for s := QPInit; s <= QPRTS; s++ {
					_, _ = p.QPAttr(id, s)
				}
			}
			for {
				_, out, ok := p.PollSend()
				if !ok {
					break
				}
				if v := mad.View(out[:]); v.Class() != mad.ClassCM || mad.Attr(mad.ClassCM, v.AttrID()) == nil {
					t.Fatalf("sent %x", out[:24])
				}
			}
		}
		for _, id := range ids[1:] {
			if err := p.Destroy(now, id); err != nil {
				t.Fatal(err)
			}
		}
		for i := 0; p.NextDeadline() != ib.Never; i++ {
			if i > 10000 {
				t.Fatal("it never ends")
			}
			p.HandleTimer(p.NextDeadline())
		}
		if n := len(p.conns) + len(p.peers) + len(p.qpns) + len(p.sidrs) + len(p.reqGhosts) + len(p.sidrGhosts) +
			p.pendings; n != 0 {
			t.Fatalf("%d things are left", n)
		}
	})
}
