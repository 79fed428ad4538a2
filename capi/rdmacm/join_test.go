package rdmacm

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"softib/proto/ib"
	"softib/verbs"
	"softib/verbs/attach"
	attached "softib/verbs/attach/server"
)

// attachable serves attached processes beside the server, and returns where.
func (w *world) attachable(t *testing.T, groups attached.Groups) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(w.socket), "verbs")
	l, err := attached.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- attached.Serve(ctx, l, w.Fabric, "test", groups) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return path
}

// A port's membership is shared by attached programs and those of librdmacm, and ends with the last of them, however
// that ends.
func TestJoin(t *testing.T) {
	w := up(t, "star:3", defaults)
	socket := w.attachable(t, w.s)
	ctx, cancel := context.WithTimeout(context.Background(), testPatience)
	defer cancel()
	open := func(host string) *attach.Device {
		d, err := attach.Open(attach.Options{Socket: socket, Host: host})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	group := addr("239.1.2.3:0")
	mgid := groupOf(psUDP, &group, ib.PKeyDefault)
	join := func(d *attach.Device) *attach.Group {
		t.Helper()
		g, err := d.JoinMulticast(ctx, attach.Membership{MGID: mgid})
		if err != nil {
			t.Fatal(err)
		}
		if a := g.AHAttr(); g.MGID != mgid || !g.MLID.IsMulticast() || g.QKey != udpQKey || a.DLID != g.MLID ||
			!a.IsGlobal || a.DGID != mgid || a.Port != 1 {
			t.Fatalf("joined %+v, %+v", g, a)
		}
		return g
	}
	first, second, far := open("h1"), open("h1"), open("h2")
	g := join(first)
	join(second)
	join(far)
	if n := w.members(t, mgid); n != 2 {
		t.Errorf("%d members, want 2", n)
	}
	c := w.program(t, "h1")
	id := c.id(psUDP, 0)
	c.do(cmdResolveAddr, resolveBody(id, sockaddr{}, group))
	c.expect(evtAddrResolved)
	c.do(cmdJoinMcast, joinBody(id, 1, group, 0))
	c.expect(evtMulticastJoin)

	if err := g.Leave(); err != nil {
		t.Fatal(err)
	}
	second.Close()
	far.Close()
	eventually(t, "h2 to leave", func() bool { return w.members(t, mgid) == 1 })
	if err := g.Leave(); err != nil { // which it has done
		t.Error(err)
	}
	c.do(cmdDestroyID, destroyBody(id))
	eventually(t, "h1 to leave", func() bool { return w.members(t, mgid) == 0 })

	// A group whose MGID the administrator makes up, and questions that are refused.
	made, err := first.JoinMulticast(ctx, attach.Membership{})
	if err != nil || !made.MGID.IsMulticast() {
		t.Errorf("a new group: %+v, %v", made, err)
	}
	if _, err := first.JoinMulticast(ctx, attach.Membership{MGID: ib.GID{1}}); !errors.Is(err, attach.ErrRefused) {
		t.Errorf("a group with a unicast GID: %v", err)
	}
	if _, err := first.JoinMulticast(ctx, attach.Membership{Port: 9}); !errors.Is(err, attach.ErrRefused) {
		t.Errorf("a port that the host does not have: %v", err)
	}
	first.Close()
	eventually(t, "the made group to end", func() bool { return w.members(t, made.MGID) == 0 })
	if _, err := first.JoinMulticast(ctx, attach.Membership{}); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("a device that is closed: %v", err)
	}
}

// A fabric without a service for groups says so.
func TestJoinNobody(t *testing.T) {
	w := up(t, "star:2", defaults)
	d, err := attach.Open(attach.Options{Socket: w.attachable(t, nil), Host: "h1"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.JoinMulticast(context.Background(), attach.Membership{}); !errors.Is(err, attach.ErrRefused) {
		t.Error(err)
	}
}
