package sm

import (
	"errors"
	"fmt"

	"softib/ib"
	"softib/mad"
	"softib/topo"
)

// Fabric takes management datagrams to the nodes of a graph.
type Fabric interface {
	// SMP hands a request to the agent of a node, by its index in the graph, as
	// if it had come in by inPort (0 at a switch: from the switch itself). The
	// answer is in resp; false means that there is none.
	SMP(node int, inPort ib.PortNum, req, resp *[mad.Size]byte) bool
}

// Causes of a MADError.
var (
	ErrNoReply = errors.New("no reply")
	ErrStatus  = errors.New("status is not OK")
	ErrReply   = errors.New("reply does not answer the request")
)

// MADError is a request that failed.
type MADError struct {
	Node     string
	Method   mad.Method
	Attr     mad.AttrID
	Modifier uint32
	Status   mad.Status
	Err      error
}

func (e *MADError) Error() string {
	s := fmt.Sprintf("sm: %s: %v(%s, 0x%x): ", e.Node, e.Method, mad.AttrName(mad.ClassSMLID, e.Attr), e.Modifier)
	switch e.Err {
	case ErrNoReply:
		return s + "no reply: is the node up, and its M_Key 0?"
	case ErrStatus:
		return s + "status " + e.Status.String() + ": want OK"
	}
	return s + e.Err.Error()
}

// Unwrap is the cause.
func (e *MADError) Unwrap() error { return e.Err }

// client makes requests and checks the answers.
type client struct {
	f         Fabric
	g         *topo.Graph
	tid       uint64
	req, resp [mad.Size]byte
}

type appender interface{ Append([]byte) []byte }

type parser interface {
	Parse([]byte) (int, error)
}

// call makes one request; the attribute of the answer is in c.resp until the
// next one.
func (c *client) call(m mad.Method, node int, port ib.PortNum, attr mad.AttrID, mod uint32, a appender) error {
	c.tid++
	h := mad.Header{
		BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassSMLID, ClassVersion: 1, Method: m,
		TransactionID: c.tid, AttributeID: attr, AttributeModifier: mod,
	}
	clear(c.req[:])
	h.Append(c.req[:0])
	if a != nil {
		a.Append(c.req[mad.SMPDataOff:mad.SMPDataOff])
	}
	fail := func(s mad.Status, err error) error {
		return &MADError{c.g.Nodes[node].Name, m, attr, mod, s, err}
	}
	if !c.f.SMP(node, port, &c.req, &c.resp) {
		return fail(0, ErrNoReply)
	}
	v := mad.View(c.resp[:])
	if v.Method() != mad.MethodGetResp || v.TID() != c.tid || v.AttrID() != attr || v.AttrMod() != mod {
		return fail(0, ErrReply)
	}
	if s := v.Status(); s != mad.StatusOK {
		return fail(s, ErrStatus)
	}
	return nil
}

// get reads an attribute.
func (c *client) get(node int, port ib.PortNum, attr mad.AttrID, mod uint32, into parser) error {
	if err := c.call(mad.MethodGet, node, port, attr, mod, nil); err != nil {
		return err
	}
	_, err := into.Parse(c.resp[mad.SMPDataOff:][:mad.SMPDataLen])
	return err
}

// set writes an attribute.
func (c *client) set(node int, port ib.PortNum, attr mad.AttrID, mod uint32, a appender) error {
	return c.call(mad.MethodSet, node, port, attr, mod, a)
}
