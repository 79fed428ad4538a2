package workload

import (
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
