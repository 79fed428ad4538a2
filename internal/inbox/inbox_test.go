package inbox

import (
	"context"
	"errors"
	"testing"

	"softib/node/madrpc"
)

func TestInbox(t *testing.T) {
	b := New()
	over, gone := make(chan struct{}), errors.New("gone")
	ended := func() error { return gone }
	for i := range 3 {
		b.Put(madrpc.Delivery{Cookie: uint64(i)})
	}
	<-b.Bell()
	if d, err := b.Recv(t.Context(), over, ended); err != nil || d.Cookie != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	if all := b.TakeAll(); len(all) != 2 || all[0].Cookie != 1 || all[1].Cookie != 2 {
		t.Errorf("%+v", all)
	}
	// Who waits is woken by what comes.
	got := make(chan uint64)
	go func() {
		d, _ := b.Recv(context.Background(), over, ended)
		got <- d.Cookie
	}()
	b.Put(madrpc.Delivery{Cookie: 7})
	if c := <-got; c != 7 {
		t.Errorf("cookie %d", c)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Recv(ctx, over, ended); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	for range most + 10 {
		b.Put(madrpc.Delivery{})
	}
	if n := len(b.TakeAll()); n != most {
		t.Errorf("%d are kept: want %d", n, most)
	}
	close(over)
	<-b.Bell()
	if _, err := b.Recv(t.Context(), over, ended); !errors.Is(err, gone) {
		t.Errorf("over: %v", err)
	}
	b.Put(madrpc.Delivery{})
	if !b.Close() || b.Close() {
		t.Error("closing twice is as new as once")
	}
	b.Put(madrpc.Delivery{})
	if _, err := b.Recv(t.Context(), nil, ended); !errors.Is(err, gone) {
		t.Errorf("closed: %v", err)
	}
}
