package agent

import (
	"softib/proto/ib"
	"softib/proto/mad"
)

// Bounds of the queues. A node with more to say than this has a manager that does not listen.
const (
	maxTraps   = 16
	maxNotices = 16
)

// resendFloor is the shortest time after which a trap that nobody has answered is sent again. It
// matters where SubnetTimeOut is short or has not been set: the manager needs a moment to answer.
const resendFloor = 10 * ib.Millisecond

// trapUnit is the unit of SubnetTimeOut (IBA 14.2.5.6).
const trapUnit = 4096 * ib.Nanosecond

// trap is a notice on its way to the manager of one end port.
type trap struct {
	notice mad.Notice
	port   ib.PortNum // the end port
	about  ib.PortNum // where it happened
	tid    uint64
	due    ib.Time // when it is sent next
	sent   bool
	again  bool // it happened again after it was sent
}

// traps is what a node has to tell; most have nothing.
type traps struct {
	list []trap
	next []ib.Time // by end port: the next trap goes no sooner
	tid  uint64

	// The queue that managers read as the Notice attribute.
	queue  []queued
	toggle bool
}

// queued is a notice that waits to be read.
type queued struct {
	notice mad.Notice
	port   ib.PortNum
}

// Address is where PollTrap's datagram goes: between QP0s, on VL15.
type Address struct {
	// Port is the port to send by; 0 at a switch, which goes by its forwarding table.
	Port ib.PortNum
	SLID ib.LID
	DLID ib.LID
	SL   ib.SL
}

// PollTrap writes the next trap to buf, which has room for mad.Size bytes, and says where it goes. It first
// asks the node what happened. It is called until it reports false.
//
// A trap goes to the port's master subnet manager, and to nobody while the port has none. It is repeated
// until its TrapRepress comes, no faster than SubnetTimeOut allows (IBA 13.4.9, 14.2.5.6).
func (a *Agent) PollTrap(now ib.Time, buf []byte) (Address, bool) {
	for n, ok := a.node.PollNotice(); ok; n, ok = a.node.PollNotice() {
		a.raise(n)
	}
	if a.traps == nil || len(buf) < mad.Size {
		return Address{}, false
	}
	for {
		i := a.nextTrap(now)
		if i < 0 {
			return Address{}, false
		}
		t := &a.traps.list[i]
		pi := a.node.PortInfo(t.port)
		if pi.MasterSMLID == ib.LIDReserved {
			a.drop(i)
			continue
		}
		interval := trapUnit << pi.SubnetTimeOut
		t.due = now + max(interval, resendFloor)
		if pi.PortState < ib.PortInit && a.sw == nil {
			continue // nobody to send it by; it is tried again
		}
		a.traps.next[t.port] = now + interval
		t.sent, t.again = true, false
		t.append(buf[:0])
		return Address{Port: t.port, SLID: pi.LID, DLID: pi.MasterSMLID, SL: pi.MasterSMSL}, true
	}
}

// nextTrap is the place of the trap that has waited longest of those that may be sent now; -1 if there is none.
func (a *Agent) nextTrap(now ib.Time) int {
	best := -1
	for i := range a.traps.list {
		t := &a.traps.list[i]
		if now >= t.due && now >= a.traps.next[t.port] && (best < 0 || t.due < a.traps.list[best].due) {
			best = i
		}
	}
	return best
}

// append writes the datagram. Its M_Key is 0: it asks nothing of the manager (IBA 14.2.4).
func (t *trap) append(b []byte) {
	h := mad.Header{
		BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassSMLID, ClassVersion: 1, Method: mad.MethodTrap,
		TransactionID: t.tid, AttributeID: mad.AttrNotice,
	}
	b = h.Append(b)
	clear(b[len(b):mad.Size])
	t.notice.Append(b[:mad.SMPDataOff])
}

// NextDeadline is when PollTrap or HandleTimer wants to be called even if nothing happens: a trap that
// is to be sent or repeated, a sampling that starts or ends.
func (a *Agent) NextDeadline() ib.Time {
	at := a.samples.deadline()
	if a.traps != nil {
		for i := range a.traps.list {
			t := &a.traps.list[i]
			at = ib.Earlier(at, max(t.due, a.traps.next[t.port]))
		}
	}
	return at
}

