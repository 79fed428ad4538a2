package cm

import (
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
)

// handleReq is a wish for a connection.
func (p *Port) handleReq(env mad.Envelope, tid uint64, b []byte) {
	m := parse[mad.CMReq](b)
	key := peerKey{m.LocalCAGUID, m.LocalCommID}
	if c := p.peers[key]; c != nil {
		p.counters.Duplicates++
		p.repeatedReq(c, env, tid)
		return
	}
	if g := p.reqGhosts[key]; g != nil {
		p.counters.Duplicates++
		p.send(g.env, g.msg)
		return
	}
	reject := func(why mad.CMReason, ari []byte) {
		r := mad.CMRej{RemoteCommID: m.LocalCommID, Message: mad.CMMessageReq, Reason: why}
		r.InfoLength = uint8(copy(r.Info[:], ari))
		p.send(env, format(mad.AttrCMRej, tid, &r))
	}
	// A queue pair has one connection. If the other side asks for a second one it has forgotten the first (IBA 12.4.1).
	if old := p.qpns[qpnKey{m.LocalCAGUID, m.LocalQPN}]; old != nil {
		p.stale(old)
		reject(mad.RejStaleConnection, nil)
		return
	}
	listen, ok := p.listeners.find(m.ServiceID)
	if !ok {
		if !p.wait(mad.AttrCMReq, m.LocalCommID, m.ServiceID, env, tid, b) {
			reject(mad.RejInvalidServiceID, nil)
		}
		return
	}
	transport, ok := transportOf(m)
	if !ok {
		reject(mad.RejInvalidTransport, nil)
		return
	}
	if !m.PathMTU.IsValid() {
		reject(mad.RejInvalidMTU, []byte{byte(ib.MTU4096) << 4})
		return
	}
	primary, ok := p.pathFrom(m, &m.Primary, env)
	if !ok {
		reject(mad.RejInvalidGID, p.ownGID())
		return
	}
	hasAlt := !m.Alternate.IsZero()
	var alternate Path
	if hasAlt {
		if alternate, ok = p.pathFrom(m, &m.Alternate, env); !ok {
			reject(mad.RejInvalidAltGID, p.ownGID())
			return
		}
	}
	if p.pendings >= p.cfg.PendingMax {
		reject(mad.RejNoResources, nil)
		return
	}

	c := p.newConn(ReqRcvd)
	c.passive, c.listen, c.serviceID, c.transport, c.env, c.tid = true, listen, m.ServiceID, transport, env, tid
	c.remoteID, c.remoteGUID, c.remoteQPN, c.sqPSN = m.LocalCommID, m.LocalCAGUID, m.LocalQPN, m.StartingPSN
	// What the other side starts, we serve.
	c.responder, c.initiator, c.retry, c.rnrRetry, c.srq = m.InitiatorDepth, m.ResponderResources, m.RetryCount,
		m.RNRRetryCount, m.SRQ
	c.primary, c.ackTime = primary, m.Primary.AckTimeout
	c.alternate, c.hasAlt, c.altTime = alternate, hasAlt, m.Alternate.AckTimeout
	c.timeout = span(m.Primary.AckTimeout) + span(m.LocalCMTimeout)
	c.retries = int(m.MaxCMRetries)
	p.enter(c)
	p.tell(c, Event{Kind: ReqReceived, Listen: listen, From: env, Private: m.PrivateData[:], Req: m,
		ECE: ECE{m.VendorID, p.modifier}})
}

func transportOf(m *mad.CMReq) (Transport, bool) {
	switch m.Transport {
	case mad.CMReliable:
		return RC, true
	case mad.CMUnreliable:
		return UC, true
	case mad.CMExtended:
		return XRC, m.ExtendedTransport == mad.CMExtendedXRC
	}
	return 0, false
}

// ownGID is the GID that a request should have named, if it is known.
func (p *Port) ownGID() []byte {
	if len(p.attr.GIDs) == 0 {
		return nil
	}
	return p.attr.GIDs[0][:]
}

