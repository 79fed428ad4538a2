package rdmacm

import (
	"fmt"
	"syscall"

	"softib/node/cm"
	"softib/proto/ib"
	"softib/proto/mad"
)

// transportOf is how the connection manager calls a type of queue pair.
func transportOf(qpType uint8) (cm.Transport, error) {
	switch qpType {
	case qptRC:
		return cm.RC, nil
	case qptUC:
		return cm.UC, nil
	case qptXRCSend, qptXRCRecv:
		return cm.XRC, nil
	}
	return 0, fmt.Errorf("rdmacm: queue pairs of type %d are not connected: %w", qpType, syscall.EINVAL)
}

// private is what a request carries: addresses first, unless they are of the IB family, and then the program's data.
func (d *ident) private(data []byte) []byte {
	if d.src.family == afIB {
		return data
	}
	b := make([]byte, ipHeadSize, ipHeadSize+len(data))
	putIPHead(b, &d.src, &d.dst)
	return append(b, data...)
}

// connect asks the other side for a connection, or for the queue pair of its datagram service.
func (d *ident) connect(c *connParam) error {
	if d.state != stRouteResolved {
		return d.bad("connecting")
	}
	path, err := d.cmPath()
	if err != nil {
		return err
	}
	d.qpn, d.srq = c.qpn&ib.QPNMask, c.srq != 0
	cfg, p := &d.ch.host.s.cfg, d.port
	now := p.session.Now()
	var id cm.ConnID
	if d.qpType == qptUD {
		if d.src.family == afIB {
			d.qkey = c.qkey
		}
		id, err = p.engine.SIDRRequest(now, cm.SIDRParams{
			Path: path, ServiceID: serviceID(d.space, &d.dst), Timeout: 4096 * ib.Nanosecond << cfg.responseTimeout,
			Retries: int(cfg.retries), Private: d.private(c.private),
		})
	} else {
		var t cm.Transport
		if t, err = transportOf(d.qpType); err != nil {
			return err
		}
		id, err = p.engine.Connect(now, cm.ReqParams{
			Primary: path, ServiceID: serviceID(d.space, &d.dst), Transport: t, QPN: d.qpn, StartingPSN: d.psn,
			SRQ:                d.srq,
			ResponderResources: c.responderResources, InitiatorDepth: c.initiatorDepth, FlowControl: c.flowControl != 0,
			RetryCount: min(c.retryCount, 7), RNRRetryCount: min(c.rnrRetryCount, 7),
			RemoteCMTimeout: cfg.responseTimeout, LocalCMTimeout: cfg.responseTimeout, MaxCMRetries: cfg.retries,
			ECE: c.ece, Private: d.private(c.private),
		})
	}
	if err != nil {
		return err
	}
	d.conn, d.hasConn = id, true
	p.conns[id] = d
	d.state = stConnect
	p.turn()
	return nil
}

// accept answers a request with parameters, or a reply without: then the connection stands.
func (d *ident) accept(c *connParam, uid uint64) error {
	if d.state != stConnect {
		return d.bad("accepting")
	}
	p, now := d.port, d.port.session.Now()
	given := c.valid != 0
	if given {
		d.qpn, d.srq = c.qpn&ib.QPNMask, c.srq != 0
	}
	var err error
	switch {
	case d.qpType == qptUD:
		r := cm.SIDRReplyParams{Status: mad.SIDROK, QPN: d.qpn}
		key := ib.QKey(0)
		if given {
			r.Private = c.private
			if d.src.family == afIB {
				key = c.qkey
			}
		}
		if err = d.setQKey(key); err == nil {
			r.QKey = d.qkey
			err = p.engine.SIDRReply(now, d.conn, r)
		}
	case given:
		err = p.engine.Accept(now, d.conn, cm.RepParams{
			QPN: d.qpn, StartingPSN: d.psn, SRQ: d.srq, ResponderResources: c.responderResources,
			InitiatorDepth: c.initiatorDepth,
			FlowControl:    c.flowControl != 0, RNRRetryCount: min(c.rnrRetryCount, 7), ECE: c.ece, Private: c.private,
		})
	default:
		err = p.engine.Ready(now, d.conn, nil)
	}
	if err != nil {
		_ = d.reject(0, nil)
		return err
	}
	if given {
		d.uid = uid
	}
	p.turn()
	return nil
}

