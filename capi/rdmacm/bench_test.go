package rdmacm

import (
	"fmt"
	"testing"

	"softib/proto/ib"
)

// BenchmarkConnect makes and ends connections, many of them at a time: a program asks on h1, another accepts on h2.
func BenchmarkConnect(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("at-once=%d", n), func(b *testing.B) {
			w := up(b, "star:2", defaults)
			from, to := w.program(b, "h1"), w.program(b, "h2")
			to.listen(psTCP, 7471, 0)
			b.ResetTimer()
			for left := b.N; left > 0; left -= n {
				crowd(from, to, min(n, left))
			}
		})
	}
}

// crowd makes n connections at once and ends them.
func crowd(from, to *client, n int) {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = from.id(psTCP, 0)
		from.do(cmdResolveAddr, resolveBody(ids[i], sockaddr{}, addr("198.18.0.2:7471")))
	}
	for range ids {
		from.expect(evtAddrResolved)
	}
	for _, id := range ids {
		from.do(cmdResolveRoute, u32s(id, 2000))
	}
	for range ids {
		from.expect(evtRouteResolved)
	}
	for i, id := range ids {
		from.do(cmdConnect, connectBody(id, connParam{qpn: ib.QPN(0x100 + i)}))
	}
	passive := make([]uint32, n)
	for i := range ids {
		passive[i] = to.expect(evtConnectRequest).id
		to.do(cmdAccept, acceptBody(passive[i], 1, &connParam{qpn: ib.QPN(0x100 + i)}))
	}
	for range ids {
		e := from.expect(evtConnectResponse)
		from.do(cmdAccept, acceptBody(e.id, 0, nil))
	}
	for range ids {
		to.expect(evtEstablished)
	}
	for _, id := range ids {
		from.do(cmdDisconnect, u32s(id))
	}
	for range ids {
		to.do(cmdDisconnect, u32s(to.expect(evtDisconnected).id))
	}
	for range ids {
		from.expect(evtDisconnected)
	}
	for i := range ids {
		from.do(cmdDestroyID, destroyBody(ids[i]))
		to.do(cmdDestroyID, destroyBody(passive[i]))
	}
}
