package attach

import (
	"context"
	"fmt"

	"softib/node/cm"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/verbs"
	"softib/verbs/attach/proto"
)

// Conn is a connection that the fabric's connection manager has made, by the datagrams of IBA chapter 12.
type Conn struct {
	d      *Device
	number uint64
	said   chan *proto.Message // the answer to who has asked for it
	gone   chan struct{}       // closed when it is over
	over   bool
}

// Gone is closed when the connection is over: either side has ended it, or its process has ended.
func (c *Conn) Gone() <-chan struct{} { return c.gone }

// Close ends the connection. The queue pair stays.
func (c *Conn) Close() {
	d := c.d
	d.mu.Lock()
	d.forget(c)
	d.mu.Unlock()
	_ = d.conn.Send(&proto.Message{Closed: c.number})
}

// forget ends a connection here. The lock is held.
func (d *Device) forget(c *Conn) {
	if !c.over {
		c.over = true
		delete(d.conns, c.number)
		close(c.gone)
	}
}

// Request is somebody's wish for a connection.
type Request struct {
	// GID is the port that asks, and Private what it says.
	GID     ib.GID
	Private []byte

	conn  *Conn
	attrs [3]cm.QPAttr
}

// Listen has f called for each request for a service at a port, one at a time, until the device is closed. F must not
// wait long, and has to Accept or Reject.
func (d *Device) Listen(ctx context.Context, port ib.PortNum, service uint64, f func(*Request)) error {
	d.mu.Lock()
	d.asked++ // the number has to be known before the first request comes
	number := d.asked
	d.ears[number] = f
	d.mu.Unlock()
	m, err := d.callAs(ctx, number, &proto.Message{Listen: &proto.Listen{ID: number, Port: max(port, 1),
		ServiceID: service}})
	switch {
	case err != nil:
	case m.Listened == nil:
		err = proto.ErrMessage
	case m.Listened.Why != "":
		err = fmt.Errorf("%w: %s", ErrRefused, m.Listened.Why)
	}
	if err != nil {
		d.mu.Lock()
		delete(d.ears, number)
		d.mu.Unlock()
		return fmt.Errorf("attach: listening for service 0x%x: %w", service, err)
	}
	return nil
}

// Accept moves a queue pair to StateRTS, and says so.
func (r *Request) Accept(qp *verbs.QP, srq bool, private []byte) (*Conn, error) {
	if err := move(qp, &r.attrs); err != nil {
		r.Reject()
		return nil, err
	}
	err := r.conn.d.conn.Send(&proto.Message{Accept: &proto.Accept{Conn: r.conn.number, QPN: qp.Num(), SRQ: srq,
		Private: private}})
	return r.conn, err
}

// Reject refuses the connection.
func (r *Request) Reject() { r.conn.Close() }

// Connect asks the owner of a service for a connection, and moves a queue pair to StateRTS when it has accepted. It
// returns what the other side says.
func (d *Device) Connect(ctx context.Context, port ib.PortNum, path mad.PathRecord, service uint64, qp *verbs.QP,
	srq bool, private []byte) (*Conn, []byte, error) {
	c := &Conn{d: d, said: make(chan *proto.Message, 1), gone: make(chan struct{})}
	d.mu.Lock()
	d.asked++
	c.number = d.asked
	d.conns[c.number] = c
	d.mu.Unlock()
	fail := func(err error) (*Conn, []byte, error) {
		c.Close()
		return nil, nil, fmt.Errorf("attach: connecting to %v: %w", path.DGID, err)
	}
	err := d.conn.Send(&proto.Message{Connect: &proto.Connect{ID: c.number, Port: max(port, 1), Path: path,
		ServiceID: service, QPN: qp.Num(), SRQ: srq, Private: private}})
	if err != nil {
		return fail(err)
	}
	select {
	case m := <-c.said:
		if err := move(qp, &m.Accepted.Attrs); err != nil {
			return fail(err)
		}
		if err := d.conn.Send(&proto.Message{Ready: c.number}); err != nil {
			return fail(err)
		}
		return c, m.Accepted.Private, nil
	case <-c.gone:
		return fail(ErrRefused)
	case <-ctx.Done():
		return fail(ctx.Err())
	case <-d.gone:
		return fail(verbs.ErrClosed)
	}
}

// connection takes what is told of connections.
func (d *Device) connection(m *proto.Message) {
	d.mu.Lock()
	switch {
	case m.Requested != nil:
		q := m.Requested
		c := &Conn{d: d, number: q.Conn, gone: make(chan struct{})}
		d.conns[q.Conn] = c
		f := d.ears[q.Listen]
		d.mu.Unlock()
		r := &Request{GID: q.GID, Private: q.Private, conn: c, attrs: q.Attrs}
		if f == nil {
			go r.Reject()
			return
		}
		// What follows waits for the endpoint's lock, whose holder may wait for what comes after this message.
		go f(r)
		return
	case m.Accepted != nil:
		if c := d.conns[m.Accepted.Conn]; c != nil && c.said != nil {
			select {
			case c.said <- m:
			default:
			}
		}
	default:
		if c := d.conns[m.Closed]; c != nil {
			d.forget(c)
		}
	}
	d.mu.Unlock()
}

// move takes a queue pair from StateReset to StateRTS as the connection manager says.
func move(qp *verbs.QP, steps *[3]cm.QPAttr) error {
	for i := range steps {
		s := &steps[i]
		a := verbs.QPAttr{State: verbs.State(s.State), Access: verbs.Access(s.Access), PKeyIndex: s.PKeyIndex,
			Port: s.Port, AH: verbs.AHAttr(s.AH), PathMTU: s.PathMTU, DestQPN: s.DestQPN, RQPSN: s.RQPSN,
			SQPSN: s.SQPSN, MaxDestRD: s.MaxDestRD, MinRNRTimer: s.MinRNRTimer, Timeout: s.Timeout,
			RetryCnt: s.RetryCnt, RNRRetry: s.RNRRetry, MaxRDAtomic: s.MaxRDAtomic}
		if err := qp.Modify(a, attrMask(s.Mask)); err != nil {
			return err
		}
	}
	return nil
}

// attrMasks pairs libibverbs' bits, which the connection manager has, with the masks of package verbs.
var attrMasks = []struct {
	bit  cm.QPMask
	mask verbs.AttrMask
}{
	{cm.QPHasState, verbs.MaskState}, {cm.QPHasAccess, verbs.MaskAccess}, {cm.QPHasPKeyIndex, verbs.MaskPKeyIndex},
	{cm.QPHasPort, verbs.MaskPort}, {cm.QPHasAV, verbs.MaskAV}, {cm.QPHasPathMTU, verbs.MaskPathMTU},
	{cm.QPHasTimeout, verbs.MaskTimeout}, {cm.QPHasRetryCnt, verbs.MaskRetryCnt},
	{cm.QPHasRNRRetry, verbs.MaskRNRRetry}, {cm.QPHasRQPSN, verbs.MaskRQPSN},
	{cm.QPHasMaxRDAtomic, verbs.MaskMaxRDAtomic}, {cm.QPHasMinRNRTimer, verbs.MaskMinRNRTimer},
	{cm.QPHasSQPSN, verbs.MaskSQPSN}, {cm.QPHasMaxDestRD, verbs.MaskMaxDestRD}, {cm.QPHasDestQPN, verbs.MaskDestQPN},
}

func attrMask(m cm.QPMask) (out verbs.AttrMask) {
	for _, p := range attrMasks {
		if m&p.bit != 0 {
			out |= p.mask
		}
	}
	return out
}