// reject refuses a request or a reply. Reason 0 is the program's own, which private explains.
func (d *ident) reject(reason mad.CMReason, private []byte) error {
	if !d.hasConn {
		return d.bad("rejecting")
	}
	switch reason {
	case 0:
		reason = mad.RejConsumer
	case mad.RejConsumer, mad.RejVendorOption:
	default:
		return fmt.Errorf("rdmacm: rejecting for reason %d: %w", reason, syscall.EINVAL)
	}
	p, now := d.port, d.port.session.Now()
	var err error
	if d.qpType == qptUD {
		err = p.engine.SIDRReply(now, d.conn, cm.SIDRReplyParams{Status: mad.SIDRReject, Private: private})
	} else {
		err = p.engine.Reject(now, d.conn, reason, nil, private)
	}
	p.turn()
	return err
}

// disconnect ends the connection, or agrees to its end. That there is nothing to end is no error, as with Linux.
func (d *ident) disconnect() error {
	if !d.hasConn {
		return d.bad("disconnecting")
	}
	_ = d.port.engine.Disconnect(d.port.session.Now(), d.conn, nil)
	d.port.turn()
	return nil
}

// notify says that something happened to the ID's queue pair.
func (d *ident) notify(event uint32) error {
	const communicationEstablished = 4 // IBV_EVENT_COMM_EST
	if !d.hasConn || event != communicationEstablished {
		return d.bad("notifying")
	}
	if info, ok := d.port.engine.Info(d.conn); ok && info.State == cm.StateEstablished {
		return syscall.EISCONN
	}
	err := d.port.engine.Established(d.port.session.Now(), d.conn)
	d.port.turn()
	return err
}

// qpHasQKey is IBV_QP_QKEY.
const qpHasQKey cm.QPMask = 1 << 6

// qpAttr is what the program's queue pair has to be told on its way to a state.
func (d *ident) qpAttr(to cm.QPState) (a cm.QPAttr, err error) {
	if d.port == nil {
		return a, d.bad("asking for attributes")
	}
	if !d.hasConn || d.qpType == qptUD {
		ad, err := d.ch.adapter()
		if err != nil {
			return a, err
		}
		info := ad.port(d.port.num)
		if info == nil {
			return a, syscall.ENODEV
		}
		key, ok := info.keyIndex(d.key)
		if !ok {
			return a, syscall.EINVAL
		}
		a = cm.QPAttr{Mask: cm.QPHasState | cm.QPHasPKeyIndex | cm.QPHasPort, State: to, PKeyIndex: key,
			Port: info.Shown}
		if d.qpType == qptUD {
			a.Mask |= qpHasQKey
			return a, d.setQKey(0)
		}
		a.Mask |= cm.QPHasAccess
		return a, nil
	}
	if a, err = d.port.engine.QPAttr(d.conn, to); err != nil {
		return a, err
	}
	if to == cm.QPRTR {
		// a program that accepts moves its queue pair before it tells us, and the engine is not told the number until
		// then
		a.RQPSN = d.psn
	}
	if to == cm.QPRTS && d.ackTimeout != 0 {
		a.Timeout = d.ackTimeout
		a.Mask |= cm.QPHasTimeout
	}
	return a, nil
}

// appendQPAttr writes struct ib_uverbs_qp_attr.
func appendQPAttr(b []byte, a *cm.QPAttr, qkey ib.QKey) []byte {
	at := len(b)
	b = append(b, make([]byte, qpAttrSize)...)
	p := b[at:]
	for i, v := range []uint32{
		uint32(a.Mask), uint32(a.State), 0, uint32(a.PathMTU), uint32(a.PathMigState), uint32(qkey), uint32(a.RQPSN),
		uint32(a.SQPSN), uint32(a.DestQPN), a.Access,
	} {
		native.PutUint32(p[4*i:], v)
	}
	putAH(p[40:], &a.AH)
	putAH(p[72:], &a.AltAH)
	native.PutUint16(p[124:], a.PKeyIndex)
	native.PutUint16(p[126:], a.AltPKeyIndex)
	p[130], p[131], p[132], p[133] = a.MaxRDAtomic, a.MaxDestRD, a.MinRNRTimer, byte(a.Port)
	p[134], p[135], p[136], p[137], p[138] = a.Timeout, a.RetryCnt, a.RNRRetry, byte(a.AltPort), a.AltTimeout
	return b
}
