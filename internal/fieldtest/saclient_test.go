package fieldtest

import (
	"testing"

	"softib/driver/live"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// client is a small client of subnet administration on a host's port.
type client struct {
	w    *world
	s    *live.Session
	id   madrpc.AgentID
	node *topo.Node
	tid  uint64
}

func (w *world) client(name string) *client {
	w.Helper()
	c := &client{w: w, node: w.node(name)}
	var err error
	c.s, err = w.OpenMgmt(ref(c.node, 1))
	w.check(err)
	w.Cleanup(func() { c.s.Close() })
	c.id, err = c.s.Register(madrpc.Registration{Class: mad.ClassSA, ClassVersion: mad.SAVersion, RMPP: true,
		Methods: madrpc.MethodSet(mad.MethodReport), Name: "test"})
	w.check(err)
	return c
}

// appender is a record that can be written.
type appender interface{ Append([]byte) []byte }

// ask sends a request with a record, of which the mask says what is given, and returns the status and the first record
// of the answer.
func (c *client) ask(t testing.TB, m mad.Method, id mad.AttrID, mask uint64, rec appender) (mad.Status, []byte) {
	t.Helper()
	c.tid++
	h := mad.Header{BaseVersion: 1, MgmtClass: mad.ClassSA, ClassVersion: mad.SAVersion, Method: m,
		TransactionID: c.tid, AttributeID: id}
	msg := h.Append(nil)
	msg = append(msg, make([]byte, mad.SAHeaderOff-len(msg))...)
	msg = (&mad.SAHeader{ComponentMask: mask}).Append(msg)
	msg = rec.Append(msg)
	msg = append(msg, make([]byte, mad.Size-len(msg))...)
	env := mad.Envelope{LID: c.w.portInfo(c.node, 1).MasterSMLID, QPN: ib.QPNGSI, QKey: ib.QKeyGSI}
	c.w.check(c.s.Send(c.id, madrpc.Message{Env: env, Data: msg, Timeout: ib.Second, Retries: 3}))
	ctx, cancel := patient()
	defer cancel()
	for {
		d, err := c.s.Recv(ctx)
		c.w.check(err)
		switch d.Kind {
		case madrpc.Response:
			return mad.View(d.Data).Status(), d.Data[mad.SADataOff:]
		case madrpc.Unsolicited: // a report
		default:
			t.Fatalf("%v of attribute %#x: no answer (%v)", m, id, d.Kind)
		}
	}
}

// join makes the host a member of a group, which is made if the record has what that takes.
func (c *client) join(t testing.TB, r mad.MCMemberRecord, fields ...string) mad.MCMemberRecord {
	t.Helper()
	r.PortGID = gid(c.node, 1)
	st, data := c.ask(t, mad.MethodSet, mad.AttrMCMemberRecord,
		mask(mad.MCMemberRecordTable, append(fields, "MGID", "PortGID", "JoinState")...), &r)
	if st != mad.StatusOK {
		t.Fatalf("%s joins %v: %v", c.node.Name, r.MGID, st)
	}
	var got mad.MCMemberRecord
	_, err := got.Parse(data)
	c.w.check(err)
	return got
}

// mask is the components of some fields.
func mask(t *mad.SARecord, fields ...string) (m uint64) {
	for _, f := range fields {
		k := t.Component(f)
		if k == 0 {
			panic("no component " + f + " of " + t.Name)
		}
		m |= k
	}
	return m
}
