package rdmacm

import (
	"slices"
	"syscall"

	"softib/node/cm"
	"softib/proto/ib"
	"softib/proto/mad"
)

// eventKind is enum rdma_cm_event_type.
type eventKind uint32

const (
	evtAddrResolved    eventKind = 0
	evtAddrError       eventKind = 1
	evtRouteResolved   eventKind = 2
	evtRouteError      eventKind = 3
	evtConnectRequest  eventKind = 4
	evtConnectResponse eventKind = 5
	evtUnreachable     eventKind = 7
	evtRejected        eventKind = 8
	evtEstablished     eventKind = 9
	evtDisconnected    eventKind = 10
	evtMulticastJoin   eventKind = 12
	evtMulticastError  eventKind = 13
	evtTimewaitExit    eventKind = 15
)

// connParam is struct rdma_ucm_conn_param.
type connParam struct {
	qpn                ib.QPN
	qkey               ib.QKey
	private            []byte // at most privateMax
	srq                uint8
	responderResources uint8
	initiatorDepth     uint8
	flowControl        uint8
	retryCount         uint8
	rnrRetryCount      uint8
	valid              uint8
	ece                cm.ECE // after the struct
}

// parseConnParam reads the parameters of CONNECT and ACCEPT; private is a part of b. Its length is a byte, so it fits.
func parseConnParam(b []byte) connParam {
	return connParam{
		qpn: ib.QPN(native.Uint32(b)), qkey: ib.QKey(native.Uint32(b[4:])), private: b[8 : 8+int(b[264])],
		srq: b[265], responderResources: b[266], initiatorDepth: b[267], flowControl: b[268], retryCount: b[269],
		rnrRetryCount: b[270], valid: b[271],
	}
}

func (c *connParam) put(b []byte) {
	native.PutUint32(b, uint32(c.qpn))
	native.PutUint32(b[4:], uint32(c.qkey))
	b[264] = byte(copy(b[8:8+privateMax-1], c.private))
	b[265], b[266], b[267], b[268], b[269], b[270], b[271] = c.srq, c.responderResources, c.initiatorDepth,
		c.flowControl, c.retryCount, c.rnrRetryCount, c.valid
}

// parseECE reads struct rdma_ucm_ece. A vendor's ID has 24 bits on the wire.
func parseECE(b []byte) cm.ECE {
	return cm.ECE{Vendor: native.Uint32(b) & 0xFFFFFF, Options: native.Uint32(b[4:])}
}

func putECE(b []byte, e cm.ECE) {
	native.PutUint32(b, e.Vendor)
	native.PutUint32(b[4:], e.Options)
}

// udParam is struct rdma_ucm_ud_param.
type udParam struct {
	qpn     ib.QPN
	qkey    ib.QKey
	ah      cm.AHAttr
	private []byte
}

func (u *udParam) put(b []byte) {
	native.PutUint32(b, uint32(u.qpn))
	native.PutUint32(b[4:], uint32(u.qkey))
	putAH(b[8:], &u.ah)
	b[296] = byte(copy(b[40:40+privateMax-1], u.private))
}

// putAH writes struct ib_uverbs_ah_attr.
func putAH(b []byte, a *cm.AHAttr) {
	copy(b, a.DGID[:])
	native.PutUint32(b[16:], a.FlowLabel)
	b[20], b[21], b[22] = a.SGIDIndex, a.HopLimit, a.TClass
	native.PutUint16(b[24:], uint16(a.DLID))
	b[26], b[27], b[28], b[29], b[30] = byte(a.SL), a.SrcPath, a.StaticRate, flag(a.IsGlobal), byte(a.Port)
}

func flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// event makes an event of the ID.
func (d *ident) event(k eventKind, status int32) *event {
	e := &event{about: d}
	native.PutUint64(e.rec[evUID:], d.uid)
	native.PutUint32(e.rec[evID:], d.number)
	native.PutUint32(e.rec[evEvent:], uint32(k))
	native.PutUint32(e.rec[evStatus:], uint32(status))
	return e
}