// pathFrom is a path of a REQ as seen from here. It fails if the port's tables lack what the path names.
func (p *Port) pathFrom(m *mad.CMReq, w *mad.CMPath, env mad.Envelope) (Path, bool) {
	path := Path{
		PathRecord: mad.PathRecord{
			ServiceID: m.ServiceID, DGID: w.LocalGID, SGID: w.RemoteGID, DLID: w.LocalLID, SLID: w.RemoteLID,
			FlowLabel: w.FlowLabel,
			HopLimit:  w.HopLimit, TClass: w.TClass, Reversible: true, NumbPath: 1, PKey: m.PKey, SL: w.SL,
			MTUSelector: mad.SelectExactly, MTU: m.PathMTU, RateSelector: mad.SelectExactly, Rate: w.PacketRate,
			PacketLifeTimeSelector: mad.SelectExactly, PacketLifeTime: w.AckTimeout - min(w.AckTimeout, 1),
		},
		PKeyIndex: env.PKeyIndex, GIDIndex: env.GIDIndex,
	}
	if !w.SubnetLocal {
		// Routers are where the datagram came through.
		if path.DLID == ib.LIDPermissive {
			path.DLID, path.SL = env.LID, env.SL
		}
		if path.SLID == ib.LIDPermissive {
			path.SLID = 0
		}
	}
	path.PathBits = uint8(path.SLID) & (1<<(p.attr.LMC&7) - 1)
	if len(p.attr.GIDs) > 0 {
		i := slices.Index(p.attr.GIDs, w.RemoteGID)
		if i < 0 {
			return path, false
		}
		path.GIDIndex = uint8(i)
	}
	if len(p.attr.PKeys) > 0 {
		// The other side may be a full member where we are limited, and the other way round. If we are both, we are
		// full.
		i := slices.IndexFunc(p.attr.PKeys, func(k ib.PKey) bool { return k.IsFull() && k.Matches(m.PKey) })
		if i < 0 {
			i = slices.IndexFunc(p.attr.PKeys, func(k ib.PKey) bool { return k.Matches(m.PKey) })
		}
		if i < 0 {
			return path, false
		}
		path.PKeyIndex = uint16(i)
	}
	return path, true
}

// repeatedReq is a REQ that has come before: its answer was lost, or takes long, or the REQ itself was on its way for
// long.
func (p *Port) repeatedReq(c *conn, env mad.Envelope, tid uint64) {
	switch c.state {
	case MRAReqSent:
		p.send(c.env, c.mra)
	case RepSent, MRARepRcvd:
		p.send(c.env, c.repeat)
	case Timewait:
		p.send(env, format(mad.AttrCMRej, tid, &mad.CMRej{RemoteCommID: c.remoteID, Message: mad.CMMessageReq,
			Reason: mad.RejStaleConnection}))
	}
}

// stale is a connection that the other side has forgotten: it is ended, in order.
func (p *Port) stale(c *conn) {
	p.counters.Stale++
	if c.state == StateEstablished {
		p.disconnect(c, nil)
	}
}

// Delay says that an answer to a REQ or a REP takes longer: up to 4.096 us * 2^timeout.
func (p *Port) Delay(now ib.Time, id ConnID, timeout uint8, private []byte) error {
	c, err := p.delay("Delay", id, timeout, private)
	if err != nil {
		return err
	}
	p.advance(now)
	p.send(c.env, c.mra)
	return nil
}

// DelayRepeated says so only when the other side asks again.
func (p *Port) DelayRepeated(id ConnID, timeout uint8, private []byte) error {
	_, err := p.delay("DelayRepeated", id, timeout, private)
	return err
}

func (p *Port) delay(name string, id ConnID, timeout uint8, private []byte) (*conn, error) {
	c, err := p.call(name, id, states(ReqRcvd, RepRcvd))
	if err != nil {
		return nil, err
	}
	if err := within(name, "timeout", uint64(timeout), timeMax); err != nil {
		return nil, err
	}
	if err := fits(name, "private", private, mad.CMMRAPrivate); err != nil {
		return nil, err
	}
	m := mad.CMMRA{LocalCommID: uint32(c.id), RemoteCommID: c.remoteID, ServiceTimeout: timeout}
	to := MRAReqSent
	if c.state == RepRcvd {
		m.Message, to = mad.CMMessageRep, MRARepSent
	}
	copy(m.PrivateData[:], private)
	c.mra = format(mad.AttrCMMRA, c.tid, &m)
	c.answer = c.mra
	p.move(c, to)
	return c, nil
}

