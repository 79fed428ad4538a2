package cm

import (
	"fmt"

	"softib/proto/ib"
	"softib/proto/mad"
)

// message is a datagram that is ready to go. Nobody changes it once it is made.
type message [mad.Size]byte

// conn is one connection or one look-up.
type conn struct {
	id    ConnID
	state State
	owned bool // those above have its ID; if not, it ends on its own

	sidr      bool // a look-up
	passive   bool
	listen    ListenID
	serviceID uint64
	transport Transport
	env       mad.Envelope // to the other side
	tid       uint64       // of what the other side or we asked last

	remoteID   uint32
	remoteGUID ib.GUID
	localQPN   ib.QPN
	remoteQPN  ib.QPN
	rqPSN      ib.PSN
	sqPSN      ib.PSN

	responder uint8
	initiator uint8
	retry     uint8
	rnrRetry  uint8
	srq       bool

	primary   Path
	alternate Path
	hasAlt    bool
	ackTime   uint8 // code of the local ACK timeout on each path
	altTime   uint8

	// What is repeated until it is answered, how long each time, and how often it may be yet.
	repeat  *message
	timeout ib.Time
	retries int // in all
	left    int

	// answer is what a message that is repeated by the other side is answered with, again: a MRA, a REP, a RTU,
	// a DREP or a REJ.
	answer   *message
	mra      *message // among them, while those above think
	rejected bool     // answer is a REJ

	timer timer
}

// peerKey is how the other side names a connection, and qpnKey its queue pair.
type (
	peerKey struct {
		guid ib.GUID
		id   uint32
	}
	qpnKey struct {
		guid ib.GUID
		qpn  ib.QPN
	}
	sidrKey struct {
		lid ib.LID
		gid ib.GID
		id  uint32
	}
)

// ghost is the last word on something that is over, kept to be said again.
type ghost struct {
	peer  peerKey
	sidr  sidrKey
	isReq bool // in Port.reqGhosts, else in Port.sidrGhosts
	env   mad.Envelope
	msg   *message
	timer timer
}

// newConn makes a connection that those above own.
func (p *Port) newConn(s State) *conn {
	c := &conn{owned: true}
	c.timer.c = c
	for c.id == 0 || p.conns[c.id] != nil {
		c.id = ConnID(p.cfg.Rand.Uint32())
	}
	p.conns[c.id] = c
	p.move(c, s)
	return c
}

// move is the only place where a state changes.
func (p *Port) move(c *conn, to State) {
	if !moves[c.state].has(to) {
		panic(fmt.Sprintf("cm: connection 0x%08x moves from %s to %s", uint32(c.id), c.state, to))
	}
	if pending.has(c.state) {
		p.pendings--
	}
	if pending.has(to) {
		p.pendings++
	}
	c.state = to
}

// call finds a connection for a call of those above, and checks its state.
func (p *Port) call(name string, id ConnID, want stateSet) (*conn, error) {
	c := p.conns[id]
	if c == nil || !c.owned {
		return nil, fmt.Errorf("cm: %s of connection 0x%08x: %w", name, uint32(id), ErrConn)
	}
	if !want.has(c.state) {
		return nil, &StateError{name, id, c.state, want.String()}
	}
	return c, nil
}

// findPeer finds the connection that the other side means by both IDs.
func (p *Port) findPeer(local, remote uint32) *conn {
	c := p.conns[ConnID(local)]
	if c == nil || c.state == Closed || c.remoteID != remote || c.state == SIDRReqSent || c.state == SIDRReqRcvd {
		return nil
	}
	return c
}

// enter puts a connection under the names that the other side has for it.
func (p *Port) enter(c *conn) {
	p.peers[peerKey{c.remoteGUID, c.remoteID}] = c
	p.qpns[qpnKey{c.remoteGUID, c.remoteQPN}] = c
}

// leaveQPN lets another connection have the other side's queue pair.
func (p *Port) leaveQPN(c *conn) {
	if k := (qpnKey{c.remoteGUID, c.remoteQPN}); p.qpns[k] == c {
		delete(p.qpns, k)
	}
}

