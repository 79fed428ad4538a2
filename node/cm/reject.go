package cm

import (
	"encoding/binary"

	"softib/proto/ib"
	"softib/proto/mad"
)

// rejection is a REJ of a connection as its state wants it: the other side learns an ID of ours only by our messages.
func (p *Port) rejection(c *conn, why mad.CMReason, ari, private []byte) *message {
	m := mad.CMRej{LocalCommID: uint32(c.id), RemoteCommID: c.remoteID, Message: mad.CMMessageOther, Reason: why}
	switch c.state {
	case ReqRcvd:
		m.LocalCommID, m.Message = 0, mad.CMMessageReq
	case MRAReqSent:
		m.Message = mad.CMMessageReq
	case RepRcvd, MRARepSent:
		m.Message = mad.CMMessageRep
	}
	m.InfoLength = uint8(copy(m.Info[:], ari))
	copy(m.PrivateData[:], private)
	return format(mad.AttrCMRej, c.tid, &m)
}

// timeoutRej gives up waiting. The other side may never have told us an ID of its own; it knows the connection by our
// GUID and our ID (IBA 12.6.7.2, reason 4).
func (p *Port) timeoutRej(c *conn) *message {
	return p.rejection(c, mad.RejTimeout, binary.BigEndian.AppendUint64(nil, uint64(p.cfg.CAGUID)), nil)
}

// Reject refuses a connection that does not stand yet. ari is additional information that goes with
// some reasons.
func (p *Port) Reject(now ib.Time, id ConnID, why mad.CMReason, ari, private []byte) error {
	c, err := p.call("Reject", id, awaitRep|answerReq|awaitRTU|answerRep)
	if err != nil {
		return err
	}
	if err := fits("Reject", "ari", ari, mad.CMInfoLen); err != nil {
		return err
	}
	if err := fits("Reject", "private", private, mad.CMRejPrivate); err != nil {
		return err
	}
	p.advance(now)
	p.reject(c, p.rejection(c, why, ari, private))
	return nil
}

// reject sends a REJ and ends the connection.
func (p *Port) reject(c *conn, m *message) {
	p.send(c.env, m)
	switch {
	case awaitRTU.has(c.state):
		// The other side's queue pair may be sending already.
		p.timewait(c)
		c.answer, c.rejected = m, true
		return
	case answerReq.has(c.state):
		p.remember(c, m)
	}
	p.end(c)
}

// handleRej is the end of a connection, before it stands or, if the other side finds it stale, later.
func (p *Port) handleRej(env mad.Envelope, _ uint64, b []byte) {
	m := parse[mad.CMRej](b)
	c := p.rejected(m)
	if c == nil {
		p.counters.Unmatched++
		return
	}
	wait := m.Reason == mad.RejStaleConnection
	switch c.state {
	case ReqSent, MRAReqRcvd, RepSent, MRARepRcvd, ReqRcvd, MRAReqSent:
	case RepRcvd, MRARepSent, StateEstablished, DReqSent:
		wait = true
	default:
		p.counters.Duplicates++
		return
	}
	p.settle(c)
	p.tell(c, Event{Kind: RejReceived, From: env, Private: m.PrivateData[:], Rej: m})
	if wait {
		c.answer = nil
		p.timewait(c)
	} else {
		p.end(c)
	}
}

// rejected finds the connection that a REJ is about.
func (p *Port) rejected(m *mad.CMRej) *conn {
	if ari := m.ARI(); m.Reason == mad.RejTimeout && len(ari) >= 8 {
		if c := p.peers[peerKey{ib.GUID(binary.BigEndian.Uint64(ari)), m.LocalCommID}]; c != nil {
			return c
		}
	}
	c := p.conns[ConnID(m.RemoteCommID)]
	if c == nil || c.sidr {
		return nil
	}
	// Whoever rejects a REQ need not have an ID of its own.
	if awaitRep.has(c.state) || c.remoteID == m.LocalCommID {
		return c
	}
	return nil
}

// Destroy ends the use of an ID, in any state. What the other side has to be told is told; no event comes any more.
func (p *Port) Destroy(now ib.Time, id ConnID) error {
	c, err := p.call("Destroy", id, ^stateSet(0))
	if err != nil {
		return err
	}
	p.advance(now)
	c.owned = false
	switch s := c.state; {
	case s == Closed:
		delete(p.conns, c.id)
	case awaitRep.has(s):
		p.reject(c, p.timeoutRej(c))
	case (answerReq | awaitRTU | answerRep).has(s):
		p.reject(c, p.rejection(c, mad.RejConsumer, nil, nil))
	case s == StateEstablished:
		p.disconnect(c, nil)
	case s == DReqRcvd:
		p.agree(c, nil)
	case s == SIDRReqSent:
		p.end(c)
	case s == SIDRReqRcvd:
		p.sidrReply(c, &SIDRReplyParams{Status: mad.SIDRReject})
	}
	return nil
}
