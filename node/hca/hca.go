package hca

import (
	"slices"

	"softib/node/agent"
	"softib/proto/ib"
	"softib/proto/wire"
)

// Config is what an adapter is made of.
type Config struct {
	NodeGUID ib.GUID
	Ports    int
	PortGUID []ib.GUID // one a port; derived from NodeGUID where missing
	Limits   Limits

	// FirstQPN is the first queue pair number given out, 2 at least. All lie in
	// [FirstQPN, FirstQPN+Limits.MaxQP), so that adapters can share a port.
	FirstQPN ib.QPN
	// ByRefMin is the payload size from which an RC packet refers to the
	// sender's registered memory instead of carrying a copy; 0 copies always.
	// A driver that sets it delivers such a packet before the request can
	// complete, or never.
	ByRefMin int
	// MaxBundle is how many packets of one message Emit may put into one
	// wire.Packet, which then stands for all of them; 0 and 1 make every packet
	// stand for itself, as it must for a wire.
	MaxBundle int
	// CatchUp is how much of the time that a queue pair had to wait for its static rate may be made up
	// for by sending faster, because the driver was late.
	CatchUp ib.Time
	// Reorder is how many packets of a queue pair the adapter keeps that came before their turn, because switches
	// choose the ways of packets; 0 keeps none, as the standard has it. ReorderTime is how long it waits for the others
	// before they count as lost.
	Reorder     int
	ReorderTime ib.Time
	// CNP: who sent a marked packet that is not acknowledged is told by a packet of its own (IBA A10.3.2). Without it
	// the next packet tells, of a connected queue pair, and nobody hears of datagrams.
	CNP bool
	// RoCE makes it an adapter of Ethernet.
	RoCE RoCE
	// ReadTurns makes a READ or atomic, and the answer to one, end a queue pair's turn if others have something to
	// send.
	ReadTurns bool
	// KeySeed varies the low byte of memory keys.
	KeySeed uint8
}

// Limits are the device's capabilities, as query_device reports them.
type Limits struct {
	MaxQP, MaxCQ, MaxMR, MaxPD, MaxSRQ, MaxAH, MaxMW int
	MaxQPWR, MaxSGE, MaxCQE, MaxSRQWR, MaxInline     int
	MaxRDAtomic, MaxInitRDAtomic                     int
	MaxMcastGrp, MaxMcastQPAttach                    int
	MaxMRSize                                        uint64
	MaxMsgSize                                       uint32
}

// DefaultLimits is a generous adapter.
func DefaultLimits() Limits {
	return Limits{
		MaxQP: 1 << 18, MaxCQ: 1 << 16, MaxMR: 1 << 20, MaxPD: 1 << 15, MaxSRQ: 1 << 16, MaxAH: 1 << 20, MaxMW: 1 << 20,
		MaxQPWR: 1 << 15, MaxSGE: 32, MaxCQE: 1 << 22, MaxSRQWR: 1 << 15, MaxInline: 1024,
		MaxRDAtomic: 128, MaxInitRDAtomic: 128,
		MaxMcastGrp: 1 << 13, MaxMcastQPAttach: 256,
		MaxMRSize: 1 << 46, MaxMsgSize: 1 << 31,
	}
}

// Port is the transport's view of a port: what management wrote there.
type Port struct {
	GUID  ib.GUID
	State ib.PortState
	LID   ib.LID
	LMC   uint8
	SMLID ib.LID
	SMSL  ib.SL
	MTU   ib.MTU
	Rate  ib.LinkRate // of its link; zero if nobody says
	GIDs  []ib.GID
	PKeys []ib.PKey
	// PKeyViolations and QKeyViolations are PortInfo's counters.
	PKeyViolations, QKeyViolations uint16
	// Congestion is how the port slows down when it is told to; nil does not. What it points to does not change.
	Congestion *Congestion `json:",omitempty"`
	// CableRate is how many bits the cable takes in a second where that is not the link's own rate; 0 where it is.
	CableRate int64 `json:",omitempty"`
}

// Drop says why a packet that reached the adapter was not used.
type Drop uint8

