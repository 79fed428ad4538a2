package server

import (
	"sync"

	"softib/node/cm"
	"softib/proto/ib"
	"softib/verbs/attach/proto"
)

// Conn is a connection that the port's connection manager makes or has made.
type Conn interface {
	// Accept answers a request, Ready an accepted one.
	Accept(qpn ib.QPN, srq bool, private []byte) error
	Ready() error
	// Close ends it.
	Close()
}

// Happened is what happened to a connection.
type Happened struct {
	Conn Conn
	// Requested: somebody asks for it. Accepted: the other side has. Neither: it is over.
	Requested, Accepted bool
	GID                 ib.GID
	Private             []byte
	Attrs               [3]cm.QPAttr
}

// Bounds of what one process can have.
const (
	connsMax = 4096
	// notesMax is how many words about connections may wait for a process that does not listen. Then connections are
	// ended rather than anybody waits for it.
	notesMax = 4 * connsMax
)

// connections does what a message asks about connections.
func (t *talk) connections(m *proto.Message) {
	switch {
	case m.Listen != nil:
		t.listen(m.Listen)
	case m.Connect != nil:
		t.connect(m.Connect)
	case m.Accept != nil:
		c := t.connOf(m.Accept.Conn)
		if c != nil && c.Accept(m.Accept.QPN, m.Accept.SRQ, m.Accept.Private) != nil {
			c.Close()
		}
	case m.Ready != 0:
		if c := t.connOf(m.Ready); c != nil && c.Ready() != nil {
			c.Close()
		}
	case m.Closed != 0:
		if c := t.connOf(m.Closed); c != nil {
			c.Close()
		}
	}
}

func (t *talk) connOf(number uint64) Conn {
	t.calls.mu.Lock()
	defer t.calls.mu.Unlock()
	return t.calls.conns[number]
}

// callBook is the connections of a process. Its lock is taken while the host's is held, so that nothing is waited for
// with it.
type callBook struct {
	mu      sync.Mutex
	conns   map[uint64]Conn // by number; nil while it is asked for
	numbers map[Conn]uint64 // of those that others have asked for
	last    uint64
}

// note says something without waiting, and reports whether that was possible.
func (t *talk) note(m *proto.Message) bool {
	select {
	case t.notes <- m:
		return true
	default:
		return false
	}
}

// listen has requests for a service told.
func (t *talk) listen(q *proto.Listen) {
	why := ""
	t.mu.Lock()
	_, taken := t.leave[q.ID]
	many := len(t.leave) >= membersMax
	t.mu.Unlock()
	switch {
	case t.groups == nil:
		why = "this fabric has no connection managers"
	case taken:
		why = "the number is in use"
	case many:
		why = "the process listens too often"
	default:
		stop, err := t.groups.Listen(t.p.Host().Name(), q.Port, q.ServiceID, func(h Happened) { t.requested(q.ID, h) })
		if err != nil {
			why = err.Error()
			break
		}
		t.mu.Lock()
		t.leave[q.ID] = stop
		t.mu.Unlock()
	}
	_ = t.send(&proto.Message{Listened: &proto.Listened{ID: q.ID, Why: why}})
}

// requested tells of a request, or of what became of it. It is called with the lock of the host held, and sends nothing
// itself.
func (t *talk) requested(listen uint64, h Happened) {
	b := &t.calls
	b.mu.Lock()
	defer b.mu.Unlock()
	if !h.Requested {
		if number, ok := b.numbers[h.Conn]; ok {
			delete(b.numbers, h.Conn)
			t.happened(number, h)
		}
		return
	}
	b.last++
	number := b.last | proto.PassiveConn
	m := &proto.Message{Requested: &proto.Requested{Listen: listen, Conn: number, GID: h.GID, Private: h.Private,
		Attrs: h.Attrs}}
	if len(b.conns) >= connsMax || t.ctx.Err() != nil || !t.note(m) {
		go h.Conn.Close()
		return
	}
	b.conns[number], b.numbers[h.Conn] = h.Conn, number
}

// connect asks for a connection.
func (t *talk) connect(q *proto.Connect) {
	b := &t.calls
	b.mu.Lock()
	_, taken := b.conns[q.ID]
	refused := t.groups == nil || taken || len(b.conns) >= connsMax || q.ID == 0 || q.ID&proto.PassiveConn != 0
	if !refused {
		b.conns[q.ID] = nil
	}
	b.mu.Unlock()
	if refused {
		t.note(&proto.Message{Closed: q.ID})
		return
	}
	c, err := t.groups.Connect(t.p.Host().Name(), q, func(h Happened) {
		b.mu.Lock()
		defer b.mu.Unlock()
		t.happened(q.ID, h)
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	_, is := b.conns[q.ID]
	switch {
	case err != nil && is:
		delete(b.conns, q.ID)
		t.note(&proto.Message{Closed: q.ID})
	case is:
		b.conns[q.ID] = c
	}
}

// happened tells of a connection's fate. The book's lock is held.
func (t *talk) happened(number uint64, h Happened) {
	if h.Accepted {
		m := &proto.Message{Accepted: &proto.Accepted{Conn: number, Private: h.Private, Attrs: h.Attrs}}
		if !t.note(m) {
			go h.Conn.Close()
		}
		return
	}
	if _, is := t.calls.conns[number]; is {
		delete(t.calls.conns, number)
		t.note(&proto.Message{Closed: number})
	}
}

// closeConns ends what a process has not ended itself.
func (t *talk) closeConns() {
	t.calls.mu.Lock()
	all := make([]Conn, 0, len(t.calls.conns))
	for _, c := range t.calls.conns {
		if c != nil {
			all = append(all, c)
		}
	}
	t.calls.mu.Unlock()
	for _, c := range all {
		c.Close()
	}
}
