package workload

import (
	"softib/driver/sim"
	"softib/node/hca"
	"softib/node/ibswitch"
	"softib/proto/ib"
	"softib/proto/topo"
)

// Fabric is what a Runner runs on: hosts in virtual time, and how their programs reach their adapters.
type Fabric interface {
	Now() ib.Time
	At(t ib.Time, id uint64)
	Graph() *topo.Graph
	NumHosts() int
	HostNode(host int) *topo.Node
	LID(topo.PortRef) ib.LID
	Switch(node int) *ibswitch.Switch
	// SetPKeys writes the partition table of a host's port, before anything else is done with it.
	SetPKeys(host int, keys []ib.PKey)

	// Engine is a host's adapter; nil if it is something else. Use is the same for a program's call of a verb, and
	// PostSend is one: Outstanding counts what was posted and has not completed. After these Wake is called.
	Engine(host int) *hca.HCA
	Use(host int) *hca.HCA
	PostSend(host int, q *hca.QP, wr *hca.SendWR) error
	Outstanding(host int, q *hca.QP) int
	Wake(host int)
	// Still reports whether a host's program does nothing at this moment. When it does again it is reported.
	Still(host int) bool
	// Arm asks for an event of a queue, if the program wants one, Poll takes completions, PollEvent what is
	// asynchronous.
	Arm(host int, cq *hca.CQ)
	Poll(host int, cq *hca.CQ, out []hca.WC) int
	PollEvent(host int) (hca.Event, bool)
}

// Bare is a simulation whose adapters are driven by the simulation itself: programs do nothing but post and poll, in no
// time.
type Bare struct{ *sim.Sim }

// Engine is a host's adapter.
func (b Bare) Engine(host int) *hca.HCA {
	h, _ := b.Host(host).(*hca.HCA)
	return h
}

// SetPKeys writes the adapter's table.
func (b Bare) SetPKeys(host int, keys []ib.PKey) {
	p := *b.Engine(host).Port(1)
	p.PKeys = keys
	b.Engine(host).SetPort(1, p)
}

// Use is the adapter as it is.
func (b Bare) Use(host int) *hca.HCA { return b.Engine(host) }

// PostSend posts a request.
func (b Bare) PostSend(host int, q *hca.QP, wr *hca.SendWR) error {
	return b.Engine(host).PostSend(q, wr)
}

// Outstanding is what the adapter says.
func (b Bare) Outstanding(_ int, q *hca.QP) int { return q.Outstanding() }

// Still is never so.
func (b Bare) Still(int) bool { return false }

// Arm asks for an event.
func (b Bare) Arm(_ int, cq *hca.CQ) { cq.ReqNotify(false) }

// Poll takes completions.
func (b Bare) Poll(_ int, cq *hca.CQ, out []hca.WC) int { return cq.Poll(out) }

// PollEvent takes an event.
func (b Bare) PollEvent(host int) (hca.Event, bool) { return b.Engine(host).PollEvent() }
