package smrun

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet/sm"
)

// Batches cross in order, whole, whatever their size, and none is lost when the far side sleeps.
func TestCrossing(t *testing.T) {
	const count = 10*batchMax + 7
	c := newCrossing()
	go func() {
		b := c.blank()
		for i := range count {
			p := b.next()
			p.Cookie, p.Data = uint64(i), bytes.Repeat([]byte{byte(i)}, i%(2*mad.Size))
			p.pack()
			if b.n == batchMax || i%13 == 0 {
				c.put(b)
				b = c.blank()
			}
		}
		c.put(b)
	}()
	late := time.After(60 * time.Second)
	for next := 0; next < count; {
		moved := c.take(func(p *parcel) {
			if p.Cookie != uint64(next) || !bytes.Equal(p.Data, bytes.Repeat([]byte{byte(next)}, next%(2*mad.Size))) {
				t.Fatalf("parcel %d is %d with %d bytes", next, p.Cookie, len(p.Data))
			}
			next++
		})
		if moved {
			continue
		}
		select {
		case <-c.bell:
		case <-late:
			t.Fatalf("%d of %d have come", next, count)
		}
	}
	var p parcel
	if p.pack(); p.Data != nil {
		t.Error("nothing has become something")
	}
}

// refuser is a transport that takes no message.
type refuser struct {
	start  time.Time
	closed chan struct{}
}

func (r *refuser) Now() ib.Time {
	return ib.Time(time.Since(r.start)) * ib.Nanosecond
}
func (r *refuser) Register(madrpc.Registration) (madrpc.AgentID, error) { return 1, nil }
func (r *refuser) Queue(ib.Time, madrpc.AgentID, madrpc.Message) error  { return errors.New("no") }
func (r *refuser) Poll(func(madrpc.Delivery)) bool                      { return false }
func (r *refuser) Bell() <-chan struct{}                                { return nil }
func (r *refuser) SetIsSM(bool)                                         {}
func (r *refuser) Close() error                                         { close(r.closed); return nil }

// A request that the transport refuses comes back unanswered, and the end of the manager is the end of the mover.
func TestRefusedRequests(t *testing.T) {
	tr := &refuser{start: time.Now(), closed: make(chan struct{})}
	said := make(chan sm.Event, 1024)
	r, err := New(sm.Config{Window: 4}, tr, Options{Log: func(e sm.Event) {
		select {
		case said <- e:
		default:
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { _ = r.Run(ctx) }()
	late := time.After(60 * time.Second)
	for {
		select {
		case e := <-said:
			if e.Kind != sm.EventProblem {
				continue
			}
		case <-late:
			t.Fatal("the manager does not notice that nobody answers")
		}
		break
	}
	cancel()
	select {
	case <-tr.closed:
	case <-late:
		t.Fatal("the transport is not closed")
	}
	<-r.Done()
}