// Reasons for dropping, in the order of IBA figure 80's checks.
const (
	DropNone Drop = iota
	DropPortDown
	DropDLID
	DropOpcode
	DropNoQP
	DropService
	DropState
	DropAddress
	DropPKey
	DropQKey
	DropGRH
	DropNoMcast
	DropNoRecv
	DropLength
	DropDuplicate
	DropOutOfOrder
	DropStaleAck
	DropUCBroken
	DropAccess
	DropFar
	NumDrop
)

var dropNames = [NumDrop]string{
	"none", "port down", "DLID is not ours", "unknown opcode", "no such QP", "service differs from QP's",
	"QP not ready", "source is not the QP's peer", "P_Key", "Q_Key", "GRH", "no QP in the group",
	"no receive posted", "length", "duplicate", "out of order", "stale acknowledgement",
	"message already broken", "access denied", "payload's owner is gone",
}

func (d Drop) String() string {
	if d < NumDrop {
		return dropNames[d]
	}
	return "drop?"
}

// Stats counts what an adapter did, since it was made. It is nothing but 64-bit
// counters, so that a driver can keep it as words.
type Stats struct {
	TxPackets, RxPackets  uint64
	TxBytes, RxBytes      uint64 // payload
	Drops                 [NumDrop]uint64
	Retransmits           uint64 // packets sent again
	Timeouts              uint64
	SeqNAKsRcvd, RNRNAKs  uint64 // received by requesters
	SeqNAKsSent, RNRsSent uint64 // sent by responders
	AcksSent              uint64
	Duplicates            uint64 // duplicate requests answered
	Completions           uint64 // committed to any completion queue
	CompletionErrors      uint64
	PathMigrations        uint64
	// By status: of send requests, and of receives. Successes are not counted.
	SendErrors, RecvErrors [NumWCStatus]uint64
	// Requests that were executed, writes by message.
	WritesRcvd, ReadsRcvd, AtomicsRcvd uint64
	OutOfSequence                      uint64 // requests behind a gap
	FECNs, BECNs                       uint64 // packets that said so
	CNPsSent                           uint64
	Reordered                          uint64 // packets that were kept until it was their turn
	ImpliedNAKs                        uint64 // gaps that requesters found in responses (IBA 9.7.5.2.4)
	// Sent by responders, each the end of a connection.
	InvReqNAKsSent, AccessNAKsSent, OpNAKsSent uint64
	// IP over InfiniBand, which is in the counters above too: datagrams with its Q_Key, and what networks' queue pairs
	// carry.
	IPoIBTxPackets, IPoIBRxPackets uint64
	IPoIBTxBytes, IPoIBRxBytes     uint64
}

// QPCounts is how many queue pairs there are, by type and state.
type QPCounts [NumQPType][NumState]uint32

// Total is how many there are of all kinds.
func (c *QPCounts) Total() int {
	n := uint32(0)
	for t := range c {
		for _, k := range c[t] {
			n += k
		}
	}
	return int(n)
}

// HCA is one host channel adapter.
type HCA struct {
	_ cacheLine

	ports  []Port // index 0 unused
	qps    []*QP  // by number - FirstQPN
	ready  qpList
	send   Send // see NextSend
	keys   keyTable
	timers timerHeap
	timed  ib.Time // when a timer was last started
	events eventQueue
	news   []*CQ   // watched queues with completions that the driver has not been told of
	now    ib.Time // as last told
	// aborted are queue pairs with requests that were given up while packets by reference may be on their way.
	aborted []*QP
	// What the last RDMA WRITE was granted, and whether anything was withdrawn; see Grant.
	withdrawn bool
	wroteBy   ib.QPN
	wroteTo   *region

	Stats Stats

	qpCounts QPCounts

	cfg     Config
	special [2]*QP
	qpFree  []ib.QPN
	srqs    []*SRQ // by number
	npd     int
	ncq     int
	nah     int
	cqSeq   uint32
	pdSeq   uint32
	xrcds   int
	mcast   []mcastGroup
	// mcastChanges counts how often there was another group, or one less.
	mcastChanges uint64

	earlyFree []*earlyPacket
	cc        []*congestion // by port; nil if none slows down
	told      []Told        // by port; nil until somebody is

	violations []agent.Notice // packets with wrong keys, the first few

	_ cacheLine
}

