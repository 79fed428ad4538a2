package ufm

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// crowd bounds the connections of a server, in all and of each source. When all places are taken, whoever comes gets
// that of the connection on which nothing has been asked for longest: of the same source if that has all of its places,
// else of the one that has most. So connections that do nothing keep nobody out. If each has a request under way, who
// comes is sent away at once: a connection that waits would be a descriptor too.
type crowd struct {
	most, ofSource int

	mu      sync.Mutex
	there   map[net.Conn]*visitor
	sources map[netip.Addr]*party
}

// party are the connections of one source.
type party struct {
	count int
	quiet list.List // of *visitor, those that have been so for longest first
}

// visitor is a connection.
type visitor struct {
	conn net.Conn
	of   *party
	from netip.Addr
	busy int           // requests under way
	in   *list.Element // of the quiet ones; nil while it is busy
}

func newCrowd(most, ofSource int) *crowd {
	return &crowd{most: most, ofSource: ofSource, there: map[net.Conn]*visitor{}, sources: map[netip.Addr]*party{}}
}

// visitorKey is where a request's context has its connection.
type visitorKey struct{}

// watch makes a server tell of its connections and its requests.
func (c *crowd) watch(h *http.Server) {
	h.ConnState = c.state
	h.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, visitorKey{}, conn)
	}
	inner := h.Handler
	h.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(visitorKey{}).(net.Conn)
		c.ask(conn, 1)
		defer c.ask(conn, -1)
		inner.ServeHTTP(w, r)
	})
}

// state hears of connections that come and go.
func (c *crowd) state(conn net.Conn, s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s {
	case http.StateNew:
		if !c.makeRoom(sourceAt(conn.RemoteAddr().String())) {
			conn.Close()
			return
		}
		c.enter(conn)
	case http.StateClosed, http.StateHijacked:
		if v := c.there[conn]; v != nil {
			c.leave(v)
		}
	}
}

// makeRoom sees to it that there is a place for one more of a source.
func (c *crowd) makeRoom(from netip.Addr) bool {
	p := c.sources[from]
	switch {
	case p != nil && p.count >= c.ofSource:
	case len(c.there) >= c.most:
		p = nil
		for _, x := range c.sources {
			if x.quiet.Len() > 0 && (p == nil || x.count > p.count) {
				p = x
			}
		}
	default:
		return true
	}
	if p == nil || p.quiet.Len() == 0 {
		return false
	}
	v := p.quiet.Front().Value.(*visitor)
	c.leave(v)
	go v.conn.Close() // which may have to say goodbye first
	return true
}

func (c *crowd) enter(conn net.Conn) {
	v := &visitor{conn: conn, from: sourceAt(conn.RemoteAddr().String())}
	if v.of = c.sources[v.from]; v.of == nil {
		v.of = &party{}
		c.sources[v.from] = v.of
	}
	v.of.count++
	v.in = v.of.quiet.PushBack(v)
	c.there[conn] = v
}

func (c *crowd) leave(v *visitor) {
	delete(c.there, v.conn)
	if v.in != nil {
		v.of.quiet.Remove(v.in)
		v.in = nil
	}
	if v.of.count--; v.of.count == 0 {
		delete(c.sources, v.from)
	}
}

// ask notes that a request has come on a connection, or is done. A header that never ends is no request.
func (c *crowd) ask(conn net.Conn, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.there[conn]
	if v == nil {
		return
	}
	v.busy += n
	switch {
	case v.busy > 0 && v.in != nil:
		v.of.quiet.Remove(v.in)
		v.in = nil
	case v.busy == 0 && v.in == nil:
		v.in = v.of.quiet.PushBack(v)
	}
}