// HandleTimer does what is due at the node itself; traps that are due come from PollTrap.
func (a *Agent) HandleTimer(now ib.Time) { a.samples.advance(a.node, now) }

// SetDescription changes the node's name, and tells the managers of its ports (IBA 14.2.5.1, trap 144).
func (a *Agent) SetDescription(s string) {
	if s == a.description() {
		return
	}
	a.desc = &s
	a.changed(mad.ChangeNodeDescription)
}

// description is the name that people know the node by.
func (a *Agent) description() string {
	if a.desc != nil {
		return *a.desc
	}
	return a.node.NodeDescription()
}

// SetCapability switches bits in an end port's CapabilityMask on or off, which the node's own says no more about,
// and tells the port's manager. It is how a driver says that a subnet manager runs here: mad.CapIsSM.
func (a *Agent) SetCapability(port ib.PortNum, bits mad.PortCap, on bool) {
	if !a.isEndPort(port) {
		return
	}
	own := a.node.PortInfo(port).CapabilityMask
	before := a.capability(port, own)
	for len(a.caps) <= int(port) {
		a.caps = append(a.caps, capOverlay{})
	}
	c := &a.caps[port]
	if c.set, c.clear = c.set&^bits, c.clear|bits; on {
		c.set, c.clear = c.set|bits, c.clear&^bits
	}
	if a.capability(port, own) != before {
		a.raise(Notice{Trap: mad.TrapCapabilityChange, Port: port})
	}
}

// Capability is the CapabilityMask that a port shows.
func (a *Agent) Capability(port ib.PortNum) mad.PortCap {
	return a.capability(port, a.node.PortInfo(port).CapabilityMask)
}

// Capability2 is the CapabilityMask2 that a port shows.
func (a *Agent) Capability2(port ib.PortNum) uint16 {
	mask := a.node.PortInfo(port).CapabilityMask2
	if a.isEndPort(port) {
		mask |= agentCaps2
	}
	return mask
}

// capOverlay is what a driver changed of a port's capabilities.
type capOverlay struct{ set, clear mad.PortCap }

// agentCaps is what an end port can because it has an agent.
const agentCaps = mad.CapNotice | mad.CapTrap | mad.CapDRNotice | mad.CapVendorClass | mad.CapCapabilityMaskNotice |
	mad.CapOtherLocalChangesNotice | mad.CapCapabilityMask2

// agentCaps2 is the same of CapabilityMask2: PortInfoExtended.
const agentCaps2 = 1 << 1

// capability is the CapabilityMask that a port shows where its node says mask.
func (a *Agent) capability(port ib.PortNum, mask mad.PortCap) mad.PortCap {
	if !a.isEndPort(port) {
		return mask
	}
	mask |= agentCaps
	if a.sw != nil {
		mask |= mad.CapPKeySwitchExtPortTrap
	}
	if int(port) < len(a.caps) {
		mask = mask&^a.caps[port].clear | a.caps[port].set
	}
	return mask
}

// isEndPort reports whether a port has a LID and a manager of its own.
func (a *Agent) isEndPort(p ib.PortNum) bool { return a.hasPort(p) && (a.sw == nil) == (p != 0) }

// NotifySystemGUID tells the managers that the node's SystemImageGUID is another now (trap 145).
func (a *Agent) NotifySystemGUID() {
	for p := a.firstEndPort(); a.isEndPort(p); p++ {
		a.raise(Notice{Trap: mad.TrapSystemImageGUID, Port: p})
	}
}

// changed tells the managers of all end ports what changed beside the capability mask.
func (a *Agent) changed(flags uint16) {
	for p := a.firstEndPort(); a.isEndPort(p); p++ {
		a.post(Notice{Trap: mad.TrapCapabilityChange, Port: p}, flags)
	}
}

func (a *Agent) firstEndPort() ib.PortNum {
	if a.sw != nil {
		return 0
	}
	return 1
}

func (a *Agent) raise(n Notice) { a.post(n, 0) }