// New makes an adapter whose ports are down and have no addresses.
func New(cfg Config) *HCA {
	if cfg.Limits == (Limits{}) {
		cfg.Limits = DefaultLimits()
	}
	if cfg.Ports == 0 {
		cfg.Ports = 1
	}
	if cfg.FirstQPN < 2 {
		cfg.FirstQPN = 2
	}
	// The last number of all stands for multicast (IBA 9.2.4).
	cfg.Limits.MaxQP = min(cfg.Limits.MaxQP, max(0, int(ib.QPNMulticast)-int(cfg.FirstQPN)))
	cfg.MaxBundle = min(cfg.MaxBundle, 0xFFFF) // what wire.Packet.Count holds
	if cfg.RoCE.On {
		cfg.MaxBundle = 0 // packets are lost one by one
		cfg.CNP = false   // which is DCQCN's there
		cfg.RoCE.DCQCN.setDefaults()
		if s := &cfg.RoCE.Selective; s.On {
			s.setDefaults()
			cfg.Reorder, cfg.ReorderTime = s.Window, ib.Never
		}
	}
	h := &HCA{cfg: cfg, ports: make([]Port, cfg.Ports+1)}
	h.keys.seed = cfg.KeySeed
	for i := 1; i <= cfg.Ports; i++ {
		g := cfg.NodeGUID + ib.GUID(i)
		if i <= len(cfg.PortGUID) {
			g = cfg.PortGUID[i-1]
		}
		h.ports[i] = Port{
			GUID: g, State: ib.PortDown, MTU: ib.MTU4096,
			GIDs:  []ib.GID{ib.MakeGID(ib.DefaultGIDPrefix, g)},
			PKeys: []ib.PKey{ib.PKeyDefault},
		}
	}
	return h
}

// Config is what the adapter was made with.
func (h *HCA) Config() Config { return h.cfg }

// Limits are the device's capabilities.
func (h *HCA) Limits() Limits { return h.cfg.Limits }

// NumPorts counts the ports.
func (h *HCA) NumPorts() int { return len(h.ports) - 1 }

// Port is port n, from 1, or nil.
func (h *HCA) Port(n ib.PortNum) *Port {
	if int(n) < 1 || int(n) >= len(h.ports) {
		return nil
	}
	return &h.ports[n]
}

// SetPort replaces what management wrote on port n, and raises the events
// that the differences call for.
func (h *HCA) SetPort(n ib.PortNum, p Port) {
	old := h.ports[n]
	h.ports[n] = p
	h.withdrawn = true
	ev := func(t EventType) { h.events.push(Event{Type: t, Port: n}) }
	switch {
	case old.State != ib.PortActive && p.State == ib.PortActive:
		ev(EventPortActive)
	case old.State == ib.PortActive && p.State != ib.PortActive:
		ev(EventPortErr)
	}
	if old.LID != p.LID || old.LMC != p.LMC {
		ev(EventLIDChange)
	}
	if old.SMLID != p.SMLID {
		ev(EventSMChange)
	}
	if !equal(old.PKeys, p.PKeys) {
		ev(EventPKeyChange)
	}
	if !equal(old.GIDs, p.GIDs) {
		ev(EventGIDChange)
	}
	if a, b := old.Congestion, p.Congestion; a != b && (a == nil || b == nil || *a != *b) {
		h.newCongestion(n)
	}
	for _, list := range [][]*QP{h.special[:], h.qps} {
		for _, q := range list {
			if q != nil && q.attr.Port == n {
				q.refreshPath()
			}
		}
	}
}