// end closes a connection: nothing is sent and nothing arrives for it any more.
func (p *Port) end(c *conn) {
	p.leaveQPN(c)
	if k := (peerKey{c.remoteGUID, c.remoteID}); p.peers[k] == c {
		delete(p.peers, k)
		if c.passive && p.reqGhosts[k] == nil {
			// A REQ that comes so late asks for nothing new.
			p.remember(c, format(mad.AttrCMRej, c.tid, &mad.CMRej{RemoteCommID: c.remoteID, Message: mad.CMMessageReq,
				Reason: mad.RejStaleConnection}))
		}
	}
	if k := c.sidrKey(); p.sidrs[k] == c {
		delete(p.sidrs, k)
	}
	p.timers.stop(&c.timer)
	c.repeat, c.answer, c.mra = nil, nil, nil
	p.move(c, Closed)
	if !c.owned {
		delete(p.conns, c.id)
	}
}

// timewait waits until no packet of the connection can be on its way: the time that a sender waits for an
// acknowledgement (IBA 12.9.8.4). The other side's queue pair is free at once, as a new connection of it would
// otherwise be taken for a stale one.
func (p *Port) timewait(c *conn) {
	p.leaveQPN(c)
	c.repeat, c.mra = nil, nil
	p.move(c, Timewait)
	p.timers.set(&c.timer, p.now+span(c.ackTime))
}

// remember keeps a last word on a request for as long as it may be repeated.
func (p *Port) remember(c *conn, m *message) {
	g := &ghost{env: c.env, msg: m}
	g.timer.g = g
	if c.state == SIDRReqRcvd {
		g.sidr = c.sidrKey()
		p.forget(p.sidrGhosts[g.sidr])
		p.sidrGhosts[g.sidr] = g
	} else {
		g.isReq, g.peer = true, peerKey{c.remoteGUID, c.remoteID}
		p.forget(p.reqGhosts[g.peer])
		p.reqGhosts[g.peer] = g
	}
	p.timers.set(&g.timer, p.now+p.cfg.Linger)
}

func (p *Port) forget(g *ghost) {
	if g == nil {
		return
	}
	p.timers.stop(&g.timer)
	if g.isReq {
		delete(p.reqGhosts, g.peer)
	} else {
		delete(p.sidrGhosts, g.sidr)
	}
}

// body is any of the messages.
type body interface{ Append([]byte) []byte }

// format makes a datagram.
func format(attr mad.AttrID, tid uint64, b body) *message { return formatWith(0, attr, tid, b) }

// formatWith makes a datagram whose attribute modifier has a vendor's options.
func formatWith(options uint32, attr mad.AttrID, tid uint64, b body) *message {
	h := mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassCM, ClassVersion: mad.CMClassVersion,
		Method: mad.MethodSend, TransactionID: tid, AttributeID: attr, AttributeModifier: options}
	m := new(message)
	b.Append(h.Append(m[:0]))
	return m
}

// send puts a datagram into the queue.
func (p *Port) send(env mad.Envelope, m *message) { p.outbox.push(outgoing{env, m}) }

// sendUntil sends a message again and again until something stops it.
func (p *Port) sendUntil(c *conn, m *message) {
	c.repeat, c.left = m, c.retries
	p.send(c.env, m)
	p.timers.set(&c.timer, p.now+c.timeout)
}

// settle stops what is repeated.
func (p *Port) settle(c *conn) {
	c.repeat = nil
	p.timers.stop(&c.timer)
}

// tell queues an event, unless nobody has the ID any more.
func (p *Port) tell(c *conn, e Event) {
	if c.owned {
		e.ID = c.id
		p.events.push(told{c, e})
	}
}

// fits checks the length of a part that those above fill.
func fits(call, field string, b []byte, most int) error {
	if len(b) > most {
		return &ParamError{call, field, uint64(len(b)), fmt.Sprintf("at most %d bytes", most)}
	}
	return nil
}

// within checks a number.
func within(call, field string, v, most uint64) error {
	if v > most {
		return &ParamError{call, field, v, fmt.Sprintf("at most %d", most)}
	}
	return nil
}
