package cm

import (
	"testing"

	"softib/proto/ib"
)

// BenchmarkConnection makes and ends one connection, all messages of both sides included.
func BenchmarkConnection(b *testing.B) {
	w := newWorld(b, 1)
	w.quiet = true
	w.listen(1)
	b.ReportAllocs()
	for i := range b.N {
		qpn := ib.QPN(i & 0xFFFFFF)
		x, y := w.establish(qpn, qpn)
		w.must(w.ports[0].Disconnect(w.now, x, nil))
		w.until(1, DReqReceived)
		w.must(w.ports[1].Disconnect(w.now, y, nil))
		w.until(0, DRepReceived)
		w.must(w.ports[0].Destroy(w.now, x))
		w.must(w.ports[1].Destroy(w.now, y))
	}
}
