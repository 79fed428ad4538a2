package cm

import (
	"softib/proto/ib"
	"softib/proto/mad"
)

// timeMax is the largest code of a time, and retriesMax the most that fit a REQ's field.
const (
	timeMax    = 31
	retriesMax = 15
	countMax   = 7
	vendorMax  = 1<<24 - 1
	lifeMax    = 63
)

func (r *ReqParams) check() error {
	const call = "Connect"
	for _, x := range []struct {
		field   string
		v, most uint64
	}{
		{"Transport", uint64(r.Transport), uint64(NumTransport - 1)}, {"QPN", uint64(r.QPN), uint64(ib.QPNMask)},
		{"StartingPSN", uint64(r.StartingPSN), uint64(ib.PSNMask)}, {"ECE.Vendor", uint64(r.ECE.Vendor), vendorMax},
		{"RetryCount", uint64(r.RetryCount), countMax},
		{"RNRRetryCount", uint64(r.RNRRetryCount), countMax}, {"RemoteCMTimeout", uint64(r.RemoteCMTimeout), timeMax},
		{"LocalCMTimeout", uint64(r.LocalCMTimeout), timeMax}, {"MaxCMRetries", uint64(r.MaxCMRetries), retriesMax},
		{"Primary.PacketLifeTime", uint64(r.Primary.PacketLifeTime), lifeMax},
	} {
		if err := within(call, x.field, x.v, x.most); err != nil {
			return err
		}
	}
	if !r.Primary.MTU.IsValid() {
		return &ParamError{call, "Primary.MTU", uint64(r.Primary.MTU), "1 to 5"}
	}
	if a := r.Alternate; a != nil {
		// A REQ has one P_Key and one MTU for both.
		if a.PKey != r.Primary.PKey {
			return &ParamError{call, "Alternate.PKey", uint64(a.PKey), "the primary path's " + r.Primary.PKey.String()}
		}
		if a.MTU != r.Primary.MTU {
			return &ParamError{call, "Alternate.MTU", uint64(a.MTU), "the primary path's " + r.Primary.MTU.String()}
		}
	}
	return fits(call, "Private", r.Private, mad.CMReqPrivate)
}

// Connect asks the other end of a path for a connection.
func (p *Port) Connect(now ib.Time, r ReqParams) (ConnID, error) {
	if err := r.check(); err != nil {
		return 0, err
	}
	p.advance(now)
	c := p.newConn(ReqSent)
	c.serviceID, c.transport = r.ServiceID, r.Transport
	c.primary, c.env = r.Primary, r.Primary.Envelope()
	c.ackTime = ackTimeout(p.cfg.AckDelay, r.Primary.PacketLifeTime)
	if r.Alternate != nil {
		c.alternate, c.hasAlt = *r.Alternate, true
		c.altTime = ackTimeout(p.cfg.AckDelay, r.Alternate.PacketLifeTime)
	}
	c.localQPN, c.rqPSN = r.QPN, r.StartingPSN
	c.responder, c.initiator, c.retry, c.rnrRetry = r.ResponderResources, r.InitiatorDepth, r.RetryCount,
		r.RNRRetryCount
	c.timeout = 2*span(min(r.Primary.PacketLifeTime, timeMax)) + span(r.RemoteCMTimeout)
	c.retries = int(r.MaxCMRetries)
	c.tid = p.cfg.Rand.Uint64()

	m := mad.CMReq{
		LocalCommID: uint32(c.id), ServiceID: r.ServiceID, LocalCAGUID: p.cfg.CAGUID, LocalQPN: r.QPN,
		ResponderResources: r.ResponderResources, InitiatorDepth: r.InitiatorDepth, RemoteCMTimeout: r.RemoteCMTimeout,
		FlowControl: r.FlowControl, StartingPSN: r.StartingPSN, LocalCMTimeout: r.LocalCMTimeout,
		RetryCount: r.RetryCount,
		PKey:       r.Primary.PKey, PathMTU: r.Primary.MTU, RNRRetryCount: r.RNRRetryCount,
		MaxCMRetries: r.MaxCMRetries,
		SRQ:          r.SRQ,
		VendorID:     r.ECE.Vendor, Primary: r.Primary.wire(c.ackTime),
	}
	switch r.Transport {
	case UC:
		m.Transport = mad.CMUnreliable
	case XRC:
		m.Transport, m.ExtendedTransport = mad.CMExtended, mad.CMExtendedXRC
	}
	if c.hasAlt {
		m.Alternate = c.alternate.wire(c.altTime)
	}
	copy(m.PrivateData[:], r.Private)
	p.sendUntil(c, formatWith(r.ECE.Options, mad.AttrCMReq, c.tid, &m))
	return c.id, nil
}

