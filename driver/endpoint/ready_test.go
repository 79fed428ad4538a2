package endpoint

import (
	"testing"

	"softib/node/hca"
)

// readyList is where completions of a queue go, of which there is little room.
type readyList struct {
	cq   *hca.CQ
	room int
	got  []hca.WC
}

func (t *readyList) move() {
	var wc [1]hca.WC
	for len(t.got) < t.room && t.cq.Poll(wc[:]) == 1 {
		t.got = append(t.got, wc[0])
	}
}

func (t *readyList) outside() int { return len(t.got) }

// take is what C code does.
func (t *readyList) take() []hca.WC {
	got := t.got
	t.got = nil
	return got
}

// TestReadyList: completions come to where they are moved, in order and each once, whichever call brought them; those
// without room come with a later one.
func TestReadyList(t *testing.T) {
	x, y := twins(t, func() *Ledger { return nil })
	sent, heard := &readyList{cq: x.cq, room: 3}, &readyList{cq: y.cq, room: 2}
	x.UseReadyList(x.cq, sent.move, sent.outside)
	y.UseReadyList(y.cq, heard.move, heard.outside)
	const n = 10
	for range n {
		y.recv(t)
		x.send(t, 8)
	}
	var at, back int
	for turn := 0; at < n || back < n; turn++ {
		if turn > 1000 {
			t.Fatalf("%d of %d arrived, %d are acknowledged", at, n, back)
		}
		y.Advance(y.cq, turn%2*Spun)
		if len(heard.got) > heard.room {
			t.Fatal("more than there was room for")
		}
		for _, wc := range heard.take() {
			if wc.Status != hca.WCSuccess || wc.ByteLen != 8 {
				t.Fatalf("completion %d: %+v", at, wc)
			}
			at++
		}
		x.Advance(x.cq, 0)
		back += len(sent.take())
	}
	y.Advance(y.cq, 0)
	x.Advance(x.cq, 0)
	if len(heard.got)+len(sent.got)+x.cq.Len()+y.cq.Len() != 0 {
		t.Error("completions that nobody made")
	}
	// Once it is ended the queue is as any other.
	y.UseReadyList(y.cq, nil, nil)
	y.recv(t)
	x.send(t, 8)
	var wc [4]hca.WC
	if got := y.Poll(y.cq, wc[:]); got != 1 || len(heard.got) != 0 {
		t.Errorf("%d completions, %d by the list", got, len(heard.got))
	}
}

// TestReadyListOtherQueue: a completion that another queue's poll brings is moved too, without a call for its own.
func TestReadyListOtherQueue(t *testing.T) {
	x, y := twins(t, func() *Ledger { return nil })
	heard := &readyList{cq: y.cq, room: 8}
	y.UseReadyList(y.cq, heard.move, heard.outside)
	h := y.Enter()
	other, err := h.CreateCQ(8)
	if err != nil {
		t.Fatal(err)
	}
	y.Leave()
	y.recv(t)
	x.send(t, 8)
	var wc [4]hca.WC
	if n := y.Poll(other, wc[:]); n != 0 || len(heard.got) != 1 {
		t.Errorf("%d in the other queue, %d by the list", n, len(heard.got))
	}
}

// TestAdvanceTellsOfWrites: a program may wait for what peers write to its memory, and is told of that; of messages and
// acknowledgements there are completions.
func TestAdvanceTellsOfWrites(t *testing.T) {
	x, y := twins(t, func() *Ledger { return nil })
	sent, heard := &readyList{cq: x.cq, room: 8}, &readyList{cq: y.cq, room: 8}
	x.UseReadyList(x.cq, sent.move, sent.outside)
	y.UseReadyList(y.cq, heard.move, heard.outside)
	y.recv(t)
	x.send(t, 8)
	if y.Advance(y.cq, 0) || len(heard.take()) != 1 {
		t.Error("a message is told of as a write, or did not come")
	}
	y.Advance(y.cq, 0) // which acknowledges
	if x.Advance(x.cq, 0) || len(sent.take()) != 1 {
		t.Error("an acknowledgement is told of as a write, or did not come")
	}
	for range 2 { // the second one is written ahead
		h := x.Enter()
		wr := hca.SendWR{Opcode: hca.WRRDMAWrite, SGList: []hca.SGE{{Addr: x.mr.Addr(), Length: 8, LKey: x.mr.LKey()}},
			RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey()}
		if err := h.PostSend(x.qp, &wr); err != nil {
			t.Fatal(err)
		}
		x.Leave()
		if !y.Advance(y.cq, 0) || len(heard.got) != 0 {
			t.Error("not told of a write")
		}
		if y.Advance(y.cq, 0) {
			t.Error("told of a write twice")
		}
		x.Advance(x.cq, 0)
	}
}
