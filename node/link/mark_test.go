package link

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

// TestMarking: packets that join a long queue are marked, the sooner the higher the threshold, every so many, if they
// are long enough; not where the queue waits for credit, unless the port is told to.
func TestMarking(t *testing.T) {
	for _, c := range []struct {
		name   string
		m      Marking
		size   int
		credit bool
		want   []int // of twelve packets
	}{
		{"never", Marking{}, 2048, true, nil},
		{"early", Marking{Threshold: 15}, 2048, true, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
		{"half of the buffer", Marking{Threshold: 8}, 2048, true, []int{4, 5, 6, 7, 8, 9, 10, 11}},
		{"late", Marking{Threshold: 1}, 2048, true, []int{7, 8, 9, 10, 11}},
		{"every third", Marking{Threshold: 15, Rate: 2}, 2048, true, []int{3, 6, 9}},
		{"short ones", Marking{Threshold: 15, PacketSize: 32}, 256, true, nil},
		{"long ones", Marking{Threshold: 15, PacketSize: 32}, 2048, true, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
		{"the root is further on", Marking{Threshold: 15}, 2048, false, nil},
		{"who is there is slow", Marking{Threshold: 15, Starvation: 8}, 2048, false, []int{4, 5, 6, 7, 8, 9, 10, 11}},
		{"slow, and there is credit", Marking{Starvation: 15}, 2048, true, nil},
		{"told to all the same", Marking{Threshold: 8, Victim: true}, 2048, false, []int{4, 5, 6, 7, 8, 9, 10, 11}},
	} {
		p := up(t, Config{VLCap: 4})
		p.SetMarking(c.m)
		if c.credit {
			p.HandleFC(0, wire.LinkPacket{VL: 0, FCCL: 2000})
		}
		var got []int
		for i := range 12 {
			f := packet(c.size)
			if r := p.Enqueue(0, f, 0); r.IsDrop() {
				t.Fatalf("%s: %v", c.name, r)
			}
			if f.Packet.BTH.FECN {
				got = append(got, i)
			}
		}
		if len(got) != len(c.want) || len(got) > 0 && (got[0] != c.want[0] || got[len(got)-1] != c.want[len(got)-1]) {
			t.Errorf("%s: %v of twelve are marked, want %v", c.name, got, c.want)
		}
		// The time begins with the first packet that finds the queue too long, and ends when it is not any more.
		long := len(c.want) > 0 || c.m.PacketSize > 0
		if k := p.cold.marks; k != nil && (k.long != 0) != long {
			t.Errorf("%s: the queue is too long in lanes %b", c.name, k.long)
		}
		p.HandleFC(0, wire.LinkPacket{VL: 0, FCCL: 2000})
		for now := ib.Microsecond; ; now += ib.Microsecond {
			if f, _, _ := p.PollTx(now); f == nil {
				break
			}
		}
		if n := p.LaneCounter(ib.VLXmitTimeCong, 0); (n > 0) != long {
			t.Errorf("%s: the queue was too long for %d ticks", c.name, n)
		}
		if n := p.LaneCounter(ib.VLMarked, 0); n != uint64(len(c.want)) || p.Marking() != c.m {
			t.Errorf("%s: %d are counted, want %d", c.name, n, len(c.want))
		}
	}
}