// post queues a notice for the manager of the end port that it concerns. There it merges with one of its
// kind that is still unanswered.
func (a *Agent) post(n Notice, flags uint16) {
	end := n.Port
	if a.sw != nil {
		end = 0
	}
	if !a.isEndPort(end) {
		return
	}
	pi := a.node.PortInfo(end)
	note := mad.Notice{
		IsGeneric: true, Type: mad.TrapType(n.Trap), ProducerTypeVendorID: uint32(a.typ), TrapNumberDeviceID: n.Trap,
		IssuerLID:   pi.LID,
		DataDetails: a.details(n, &pi, end, flags),
	}
	a.enqueue(end, n.Port, note, pi.MasterSMLID != ib.LIDReserved)
}

// enqueue puts a notice in the queue that managers read and, where there is a manager, in that of
// the traps.
func (a *Agent) enqueue(end, about ib.PortNum, note mad.Notice, hasManager bool) {
	if a.traps == nil {
		a.traps = &traps{next: make([]ib.Time, int(end)+1)}
	}
	q := a.traps
	for len(q.next) <= int(end) {
		q.next = append(q.next, 0)
	}
	for i := range q.list {
		t := &q.list[i]
		if t.port == end && t.about == about && t.notice.TrapNumberDeviceID == note.TrapNumberDeviceID &&
			(note.Type != mad.NoticeSecurity || t.notice.DataDetails == note.DataDetails) {
			t.again = t.sent
			t.merge(&note)
			return
		}
	}
	if len(q.queue) < maxNotices {
		q.queue = append(q.queue, queued{note, end})
	}
	if hasManager && len(q.list) < maxTraps {
		q.tid++
		q.list = append(q.list, trap{notice: note, port: end, about: about, tid: q.tid})
	}
}

// merge brings an unanswered notice up to date: what it reads like is how things are now.
func (t *trap) merge(n *mad.Notice) {
	if n.TrapNumberDeviceID == mad.TrapCapabilityChange {
		var was, is mad.CapabilityDetails
		_, err1 := was.Parse(t.notice.DataDetails[:])
		_, err2 := is.Parse(n.DataDetails[:])
		if err1 == nil && err2 == nil {
			is.ChangeFlags |= was.ChangeFlags
			is.OtherLocalChanges = is.ChangeFlags != 0
			is.Append(n.DataDetails[:0])
		}
	}
	t.notice = *n
}

// details makes the part of a notice that depends on the trap.
func (a *Agent) details(n Notice, pi *mad.PortInfo, end ib.PortNum, flags uint16) (d [mad.NoticeDataLen]byte) {
	var v interface{ Append([]byte) []byte }
	switch n.Trap {
	case mad.TrapLinkStateChange:
		v = &mad.LinkStateDetails{LID: pi.LID}
	case mad.TrapLinkIntegrity, mad.TrapBufferOverrun, mad.TrapFlowControlWatchdog:
		v = &mad.PortErrorDetails{LID: pi.LID, Port: n.Port}
	case mad.TrapCapabilityChange:
		v = &mad.CapabilityDetails{
			LID: pi.LID, OtherLocalChanges: flags != 0, CapabilityMask: a.capability(end, pi.CapabilityMask),
			ChangeFlags: flags, CapabilityMask2: pi.CapabilityMask2 | agentCaps2,
		}
	case mad.TrapSystemImageGUID:
		v = &mad.SystemGUIDDetails{LID: pi.LID, SystemImageGUID: a.node.NodeInfo(end).SystemImageGUID}
	case mad.TrapBadPKey, mad.TrapBadQKey:
		v = &n.Packet
	case mad.TrapBadPKeySwitch:
		p := &n.Packet
		s := &mad.SwitchKeyDetails{
			DataValid: mad.SwitchKeyValidLID1 | mad.SwitchKeyValidLID2 | mad.SwitchKeyValidPKey | mad.SwitchKeyValidSL |
				mad.SwitchKeyValidQP2,
			LID1: p.LID1, LID2: p.LID2, PKey: ib.PKey(p.Key), SL: p.SL, QP1: p.QP1, QP2: p.QP2,
			GID1: p.GID1, GID2: p.GID2, SwitchLID: pi.LID, Port: n.Port,
		}
		if p.QP1 != 0 {
			s.DataValid |= mad.SwitchKeyValidQP1
		}
		if !p.GID1.IsZero() {
			s.DataValid |= mad.SwitchKeyValidGID1 | mad.SwitchKeyValidGID2
		}
		v = s
	default:
		return d
	}
	v.Append(d[:0])
	return d
}