// handleMRA is the other side's wish for more time.
func (p *Port) handleMRA(env mad.Envelope, _ uint64, b []byte) {
	m := parse[mad.CMMRA](b)
	c := p.conns[ConnID(m.RemoteCommID)]
	var first, again State
	switch {
	case c == nil:
	case m.Message == mad.CMMessageReq:
		first, again = ReqSent, MRAReqRcvd
	case m.Message == mad.CMMessageRep && c.remoteID == m.LocalCommID:
		first, again = RepSent, MRARepRcvd
	}
	switch {
	case first == Closed || c.state != first && c.state != again:
		p.counters.Unmatched++
		return
	case c.state == first:
		p.move(c, again)
		p.tell(c, Event{Kind: MRAReceived, From: env, Private: m.PrivateData[:], MRA: m})
	default:
		p.counters.Duplicates++
	}
	p.timers.set(&c.timer, p.now+span(m.ServiceTimeout)+span(c.ackTime))
}

func (r *RepParams) check() error {
	const call = "Accept"
	for _, x := range []struct {
		field   string
		v, most uint64
	}{
		{"QPN", uint64(r.QPN), uint64(ib.QPNMask)}, {"StartingPSN", uint64(r.StartingPSN), uint64(ib.PSNMask)},
		{"ECE.Vendor", uint64(r.ECE.Vendor), vendorMax},
		{"RNRRetryCount", uint64(r.RNRRetryCount), countMax}, {"FailoverAccepted", uint64(r.FailoverAccepted), 2},
	} {
		if err := within(call, x.field, x.v, x.most); err != nil {
			return err
		}
	}
	return fits(call, "Private", r.Private, mad.CMRepPrivate)
}

// Accept takes a connection that was asked for.
func (p *Port) Accept(now ib.Time, id ConnID, r RepParams) error {
	c, err := p.call("Accept", id, answerReq)
	if err != nil {
		return err
	}
	if err := r.check(); err != nil {
		return err
	}
	p.advance(now)
	c.localQPN, c.rqPSN, c.responder, c.initiator = r.QPN, r.StartingPSN, r.ResponderResources, r.InitiatorDepth
	c.hasAlt = c.hasAlt && r.FailoverAccepted == 0
	m := mad.CMRep{
		LocalCommID: uint32(c.id), RemoteCommID: c.remoteID, LocalQPN: r.QPN, StartingPSN: r.StartingPSN,
		ResponderResources: r.ResponderResources, InitiatorDepth: r.InitiatorDepth, TargetAckDelay: p.cfg.AckDelay,
		FailoverAccepted: r.FailoverAccepted, FlowControl: r.FlowControl, RNRRetryCount: r.RNRRetryCount, SRQ: r.SRQ,
		LocalCAGUID: p.cfg.CAGUID,
	}
	m.SetVendorID(r.ECE.Vendor)
	copy(m.PrivateData[:], r.Private)
	c.mra, c.answer = nil, nil
	p.move(c, RepSent)
	p.sendUntil(c, formatWith(r.ECE.Options, mad.AttrCMRep, c.tid, &m))
	return nil
}

// handleRTU is the answer to a REP of ours.
func (p *Port) handleRTU(env mad.Envelope, tid uint64, b []byte) {
	m := parse[mad.CMRTU](b)
	c := p.findPeer(m.RemoteCommID, m.LocalCommID)
	switch {
	case c == nil:
		// Given up here, while the other side believes that the connection stands.
		p.counters.Unmatched++
		p.send(env, format(mad.AttrCMRej, tid, &mad.CMRej{LocalCommID: m.RemoteCommID, RemoteCommID: m.LocalCommID,
			Message: mad.CMMessageOther, Reason: mad.RejInvalidCommID}))
	case awaitRTU.has(c.state):
		p.settle(c)
		p.move(c, StateEstablished)
		p.tell(c, Event{Kind: RTUReceived, From: env, Private: m.PrivateData[:], RTU: m})
	case c.state == Timewait && c.rejected:
		p.send(env, c.answer)
	default:
		p.counters.Duplicates++
	}
}

// Established says that something has arrived at the connection's queue pair: the other side's
// RTU may come later or was lost, but the connection stands (IBA 12.9.6).
func (p *Port) Established(now ib.Time, id ConnID) error {
	c, err := p.call("Established", id, awaitRTU)
	if err != nil {
		return err
	}
	p.advance(now)
	p.settle(c)
	p.move(c, StateEstablished)
	p.tell(c, Event{Kind: Established})
	return nil
}