// wire is the path as a REQ has it. A path that leaves the subnet has no LIDs that would mean anything to the other
// side.
func (p *Path) wire(ackTime uint8) mad.CMPath {
	w := mad.CMPath{
		LocalLID: p.SLID, RemoteLID: p.DLID, LocalGID: p.SGID, RemoteGID: p.DGID, FlowLabel: p.FlowLabel,
		PacketRate: p.Rate,
		TClass:     p.TClass, HopLimit: p.HopLimit, SL: p.SL, SubnetLocal: !p.global(), AckTimeout: ackTime,
	}
	if p.global() {
		w.LocalLID, w.RemoteLID = ib.LIDPermissive, ib.LIDPermissive
	}
	return w
}

// handleRep is the answer to a REQ of ours.
func (p *Port) handleRep(env mad.Envelope, tid uint64, b []byte) {
	m := parse[mad.CMRep](b)
	c := p.conns[ConnID(m.RemoteCommID)]
	switch {
	case c == nil || c.passive || c.sidr || c.state == Closed:
		// Given up here: the other side must not wait for an RTU (IBA 12.6.7.2, reason 6).
		p.counters.Unmatched++
		p.send(env, format(mad.AttrCMRej, tid, &mad.CMRej{LocalCommID: m.RemoteCommID, RemoteCommID: m.LocalCommID,
			Message: mad.CMMessageRep, Reason: mad.RejInvalidCommID}))
		return
	case !awaitRep.has(c.state):
		p.counters.Duplicates++
		if c.remoteID == m.LocalCommID && (c.state == StateEstablished || c.state == MRARepSent) && c.answer != nil {
			p.send(env, c.answer)
		}
		return
	}
	if p.peers[peerKey{m.LocalCAGUID, m.LocalCommID}] != nil {
		p.counters.Malformed++ // the other side has used an ID twice
		return
	}
	if old := p.qpns[qpnKey{m.LocalCAGUID, m.LocalQPN}]; old != nil {
		p.stale(old)
		p.send(env, format(mad.AttrCMRej, tid, &mad.CMRej{LocalCommID: m.RemoteCommID, RemoteCommID: m.LocalCommID,
			Message: mad.CMMessageRep, Reason: mad.RejStaleConnection}))
		return
	}
	p.settle(c)
	c.remoteID, c.remoteGUID, c.remoteQPN, c.sqPSN = m.LocalCommID, m.LocalCAGUID, m.LocalQPN, m.StartingPSN
	c.initiator, c.responder, c.rnrRetry, c.srq = m.ResponderResources, m.InitiatorDepth, m.RNRRetryCount, m.SRQ
	c.ackTime = ackTimeout(m.TargetAckDelay, c.primary.PacketLifeTime)
	if c.hasAlt {
		c.altTime = ackTimeout(m.TargetAckDelay, c.alternate.PacketLifeTime)
		c.hasAlt = m.FailoverAccepted == 0
	}
	c.tid = tid
	p.enter(c)
	p.move(c, RepRcvd)
	p.tell(c, Event{Kind: RepReceived, From: env, Private: m.PrivateData[:], Rep: m,
		ECE: ECE{m.VendorID(), p.modifier}})
}

// Ready says that our queue pair is ready, after RepReceived: the connection stands.
func (p *Port) Ready(now ib.Time, id ConnID, private []byte) error {
	c, err := p.call("Ready", id, answerRep)
	if err != nil {
		return err
	}
	if err := fits("Ready", "private", private, mad.CMRTUPrivate); err != nil {
		return err
	}
	p.advance(now)
	m := mad.CMRTU{LocalCommID: uint32(c.id), RemoteCommID: c.remoteID}
	copy(m.PrivateData[:], private)
	c.answer = format(mad.AttrCMRTU, c.tid, &m)
	p.send(c.env, c.answer)
	p.move(c, StateEstablished)
	return nil
}
