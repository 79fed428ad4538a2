package cm

import (
	"softib/proto/ib"
	"softib/proto/mad"
)

// sidrKey is how a look-up of another side is told from others: it has no GUID in it.
func (c *conn) sidrKey() sidrKey {
	if !c.sidr || !c.passive {
		return sidrKey{}
	}
	return keyOf(c.env, c.remoteID)
}

func keyOf(env mad.Envelope, id uint32) sidrKey {
	k := sidrKey{lid: env.LID, id: id}
	if env.HasGRH {
		k.gid = env.GID
	}
	return k
}

// SIDRRequest asks for the queue pair of a datagram service.
func (p *Port) SIDRRequest(now ib.Time, r SIDRParams) (ConnID, error) {
	if err := fits("SIDRRequest", "Private", r.Private, mad.SIDRReqPrivate); err != nil {
		return 0, err
	}
	if r.Timeout <= 0 {
		return 0, &ParamError{"SIDRRequest", "Timeout", uint64(max(r.Timeout, 0)), "a time above 0"}
	}
	if r.Retries < 0 {
		return 0, &ParamError{"SIDRRequest", "Retries", 0, "0 or more"}
	}
	p.advance(now)
	c := p.newConn(SIDRReqSent)
	c.sidr, c.serviceID, c.primary, c.env = true, r.ServiceID, r.Path, r.Path.Envelope()
	c.timeout, c.retries, c.tid = r.Timeout, r.Retries, p.cfg.Rand.Uint64()
	m := mad.SIDRReq{RequestID: uint32(c.id), PKey: r.Path.PKey, ServiceID: r.ServiceID}
	copy(m.PrivateData[:], r.Private)
	p.sendUntil(c, format(mad.AttrSIDRReq, c.tid, &m))
	return c.id, nil
}

// handleSIDRReq is somebody's question for a datagram service.
func (p *Port) handleSIDRReq(env mad.Envelope, tid uint64, b []byte) {
	m := parse[mad.SIDRReq](b)
	key := keyOf(env, m.RequestID)
	if p.sidrs[key] != nil {
		p.counters.Duplicates++
		return
	}
	if g := p.sidrGhosts[key]; g != nil {
		p.counters.Duplicates++
		p.send(g.env, g.msg)
		return
	}
	listen, ok := p.listeners.find(m.ServiceID)
	if !ok && p.wait(mad.AttrSIDRReq, m.RequestID, m.ServiceID, env, tid, b) {
		return
	}
	if !ok || p.pendings >= p.cfg.PendingMax {
		r := mad.SIDRRep{RequestID: m.RequestID, Status: mad.SIDRUnsupported, ServiceID: m.ServiceID}
		if ok {
			r.Status = mad.SIDRNoQP
		}
		p.send(env, format(mad.AttrSIDRRep, tid, &r))
		return
	}
	c := p.newConn(SIDRReqRcvd)
	c.sidr, c.passive, c.listen, c.serviceID, c.env, c.tid, c.remoteID = true, true, listen, m.ServiceID, env, tid,
		m.RequestID
	p.sidrs[key] = c
	p.tell(c, Event{Kind: SIDRReqReceived, Listen: listen, From: env, Private: m.PrivateData[:], SIDRReq: m})
}

// SIDRReply answers a look-up, and with it the ID is done: what is left is Destroy.
func (p *Port) SIDRReply(now ib.Time, id ConnID, r SIDRReplyParams) error {
	c, err := p.call("SIDRReply", id, states(SIDRReqRcvd))
	if err != nil {
		return err
	}
	if err := within("SIDRReply", "QPN", uint64(r.QPN), uint64(ib.QPNMask)); err != nil {
		return err
	}
	if err := fits("SIDRReply", "Info", r.Info, mad.CMInfoLen); err != nil {
		return err
	}
	if err := fits("SIDRReply", "Private", r.Private, mad.SIDRRepPrivate); err != nil {
		return err
	}
	p.advance(now)
	p.sidrReply(c, &r)
	return nil
}

func (p *Port) sidrReply(c *conn, r *SIDRReplyParams) {
	m := mad.SIDRRep{RequestID: c.remoteID, Status: r.Status, ServiceID: c.serviceID}
	if r.Status == mad.SIDROK {
		m.QPN, m.QKey = r.QPN, r.QKey
	}
	m.InfoLength = uint8(copy(m.Info[:], r.Info))
	copy(m.PrivateData[:], r.Private)
	msg := format(mad.AttrSIDRRep, c.tid, &m)
	p.send(c.env, msg)
	p.remember(c, msg)
	p.end(c)
}

// handleSIDRRep is the answer to a look-up of ours.
func (p *Port) handleSIDRRep(env mad.Envelope, _ uint64, b []byte) {
	m := parse[mad.SIDRRep](b)
	c := p.conns[ConnID(m.RequestID)]
	if c == nil || c.state != SIDRReqSent {
		p.counters.Unmatched++
		return
	}
	p.tell(c, Event{Kind: SIDRRepReceived, From: env, Private: m.PrivateData[:], SIDRRep: m})
	p.end(c)
}