func equal[T comparable](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// Reregister raises the event by which the subnet manager asks clients to
// join their groups again.
func (h *HCA) Reregister(n ib.PortNum) {
	h.events.push(Event{Type: EventClientReregister, Port: n})
}

// Fail tells every user that the device is gone and moves every queue pair
// to the error state.
func (h *HCA) Fail() {
	for _, list := range [][]*QP{h.special[:], h.qps} {
		for _, q := range list {
			if q != nil && q.state != StateReset {
				q.toError()
			}
		}
	}
	h.events.push(Event{Type: EventDeviceFatal})
}

// ownsLID reports whether a unicast DLID is one of the port's addresses.
func (p *Port) ownsLID(l ib.LID) bool {
	return p.LID != 0 && l>>p.LMC == p.LID>>p.LMC
}

// noPKey is the index of a P_Key that is not in the table.
const noPKey = 0xFFFF

// pkeyIndex is the index of the port's P_Key that may talk to k, or noPKey.
func (p *Port) pkeyIndex(k ib.PKey) uint16 {
	for i, own := range p.PKeys {
		if own.Matches(k) {
			return uint16(i)
		}
	}
	return noPKey
}

// TakeAborted names, once, the queue pairs that gave requests up whose packets may still refer to the program's memory.
// The driver must see to it that nobody follows such a reference before the program learns of the end.
func (h *HCA) TakeAborted() []*QP {
	a := h.aborted
	h.aborted = nil
	return a
}

func (h *HCA) abort(q *QP) {
	if !slices.Contains(h.aborted, q) {
		h.aborted = append(h.aborted, q)
	}
}

// QPs are the queue pairs, by number, with nil where there is none; the special ones are not among them.
func (h *HCA) QPs() []*QP { return h.qps }

// qp finds a queue pair by number.
func (h *HCA) qp(n ib.QPN) *QP {
	if n < 2 {
		return h.special[n]
	}
	i := int(n) - int(h.cfg.FirstQPN)
	if i < 0 || i >= len(h.qps) {
		return nil
	}
	return h.qps[i]
}

// QPCounts is how many queue pairs there are now.
func (h *HCA) QPCounts() QPCounts { return h.qpCounts }

// QP finds a queue pair by number, nil if there is none.
func (h *HCA) QP(n ib.QPN) *QP { return h.qp(n) }

func (h *HCA) drop(d Drop) { h.Stats.Drops[d]++ }

// HandlePacket takes a packet that arrived at a port. The payload is copied
// before it returns, so p may be reused. If it lies in another process that
// turns out to be gone, the packet counts as lost.
func (h *HCA) HandlePacket(now ib.Time, port ib.PortNum, p *wire.Packet) {
	h.now = now
	h.Stats.RxPackets++
	if p.Count > 1 {
		h.Stats.RxPackets += uint64(p.Count) - 1
	}
	h.Stats.RxBytes += uint64(p.PayloadLen())
	info := p.BTH.Opcode.Info()
	if !info.Valid() || p.LRH.LNH < wire.LNHLocal {
		h.drop(DropOpcode)
		return
	}
	if p.BTH.DestQP == ib.QPNMulticast {
		h.handleMulticast(now, port, p)
		return
	}
	q := h.qp(p.BTH.DestQP)
	if q == nil {
		h.drop(DropNoQP)
		return
	}
	if p.Far != nil && p.Far == wire.Source(wire.Placed{}) {
		q.placed(p)
		return
	}
	if d := q.checkHeader(port, p); d != DropNone {
		h.drop(d)
		return
	}
	if q.ipoib && !q.isUD() { // a datagram counts where it is received
		h.Stats.IPoIBRxPackets += max(uint64(p.Count), 1)
		h.Stats.IPoIBRxBytes += uint64(p.PayloadLen())
	}
	if p.BTH.FECN || p.BTH.BECN {
		q.noteCongestion(now, port, p)
		if plantDeaf && p.BTH.BECN || info.Kind == wire.KindCNP {
			return
		}
	}
	switch {
	case q.isUD():
		q.receiveDatagram(now, port, p)
	case info.Is(wire.FlagRequest):
		q.respond(now, p, info)
	default:
		if h.cfg.Reorder > 0 && !h.cfg.RoCE.Selective.On && q.isEarly(p) &&
			q.hold(now, &q.earlyMade().responses, q.ackPSN, p) {
			return
		}
		q.complete(now, p, info)
	}
	if q.early != nil {
		q.takeEarly(now)
	}
}