// badMKey notes a request that failed the check of a port's M_Key (trap 256).
func (a *Agent) badMKey(end ib.PortNum, from ib.LID, v mad.View) {
	d := mad.MKeyDetails{
		LID: from, Method: v.Method(), AttributeID: v.AttrID(), AttributeModifier: v.AttrMod(), MKey: v.MKey(),
	}
	if v.Class() == mad.ClassSMDirect {
		d.Directed, d.DrSLID = true, v.DrSLID()
		n := min(v.HopCount(), mad.MaxHops)
		d.Truncated = n > mad.MKeyPathLen
		d.HopCount = min(n, mad.MKeyPathLen)
		for i := range d.HopCount {
			d.ReturnPath[i] = byte(v.ReturnPath(i))
		}
	}
	pi := a.node.PortInfo(end)
	note := mad.Notice{
		IsGeneric: true, Type: mad.NoticeSecurity, ProducerTypeVendorID: uint32(a.typ),
		TrapNumberDeviceID: mad.TrapBadMKey, IssuerLID: pi.LID,
	}
	d.Append(note.DataDetails[:0])
	a.enqueue(end, end, note, pi.MasterSMLID != ib.LIDReserved)
}

// repress ends the repetition of a trap that its manager has got (IBA 13.4.9).
func (a *Agent) repress(end ib.PortNum, tid uint64, data []byte) {
	if a.traps == nil {
		return
	}
	var n mad.Notice
	if _, err := n.Parse(data); err != nil {
		return
	}
	for i := range a.traps.list {
		t := &a.traps.list[i]
		if t.port != end || !t.sent {
			continue
		}
		same := t.notice.TrapNumberDeviceID == n.TrapNumberDeviceID && t.notice.DataDetails == n.DataDetails
		if t.tid != tid && !same {
			continue
		}
		if t.again {
			// It has happened once more since: the manager may have looked before that.
			a.traps.tid++
			t.tid, t.sent, t.again, t.due = a.traps.tid, false, false, 0
		} else {
			a.drop(i)
		}
		return
	}
}

func (a *Agent) drop(i int) {
	l := a.traps.list
	a.traps.list = l[:i+copy(l[i:], l[i+1:])]
}

// noticeAttr serves the Notice attribute: the queue of notices, read one at a time and taken away by
// a Set that shows the toggle of the one that was read (IBA 13.4.9.1).
func (a *Agent) noticeAttr(r *request) mad.Status {
	port := a.keyPort(r.inPort)
	head := a.oldestNotice(port)
	if r.set && head >= 0 {
		var n mad.Notice
		if _, err := n.Parse(r.data); err != nil {
			return failed(err)
		}
		if n.NoticeToggle == a.traps.toggle {
			q := a.traps.queue
			a.traps.queue = q[:head+copy(q[head:], q[head+1:])]
			a.traps.toggle = !a.traps.toggle
			head = a.oldestNotice(port)
		}
	}
	n := mad.Notice{Type: mad.NoticeEmpty}
	if head >= 0 {
		n = a.traps.queue[head].notice
		for i := range a.traps.queue {
			if a.traps.queue[i].port == port {
				n.NoticeCount++
			}
		}
	}
	if a.traps != nil {
		n.NoticeToggle = a.traps.toggle
	}
	n.Append(r.answer())
	return mad.StatusOK
}

// oldestNotice is the place of a port's oldest notice in the queue; -1 if it has none.
func (a *Agent) oldestNotice(port ib.PortNum) int {
	if a.traps != nil {
		for i := range a.traps.queue {
			if a.traps.queue[i].port == port {
				return i
			}
		}
	}
	return -1
}
