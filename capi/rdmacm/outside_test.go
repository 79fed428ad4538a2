package rdmacm

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"softib/proto/ib"
	"softib/verbs"
	"softib/verbs/attach"
)

// side is an attached program with a queue pair.
type side struct {
	*attach.Device
	qp *verbs.QP
	cq *verbs.CQ
	mr *verbs.MR
}

func newSide(t *testing.T, socket, host string) *side {
	t.Helper()
	d, err := attach.Open(attach.Options{Socket: socket, Host: host})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	s := &side{Device: d}
	ctx := verbs.Open(d)
	pd, err := ctx.AllocPD()
	if err == nil {
		s.cq, err = ctx.CreateCQ(16)
	}
	if err == nil {
		s.mr, err = pd.RegMR(make([]byte, 64), verbs.AccessLocalWrite)
	}
	if err == nil {
		s.qp, err = pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.cq, Caps: verbs.DefaultCaps})
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Attached programs find a path, listen, connect, speak and part, and leave nothing with the connection manager.
func TestOutside(t *testing.T) {
	w := up(t, "star:2", defaults)
	socket := w.attachable(t, w.s)
	ctx, cancel := context.WithTimeout(context.Background(), testPatience)
	defer cancel()
	const service = 0x1000000000000042
	a, b := newSide(t, socket, "h1"), newSide(t, socket, "h2")
	port, err := verbs.Open(b).QueryPort(1)
	if err != nil {
		t.Fatal(err)
	}
	path, err := a.FindPath(ctx, 1, port.GIDs[0], ib.PKeyDefault)
	if err != nil || path.DLID != port.LID || path.DGID != port.GIDs[0] {
		t.Fatalf("the path: %+v, %v", path, err)
	}
	if _, err := a.FindPath(ctx, 1, ib.MakeGID(7, 7), ib.PKeyDefault); !errors.Is(err, attach.ErrRefused) {
		t.Errorf("a path to nobody: %v", err)
	}
	accepted := make(chan *attach.Conn, 1)
	err = b.Listen(ctx, 1, service, func(r *attach.Request) {
		if !bytes.HasPrefix(r.Private, []byte("question")) {
			r.Reject()
			return
		}
		err := b.qp.PostRecv(&verbs.RecvWR{SGList: b.mr.SGEs(0, 64)})
		if err == nil {
			t.Error("a receive is posted before INIT")
		}
		c, err := r.Accept(b.qp, false, []byte("answer"))
		if err == nil {
			err = b.qp.PostRecv(&verbs.RecvWR{SGList: b.mr.SGEs(0, 64)})
		}
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Connect(ctx, 1, path, service+1, a.qp, false, nil); !errors.Is(err, attach.ErrRefused) {
		t.Errorf("a service that nobody has: %v", err)
	}
	if err := b.Listen(ctx, 1, service, func(*attach.Request) {}); !errors.Is(err, attach.ErrRefused) {
		t.Errorf("listening twice: %v", err)
	}
	if _, _, err := a.Connect(ctx, 1, path, service, a.qp, false, []byte("nonsense")); !errors.Is(err,
		attach.ErrRefused) {
		t.Errorf("a request that is rejected: %v", err)
	}
	conn, said, err := a.Connect(ctx, 1, path, service, a.qp, false, []byte("question"))
	if err != nil || !bytes.HasPrefix(said, []byte("answer")) {
		t.Fatalf("connected: %q, %v", said, err)
	}
	n := copy(a.mr.Bytes(), "across")
	if err := a.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
		SGList: a.mr.SGEs(0, n)}); err != nil {
		t.Fatal(err)
	}
	var wc [1]verbs.WC
	if _, err := b.cq.Wait(ctx, wc[:]); err != nil || wc[0].Err() != nil || string(b.mr.Bytes()[:n]) != "across" {
		t.Errorf("%v, %v: %q", err, wc[0].Err(), b.mr.Bytes()[:n])
	}
	far := <-accepted
	conn.Close()
	select {
	case <-far.Gone():
	case <-ctx.Done():
		t.Error("the other side does not hear of the end")
	}
	b.Close()
	for _, name := range []string{"h1", "h2"} {
		eventually(t, "nothing to be left of "+name, func() (none bool) {
			w.look(name, func(h *host) { none = len(h.ports[0].outside) == 0 && len(h.ports[0].services) == 0 })
			return none
		})
	}
}

// A process that ends takes its connections with it.
func TestOutsideEnds(t *testing.T) {
	w := up(t, "star:2", defaults)
	socket := w.attachable(t, w.s)
	ctx, cancel := context.WithTimeout(context.Background(), testPatience)
	defer cancel()
	a, b := newSide(t, socket, "h1"), newSide(t, socket, "h2")
	port, err := verbs.Open(b).QueryPort(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Listen(ctx, 1, 77, func(r *attach.Request) {
		if _, err := r.Accept(b.qp, false, nil); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	path, err := a.FindPath(ctx, 1, port.GIDs[0], ib.PKeyDefault)
	if err != nil {
		t.Fatal(err)
	}
	conn, _, err := a.Connect(ctx, 1, path, 77, a.qp, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	select {
	case <-conn.Gone():
	case <-ctx.Done():
		t.Error("nobody tells that the other process has ended")
	}
}