// tell queues an event that has no parameters.
func (d *ident) tell(k eventKind, status int32) { d.send(d.event(k, status)) }

// send queues an event. An ID that the program has not accepted yet has none: the accepting will fail.
func (d *ident) send(e *event) {
	if d.uid != 0 {
		d.ch.push(e)
	}
}

// happened passes on what the connection manager tells.
func (p *endPort) happened(e *cm.Event) {
	switch e.Kind {
	case cm.ReqReceived, cm.SIDRReqReceived:
		p.requested(e)
		return
	case cm.MRAReceived:
		return
	}
	if c := p.outside[e.ID]; c != nil {
		c.happened(e)
		return
	}
	d := p.conns[e.ID]
	if d == nil {
		return
	}
	if want := stConnect; e.Kind == cm.TimewaitExit {
		if d.state == stDisconnect {
			d.tell(evtTimewaitExit, 0)
		}
		return
	} else if d.state != want {
		return
	}
	switch e.Kind {
	case cm.ReqError, cm.RepError, cm.SIDRReqError:
		d.tell(evtUnreachable, -int32(syscall.ETIMEDOUT))
	case cm.RepReceived:
		// The program may take its time; only an impatient peer is told so.
		_ = p.engine.DelayRepeated(e.ID, mraTimeout, nil)
		out := d.event(evtConnectResponse, 0)
		info, _ := p.engine.Info(e.ID)
		(&connParam{
			qpn: info.RemoteQPN, private: e.Private, srq: flag(e.Rep.SRQ), responderResources: e.Rep.InitiatorDepth,
			initiatorDepth: e.Rep.ResponderResources, flowControl: flag(e.Rep.FlowControl),
			rnrRetryCount: e.Rep.RNRRetryCount,
		}).put(out.rec[evParam:])
		putECE(out.rec[evECE:], e.ECE)
		d.send(out)
	case cm.RTUReceived, cm.Established:
		d.tell(evtEstablished, 0)
	case cm.DReqReceived, cm.DRepReceived:
		d.state = stDisconnect
		d.tell(evtDisconnected, 0)
	case cm.DReqError:
		d.state = stDisconnect
		d.tell(evtDisconnected, -int32(syscall.ETIMEDOUT))
	case cm.RejReceived:
		out := d.event(evtRejected, int32(e.Rej.Reason))
		(&connParam{private: e.Private}).put(out.rec[evParam:])
		d.send(out)
	case cm.SIDRRepReceived:
		d.looked(e)
	}
}

// mraTimeout is how long a program may take to answer a request or a reply: 4.096 µs · 2^n, more than a minute.
const mraTimeout = 24

// looked takes the answer to a look-up of a datagram service.
func (d *ident) looked(e *cm.Event) {
	param := udParam{private: e.Private}
	kind, status := evtEstablished, int32(0)
	switch {
	case e.SIDRRep.Status != mad.SIDROK:
		kind, status = evtUnreachable, int32(e.SIDRRep.Status)
	case d.setQKey(e.SIDRRep.QKey) != nil:
		kind, status = evtAddrError, -int32(syscall.EINVAL)
	default:
		param.qpn, param.qkey, param.ah = e.SIDRRep.QPN, e.SIDRRep.QKey, d.pathAH()
	}
	out := d.event(kind, status)
	param.put(out.rec[evParam:])
	d.send(out)
}

// setQKey settles the ID's key for datagrams; 0 stands for the port space's own.
func (d *ident) setQKey(k ib.QKey) error {
	if k == 0 {
		if d.qkey == 0 {
			d.qkey = udpQKey
			if d.space == psIPoIB {
				d.qkey = ipoibQKey
			}
		}
		return nil
	}
	if d.qkey != 0 && d.qkey != k {
		return syscall.EINVAL
	}
	d.qkey = k
	return nil
}

