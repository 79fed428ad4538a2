package wire

import (
	"bytes"
	"testing"
)

// memory is a Source that may be gone.
type memory struct {
	b    []byte
	gone bool
}

func (m *memory) CopyTo(dst []byte, off int) bool {
	return !m.gone && copy(dst, m.b[off:]) == len(dst)
}

// TestFarPayload: a payload elsewhere counts like one that is here, and becomes
// one when it is fetched.
func TestFarPayload(t *testing.T) {
	for _, n := range []int{0, 1, 8, 255, 4096} {
		for _, lnh := range []LNH{LNHLocal, LNHGlobal} {
			here := sample(lnh, MakeOpcode(RC, OpSendOnly), n)
			m := &memory{b: here.Payload, gone: true}
			far := *here
			far.Payload, far.Far, far.FarLen = nil, m, n
			far.LRH.Length, far.BTH.Pad, far.GRH.PayLen = 0, 0, 0
			far.Seal()
			if far.PayloadLen() != n || far.LRH != here.LRH || far.BTH != here.BTH ||
				far.GRH.PayLen != here.GRH.PayLen || far.WireSize() != here.WireSize() {
				t.Fatalf("%d bytes elsewhere: %d, %+v %+v, want %+v %+v", n, far.PayloadLen(), far.LRH, far.BTH,
					here.LRH, here.BTH)
			}
			if n > 0 && (far.Fetch(make([]byte, n)) || far.FarLen != n) {
				t.Fatal("fetched from a sender that is gone")
			}
			m.gone = false
			buf := make([]byte, 0, 4096)
			if !far.Fetch(buf[:n]) || far.FarLen != 0 || far.PayloadLen() != n ||
				!bytes.Equal(far.Append(nil), here.Append(nil)) {
				t.Fatalf("%d bytes: not the same once fetched", n)
			}
		}
	}
}

// TestParseForgets: what came as bytes is one packet with its payload in them,
// whatever the value held before.
func TestParseForgets(t *testing.T) {
	p := sample(LNHLocal, MakeOpcode(RC, OpAck), 0)
	q := Packet{Count: 7, FarLen: 9, Far: &memory{}}
	if err := q.Parse(p.Append(nil)); err != nil || q.Count != 0 || q.PayloadLen() != 0 || q.Far != nil {
		t.Fatalf("%v: %d packets, %d bytes, %v", err, q.Count, q.PayloadLen(), q.Far)
	}
}
