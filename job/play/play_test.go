package play

import (
	"testing"

	"softib/job"
	"softib/proto/ib"
)

// pipe carries every message in the same time, and one way at a time per message; the answer takes as long.
type pipe struct {
	takes  ib.Time
	flying []flight
	log    []Message
}

type flight struct {
	at   ib.Time
	id   uint32
	sent bool
}

// drive runs a player over the pipe until nothing is left, and returns the last moment.
func (n *pipe) drive(p *Player) ib.Time {
	now := ib.Time(0)
	for range 10000 {
		for m, ok := p.Poll(); ok; m, ok = p.Poll() {
			n.log = append(n.log, m)
			n.flying = append(n.flying, flight{now + n.takes, m.ID, false}, flight{now + 2*n.takes, m.ID, true})
		}
		next := p.NextDeadline()
		for _, f := range n.flying {
			next = min(next, f.at)
		}
		if next == ib.Never {
			break
		}
		now = next
		var rest []flight
		for _, f := range n.flying {
			switch {
			case f.at > now:
				rest = append(rest, f)
			case f.sent:
				p.HandleSent(now, f.id)
			default:
				p.HandleArrival(now, f.id)
			}
		}
		n.flying = rest
		p.HandleTimeout(now)
	}
	return now
}

// TestNetwork: when sends and receives end, with and without a rendezvous.
func TestNetwork(t *testing.T) {
	const wire, o, late = 100, 10, 1000
	for _, c := range []struct {
		name                 string
		m                    Model
		sendEnds, recvEnds   ib.Time
		messages             int
		arrivesBeforeReceive bool
	}{
		// The sender's processor, the wire, and the receiver's processor; the sender hears at twice the wire.
		{"waits for the answer", Model{Overhead: o}, o + 2*wire, late, 1, true},
		{"eager", Model{Overhead: o, Eager: 64}, o, late, 1, true},
		// Request, its receive at 1000, answer, data.
		{"handshake", Model{Overhead: o, Handshake: true}, late + 3*wire, late + 2*wire + o, 3, false},
		// It leaves when it is copied, and is there when it is copied again.
		{"copies", Model{Overhead: o, Eager: 64, PerByte: 20}, o + 63*20, 2*(o+63*20) + wire, 1, false},
	} {
		b := job.NewBuilder(2)
		send := b.Send(0, 1, 64, 5)
		after := b.Calc(0, 0)
		b.After(0, after, send)
		wait := b.Add(1, job.Op{Kind: job.Calc, Size: 1, CPU: 1})
		b.After(1, b.Recv(1, 0, 64, 5), wait)
		s, err := b.Schedule()
		if err != nil {
			t.Fatal(err)
		}
		p, n := New(s, c.m), &pipe{takes: wire}
		n.drive(p)
		if !p.Done() {
			t.Fatalf("%s: %s", c.name, p.Stuck())
		}
		if got := p.End(0); got != c.sendEnds {
			t.Errorf("%s: the sender ends at %v, want %v", c.name, got, c.sendEnds)
		}
		if got := p.End(1); got != c.recvEnds {
			t.Errorf("%s: the receiver ends at %v, want %v", c.name, got, c.recvEnds)
		}
		if len(n.log) != c.messages {
			t.Errorf("%s: %d messages, want %d", c.name, len(n.log), c.messages)
		}
	}
}

// TestOrder: messages of one sender and tag come to receives in their order, open receives take what comes first.
func TestOrder(t *testing.T) {
	b := job.NewBuilder(3)
	b.Send(0, 2, 1, 1)
	x := b.Send(1, 2, 2, 9)
	b.After(1, x, b.Calc(1, 5000))
	first := b.Recv(2, int(job.Any), 100, job.Any)
	second := b.Recv(2, 1, 100, job.Any)
	b.After(2, second, first)
	s, err := b.Schedule()
	if err != nil {
		t.Fatal(err)
	}
	p := New(s, Model{})
	(&pipe{takes: 1000}).drive(p)
	if !p.Done() {
		t.Fatal(p.Stuck())
	}
	if p.Records()[0].Arrived != 1000 || p.Records()[1].Arrived != 5000*ib.Nanosecond+1000 {
		t.Errorf("they arrive at %v and %v", p.Records()[0].Arrived, p.Records()[1].Arrived)
	}
}