// pathAH is the address of what the ID's path leads to.
func (d *ident) pathAH() cm.AHAttr {
	r := &d.path
	a := cm.AHAttr{DLID: r.DLID, SL: r.SL, StaticRate: uint8(r.Rate), Port: d.port.shown}
	if p, err := d.cmPath(); err == nil {
		a.SrcPath, a.SGIDIndex = p.PathBits, p.GIDIndex
	}
	if r.HopLimit > 1 {
		a.IsGlobal, a.DGID, a.FlowLabel, a.HopLimit, a.TClass = true, r.DGID, r.FlowLabel, r.HopLimit, r.TClass
	}
	return a
}

// requested makes a new ID of a request and tells the listener.
func (p *endPort) requested(e *cm.Event) {
	now := p.session.Now()
	info, ok := p.engine.Info(e.ID)
	if !ok {
		return
	}
	if l := p.services[info.ServiceID]; l != nil {
		l.requested(p, e, &info)
		return
	}
	qpType := uint8(qptUD)
	if !info.SIDR {
		qpType = map[cm.Transport]uint8{cm.RC: qptRC, cm.UC: qptUC, cm.XRC: qptXRCRecv}[info.Transport]
	}
	l, src, dst, head := p.listener(info.ServiceID, e.Private, info.Primary.SGID, qpType)
	if l == nil {
		if info.SIDR {
			_ = p.engine.SIDRReply(now, e.ID, cm.SIDRReplyParams{Status: mad.SIDRUnsupported})
		} else {
			_ = p.engine.Reject(now, e.ID, mad.RejInvalidServiceID, nil, nil)
		}
		_ = p.engine.Destroy(now, e.ID)
		return
	}
	if l.unread >= l.backlog {
		l.ch.settle()
	}
	if l.unread >= l.backlog {
		_ = p.engine.Destroy(now, e.ID)
		return
	}
	d := l.ch.newIdent(0, l.space, qpType)
	d.state, d.port, d.conn, d.hasConn = stConnect, p, e.ID, true
	d.afOnly, d.tos, d.tosSet = l.afOnly, l.tos, l.tosSet
	p.conns[e.ID] = d
	private := e.Private
	if head {
		private = private[ipHeadSize:]
		// Seen from here the asker is the destination.
		d.src, d.dst = dst, src
		d.src.setPort(uint16(info.ServiceID))
	} else {
		d.src = sockaddr{family: afIB, gid: info.Primary.SGID, sid: info.ServiceID, mask: ^uint64(0),
			pkey: info.Primary.PKey}
		d.dst = sockaddr{family: afIB, gid: info.Primary.DGID, pkey: info.Primary.PKey}
	}
	d.gid, d.dgid, d.key = info.Primary.SGID, info.Primary.DGID, info.Primary.PKey
	if a, err := p.h.adapter(); err == nil && (d.gid.IsZero() || d.key == 0) {
		if mine := a.port(p.num); mine != nil { // a look-up names no path
			d.gid, d.key = mine.GID, mine.homeKey()
			if g := d.src.networkGID(); mine.Ethernet != nil && slices.Contains(mine.GIDs, g) {
				d.gid = g
			}
		}
	}
	d.path, d.hasPath = info.Primary.PathRecord, !info.SIDR
	out := l.event(evtConnectRequest, 0)
	native.PutUint32(out.rec[evID:], d.number)
	out.fresh = d
	if info.SIDR {
		(&udParam{private: private}).put(out.rec[evParam:])
	} else {
		_ = p.engine.DelayRepeated(e.ID, mraTimeout, nil)
		(&connParam{
			qpn: info.RemoteQPN, private: private, srq: flag(e.Req.SRQ), responderResources: e.Req.InitiatorDepth,
			initiatorDepth: e.Req.ResponderResources,
			flowControl:    flag(e.Req.FlowControl), retryCount: e.Req.RetryCount, rnrRetryCount: e.Req.RNRRetryCount,
		}).put(out.rec[evParam:])
		putECE(out.rec[evECE:], e.ECE)
	}
	l.unread++
	l.ch.push(out)
}
