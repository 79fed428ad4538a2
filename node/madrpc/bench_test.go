package madrpc

import (
	"fmt"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// BenchmarkRequestResponse is one SMP and its response through a port, with many others in flight.
func BenchmarkRequestResponse(b *testing.B) {
	for _, window := range []int{1, 256, 4096, 32768} {
		b.Run(fmt.Sprintf("window=%d", window), func(b *testing.B) {
			p := New(Config{})
			id := register(b, p, Registration{Class: mad.ClassSMDirect, ClassVersion: 1})
			data := dgram(mad.ClassSMDirect, mad.MethodGet, 0, 0)
			m := Message{Env: mad.Envelope{LID: ib.LIDPermissive}, Data: data, Timeout: 200 * ms, Retries: 3}
			wire := make([][mad.Size]byte, window)
			now, tid := ib.Time(0), uint32(0)
			round := func(n int) {
				for range n {
					tid++
					data[12], data[13], data[14], data[15] = byte(tid>>24), byte(tid>>16), byte(tid>>8), byte(tid)
					m.Cookie = uint64(tid)
					if err := p.Send(now, id, m); err != nil {
						b.Fatal(err)
					}
				}
				for i := range n {
					_, d, ok := p.PollSend()
					if !ok {
						b.Fatal("nothing to send")
					}
					wire[i] = *d
					wire[i][3] = byte(mad.MethodGetResp)
				}
				for i := range n {
					now += 100 * ib.Nanosecond
					if !p.Handle(now, m.Env, &wire[i]) {
						b.Fatal("not taken")
					}
					if d, ok := p.PollRecv(); !ok || d.Kind != Response {
						b.Fatal("no response")
					}
				}
				if p.NextDeadline() != ib.Never {
					b.Fatal("something is left")
				}
			}
			round(window)
			b.ReportAllocs()
			b.ResetTimer()
			for left := b.N; left > 0; left -= window {
				round(min(window, left))
			}
		})
	}
}

// BenchmarkRMPP is a table of 10 MB from one port to another, byte by byte of payload.
func BenchmarkRMPP(b *testing.B) {
	const size = 10 << 20
	client, server := New(Config{}), New(Config{})
	c := register(b, client, Registration{Class: mad.ClassSA, ClassVersion: 2, RMPP: true})
	s := register(b, server, Registration{Class: mad.ClassSA, ClassVersion: 2, RMPP: true,
		Methods: MethodSet(mad.MethodGetTable)})
	table := make([]byte, size)
	b.SetBytes(size)
	b.ReportAllocs()
	now := ib.Time(0)
	for i := range b.N {
		send(b, client, now, c, Message{Data: dgram(mad.ClassSA, mad.MethodGetTable, uint64(i), 0), Timeout: ib.Second,
			Env: mad.Envelope{LID: 2, QPN: 1}})
		for done := false; !done; {
			now += ib.Microsecond
			for _, x := range []struct {
				from, to *Port
				env      mad.Envelope
			}{{client, server, mad.Envelope{LID: 1, QPN: 1}}, {server, client, mad.Envelope{LID: 2, QPN: 1}}} {
				for {
					_, d, ok := x.from.PollSend()
					if !ok {
						break
					}
					x.to.Handle(now, x.env, d)
				}
			}
			if d, ok := server.PollRecv(); ok {
				copy(table, d.Data[:56])
				table[3] = byte(mad.MethodGetTableResp)
				send(b, server, now, s, Message{Env: d.Env.Reply(), Data: table})
			}
			if d, ok := client.PollRecv(); ok {
				if d.Kind != Response || len(d.Data) != size {
					b.Fatalf("%v of %d bytes", d.Kind, len(d.Data))
				}
				done = true
			}
		}
	}
}
