package rdmacm

import (
	"fmt"
	"math/rand/v2"
	"syscall"

	"softib/node/cm"
	"softib/proto/ib"
	"softib/verbs/attach/proto"
	"softib/verbs/attach/server"
)

// Conn is a connection of a program that has no librdmacm, which the port's connection manager makes for it. What
// happens to it is told to the function that came with it, which is called with the host's lock held and must not wait.
type Conn struct {
	p    *endPort
	id   cm.ConnID
	psn  ib.PSN // that the other side starts to send with
	told func(server.Happened)
	// passive: the other side asked. open: it stands.
	passive, open bool
	isOver        bool
}

// service is a service ID that a program without librdmacm listens on.
type service struct{ told func(server.Happened) }

// Listen takes requests for a service at a port, for a program without librdmacm; stop is called once.
func (s *Server) Listen(host string, port ib.PortNum, sid uint64, told func(server.Happened)) (stop func(), err error) {
	h, err := s.host(host)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.port(port)
	if p == nil || p.dead {
		return nil, fmt.Errorf("rdmacm: port %d of %s: %w", port, h.name, syscall.ENODEV)
	}
	if p.services[sid] != nil || p.listens[sid] != nil {
		return nil, fmt.Errorf("rdmacm: service 0x%x: %w", sid, syscall.EADDRINUSE)
	}
	if err := p.listen(sid); err != nil {
		return nil, err
	}
	p.services[sid] = &service{told}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(p.services, sid)
		p.unlisten(sid)
	}, nil
}

// Connect asks for a connection.
func (s *Server) Connect(host string, q *proto.Connect, told func(server.Happened)) (server.Conn, error) {
	port, path := q.Port, q.Path
	h, err := s.host(host)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	a, err := h.adapter()
	if err != nil {
		return nil, err
	}
	p, info := h.port(port), a.port(port)
	if p == nil || info == nil || p.dead {
		return nil, fmt.Errorf("rdmacm: port %d of %s: %w", port, h.name, syscall.ENODEV)
	}
	key, ok := info.keyIndex(path.PKey)
	if !ok {
		return nil, fmt.Errorf("rdmacm: partition %v is not among those of port %d: %w", path.PKey, port,
			syscall.EINVAL)
	}
	c := &Conn{p: p, told: told, psn: newPSN()}
	path.SGID = info.GID // nobody asks in another's name
	c.id, err = p.engine.Connect(p.session.Now(), cm.ReqParams{
		Primary: cm.Path{PathRecord: path, PKeyIndex: key, PathBits: uint8(path.SLID) & (1<<info.LMC - 1)},
		QPN:     q.QPN & ib.QPNMask, ServiceID: q.ServiceID, Transport: cm.RC, StartingPSN: c.psn, SRQ: q.SRQ,
		FlowControl: true, RetryCount: 7, RNRRetryCount: 7, RemoteCMTimeout: s.cfg.responseTimeout,
		LocalCMTimeout: s.cfg.responseTimeout, MaxCMRetries: s.cfg.retries, Private: q.Private,
	})
	if err != nil {
		return nil, err
	}
	p.outside[c.id] = c
	p.turn()
	return c, nil
}

func newPSN() ib.PSN { return ib.PSN(rand.Uint32() & 0xFFFFFF) }

// requested makes a connection of a request. The host's lock is held.
func (l *service) requested(p *endPort, e *cm.Event, info *cm.Info) {
	c := &Conn{p: p, id: e.ID, told: l.told, psn: newPSN(), passive: true}
	attrs, err := c.attrs()
	if info.SIDR || info.Transport != cm.RC || err != nil {
		_ = p.engine.Destroy(p.session.Now(), e.ID)
		return
	}
	p.outside[e.ID] = c
	_ = p.engine.DelayRepeated(e.ID, mraTimeout, nil)
	c.told(server.Happened{Conn: c, Requested: true, Private: e.Private, GID: info.Primary.DGID, Attrs: attrs})
}

// attrs is what the queue pair has to be told.
func (c *Conn) attrs() (all [3]cm.QPAttr, err error) {
	for i, to := range []cm.QPState{cm.QPInit, cm.QPRTR, cm.QPRTS} {
		if all[i], err = c.p.engine.QPAttr(c.id, to); err != nil {
			return all, err
		}
	}
	all[1].RQPSN = c.psn // which the engine is told with the answer
	return all, nil
}

// happened passes on what the connection manager tells.
func (c *Conn) happened(e *cm.Event) {
	switch e.Kind {
	case cm.RepReceived:
		attrs, err := c.attrs()
		if err != nil {
			c.end()
			return
		}
		_ = c.p.engine.DelayRepeated(c.id, mraTimeout, nil)
		c.told(server.Happened{Conn: c, Accepted: true, Private: e.Private, Attrs: attrs})
	case cm.RTUReceived, cm.Established:
		c.open = true
	case cm.ReqError, cm.RepError, cm.RejReceived, cm.DReqReceived, cm.DReqError, cm.DRepReceived:
		if e.Kind == cm.DReqReceived {
			_ = c.p.engine.Disconnect(c.p.session.Now(), c.id, nil)
		}
		c.end()
	}
}

// end forgets the connection, and tells who has it.
func (c *Conn) end() {
	if c.isOver {
		return
	}
	c.isOver = true
	delete(c.p.outside, c.id)
	_ = c.p.engine.Destroy(c.p.session.Now(), c.id)
	c.told(server.Happened{Conn: c})
}

// Accept answers a request, when the queue pair is ready.
func (c *Conn) Accept(qpn ib.QPN, srq bool, private []byte) error {
	return c.call(func() error {
		return c.p.engine.Accept(c.p.session.Now(), c.id, cm.RepParams{QPN: qpn & ib.QPNMask, StartingPSN: c.psn,
			SRQ: srq, FlowControl: true, RNRRetryCount: 7, Private: private})
	})
}

// Ready says that the queue pair of an accepted connection is ready.
func (c *Conn) Ready() error {
	return c.call(func() error {
		c.open = true
		return c.p.engine.Ready(c.p.session.Now(), c.id, nil)
	})
}

// Close ends the connection, in whatever state; the function that came with it is called, unless it was told before.
func (c *Conn) Close() {
	_ = c.call(func() error {
		if c.open {
			_ = c.p.engine.Disconnect(c.p.session.Now(), c.id, nil)
		}
		c.end()
		return nil
	})
}

func (c *Conn) call(f func() error) error {
	h := c.p.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.isOver || c.p.dead {
		return fmt.Errorf("rdmacm: the connection is over: %w", syscall.ENOTCONN)
	}
	err := f()
	c.p.turn()
	return err
}
