package madrpc

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// FuzzHandle feeds a port with datagrams cut from the input, between requests of its own. It must not panic, must end
// every request once, and must hold nothing when all time is over.
func FuzzHandle(f *testing.F) {
	table := message(mad.ClassSA, mad.MethodGetTableResp, 1<<32|1, 200, 1)
	for _, h := range []mad.RMPP{data(1, 300, mad.RMPPFirst), data(1, 220, mad.RMPPFirst|mad.RMPPLast), data(2, 0, 0),
		data(2, 60, mad.RMPPLast), ack(1, 9), ack(0, 1), end(mad.RMPPAbort, 120), end(mad.RMPPStop, 1)} {
		h.Put(table)
		f.Add(table[:64])
		table[3] ^= methodResponse
		f.Add(append(table[:64:64], table[:64]...))
	}
	f.Add(dgram(mad.ClassPerf, mad.MethodGetResp, 2<<32|1, 0)[:64])
	f.Fuzz(func(t *testing.T, in []byte) {
		p := New(Config{ReassemblyMax: 1 << 16, TimeWaitMax: 4})
		sa := register(t, p, Registration{Class: mad.ClassSA, ClassVersion: 2, RMPP: true,
			Methods: MethodSet(mad.MethodGetTable, mad.MethodGetMulti)})
		raw := register(t, p, Registration{Class: mad.ClassPerf, ClassVersion: 1, Methods: MethodSet(mad.MethodGet)})
		now := ib.Time(0)
		ends := make(map[uint64]int)
		drain := func() {
			for {
				if _, _, ok := p.PollSend(); !ok {
					break
				}
			}
			for {
				d, ok := p.PollRecv()
				if !ok {
					return
				}
				if len(d.Data) < mad.HeaderSize {
					t.Fatalf("%d bytes delivered", len(d.Data))
				}
				if d.Kind != Unsolicited {
					ends[d.Cookie]++
				}
			}
		}
		sent := uint64(0)
		for i := range 4 {
			m := Message{Env: mad.Envelope{LID: 2, QPN: 1}, Timeout: ms, Retries: 1}
			for _, c := range []struct {
				id   AgentID
				data []byte
			}{
				{raw, dgram(mad.ClassPerf, mad.MethodGet, uint64(i), 0)},
				{sa, dgram(mad.ClassSA, mad.MethodGetTable, uint64(i), 0)},
				{sa, message(mad.ClassSA, mad.MethodGetMulti, uint64(i)|0x100, 500, 1)},
			} {
				m.Data = c.data
				sent++
				m.Cookie = sent
				send(t, p, now, c.id, m)
			}
		}
		drain()
		const step = 64 // headers matter, payload does not
		for len(in) > 0 {
			var b [mad.Size]byte
			n := copy(b[:step], in)
			in = in[n:]
			p.Handle(now, mad.Envelope{LID: ib.LID(2 + b[60]&1), QPN: 1}, &b)
			drain()
			now += ib.Time(b[61]) * ib.Microsecond
			p.HandleTimer(now)
			drain()
		}
		for p.NextDeadline() != ib.Never {
			now = max(now, p.NextDeadline())
			p.HandleTimer(now)
			drain()
		}
		for i := range sent {
			if ends[i+1] != 1 {
				t.Errorf("request %d ended %d times", i+1, ends[i+1])
			}
		}
		drained(t, p)
	})
}
