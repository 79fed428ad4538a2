package cm

import (
	"softib/proto/ib"
	"softib/proto/mad"
)

// Disconnect ends a connection that stands, or agrees to its end after DReqReceived.
func (p *Port) Disconnect(now ib.Time, id ConnID, private []byte) error {
	c, err := p.call("Disconnect", id, states(StateEstablished, DReqRcvd))
	if err != nil {
		return err
	}
	if err := fits("Disconnect", "private", private, mad.CMDReqPrivate); err != nil {
		return err
	}
	p.advance(now)
	if c.state == DReqRcvd {
		p.agree(c, private)
	} else {
		p.disconnect(c, private)
	}
	return nil
}

func (p *Port) disconnect(c *conn, private []byte) {
	m := mad.CMDReq{LocalCommID: uint32(c.id), RemoteCommID: c.remoteID, RemoteQPN: c.remoteQPN}
	copy(m.PrivateData[:], private)
	c.tid = p.cfg.Rand.Uint64()
	c.answer = nil
	p.leaveQPN(c) // what comes from it now is not of this connection, even if nobody answers the DREQ
	p.move(c, DReqSent)
	p.sendUntil(c, format(mad.AttrCMDReq, c.tid, &m))
}

// agree answers a DREQ.
func (p *Port) agree(c *conn, private []byte) {
	m := mad.CMDRep{LocalCommID: uint32(c.id), RemoteCommID: c.remoteID}
	copy(m.PrivateData[:], private)
	c.answer = format(mad.AttrCMDRep, c.tid, &m)
	p.send(c.env, c.answer)
	p.timewait(c)
}

// handleDReq is the other side's wish to end a connection.
func (p *Port) handleDReq(env mad.Envelope, tid uint64, b []byte) {
	m := parse[mad.CMDReq](b)
	none := func() {
		p.send(env, format(mad.AttrCMDRep, tid, &mad.CMDRep{LocalCommID: m.RemoteCommID, RemoteCommID: m.LocalCommID}))
	}
	c := p.findPeer(m.RemoteCommID, m.LocalCommID)
	if c == nil {
		p.counters.Unmatched++
		none()
		return
	}
	if m.RemoteQPN != c.localQPN {
		p.counters.Malformed++
		return
	}
	switch c.state {
	case StateEstablished, RepSent, MRARepRcvd, DReqSent:
		p.settle(c)
		c.tid, c.answer = tid, nil
		p.leaveQPN(c) // the other side is done with it, however long those above take to agree
		p.move(c, DReqRcvd)
		if !c.owned {
			p.agree(c, nil)
			return
		}
		p.tell(c, Event{Kind: DReqReceived, From: env, Private: m.PrivateData[:], DReq: m})
	case Timewait:
		p.counters.Duplicates++
		if c.answer != nil && !c.rejected {
			p.send(env, c.answer)
		} else {
			none()
		}
	default:
		p.counters.Duplicates++
	}
}

// handleDRep is the answer to a DREQ of ours.
func (p *Port) handleDRep(env mad.Envelope, _ uint64, b []byte) {
	m := parse[mad.CMDRep](b)
	c := p.findPeer(m.RemoteCommID, m.LocalCommID)
	if c == nil || c.state != DReqSent && c.state != DReqRcvd {
		p.counters.Unmatched++
		return
	}
	p.settle(c)
	p.tell(c, Event{Kind: DRepReceived, From: env, Private: m.PrivateData[:], DRep: m})
	p.timewait(c)
}

// handleLAP answers an offer of another alternate path: connections keep those they were made with.
func (p *Port) handleLAP(env mad.Envelope, tid uint64, b []byte) {
	m := parse[mad.CMLAP](b)
	status := mad.APUnsupported
	if c := p.findPeer(m.RemoteCommID, m.LocalCommID); c == nil {
		p.counters.Unmatched++
		status = mad.APInvalidCommID
	}
	p.send(env, format(mad.AttrCMAPR, tid, &mad.CMAPR{LocalCommID: m.RemoteCommID, RemoteCommID: m.LocalCommID,
		Status: status}))
}
