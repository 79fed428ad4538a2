package sa

import (
	"bytes"
	"testing"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
)

// TestOverRMPP asks for tables of all lengths over the management service of two ports, datagram by datagram.
func TestOverRMPP(t *testing.T) {
	for _, spec := range []string{"star:1", "star:3", "fat-tree:radix=8,levels=2"} {
		s := world(t, spec, 0)
		a := newAdmin(s)
		server, host := madrpc.New(madrpc.Config{}), madrpc.New(madrpc.Config{})
		serving, err := server.Register(madrpc.Registration{Class: mad.ClassSA, ClassVersion: mad.SAVersion, RMPP: true,
			Methods: madrpc.MethodSet(mad.MethodGet, mad.MethodSet, mad.MethodGetTable, mad.MethodGetMulti,
				mad.MethodGetTraceTable, mad.MethodDelete)})
		if err != nil {
			t.Fatal(err)
		}
		asking, err := host.Register(madrpc.Registration{Class: mad.ClassSA, ClassVersion: mad.SAVersion, RMPP: true})
		if err != nil {
			t.Fatal(err)
		}
		me, sm := s.Port(hosts(s)[0]).Info.LID, ib.LID(500)
		for _, attr := range []mad.AttrID{mad.AttrNodeRecord, mad.AttrPortInfoRecord, mad.AttrLinkRecord,
			mad.AttrPathRecord, mad.AttrServiceRecord} {
			now := ib.Time(0)
			req := request(mad.MethodGetTable, attr, 0, 0, 0, nil)
			if err := host.Send(now, asking, madrpc.Message{Env: mad.Envelope{LID: sm, QPN: 1}, Data: req,
				Timeout: ib.Second}); err != nil {
				t.Fatal(err)
			}
			var sent, got []byte
			for busy := true; busy; {
				busy = false
				for _, hop := range []struct {
					from, to *madrpc.Port
					lid      ib.LID
				}{{host, server, me}, {server, host, sm}} {
					for {
						env, d, ok := hop.from.PollSend()
						if !ok {
							break
						}
						busy = true
						copied := *d
						env.LID = hop.lid
						hop.to.Handle(now, env, &copied)
					}
				}
				for {
					d, ok := server.PollRecv()
					if !ok {
						break
					}
					if resp, ok := a.Handle(now, d.Env, d.Data); ok {
						sent = bytes.Clone(resp)
						if err := server.Send(now, serving, madrpc.Message{Env: d.Env.Reply(),
							Data: resp}); err != nil {
							t.Fatal(err)
						}
						busy = true
					}
				}
				for {
					d, ok := host.PollRecv()
					if !ok {
						break
					}
					if d.Kind != madrpc.Response {
						t.Fatalf("%v of %s", d.Kind, mad.AttrName(mad.ClassSA, attr))
					}
					got = bytes.Clone(d.Data)
				}
			}
			if got == nil || !bytes.Equal(got[mad.SAHeaderOff:], sent[mad.SAHeaderOff:]) {
				t.Errorf("%s, %s: sent %d bytes, got %d", spec, mad.AttrName(mad.ClassSA, attr), len(sent), len(got))
			}
		}
	}
}
