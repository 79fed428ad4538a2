package check

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"softib/node/hca"
	"softib/proof/workload"
	"softib/proto/ib"
)

// memory guards the hosts' memory. It keeps a second copy of all of it, in
// which only what requests may have done happens, and compares: between and around the
// regions, in them, and within the ranges of requests under way, which may
// hold the old bytes or the new ones.
type memory struct {
	ignore
	*scene
	shadow [][]byte
	// frozen memory was deregistered.
	frozen []workload.Range
	posted map[uint64]*workload.Recv
	flows  map[*workload.FlowState]*flowMemory
	// drawn are the values that shared fetch-and-adds have found, by host.
	drawn []map[uint64]bool
	adds  []int // shared adds posted, by host
	sure  []int // and known to be done
	base  []uint64
	open  []openRange
}

type flowMemory struct {
	settled int // ops before it are accounted for
	// slots holds what each slot will hold when all posted writes are done.
	slots   []byte
	pending []*workload.OpState // writes and atomics that are posted and not known done
	reads   []*readWant
}

// readWant is a READ under way and what it must bring.
type readWant struct {
	op   *workload.OpState
	want []byte
}

// openRange is memory that may change just now.
type openRange struct {
	at workload.Range
	// allowed lists, where it is not nil, what the range may hold, in part or
	// whole, besides what the shadow has.
	allowed [][]byte
}

const memoryName = "memory"

func newMemory(c *scene) *memory {
	return &memory{scene: c, posted: map[uint64]*workload.Recv{}, flows: map[*workload.FlowState]*flowMemory{}}
}

// begin copies the memory as it is before anything is posted.
func (m *memory) begin() {
	for i, b := range m.run.Mem {
		m.shadow = append(m.shadow, bytes.Clone(b))
		m.drawn = append(m.drawn, map[uint64]bool{})
		m.base = append(m.base, binary.LittleEndian.Uint64(b[m.run.Counter[i].Off:]))
	}
	m.adds, m.sure = make([]int, len(m.shadow)), make([]int, len(m.shadow))
	for _, f := range m.run.Flows {
		m.flows[f] = &flowMemory{slots: bytes.Clone(m.real(f.Slots))}
	}
}

func (m *memory) real(r workload.Range) []byte { return m.run.Mem[r.Host][r.Off:r.End()] }
func (m *memory) copy(r workload.Range) []byte { return m.shadow[r.Host][r.Off:r.End()] }

// accept takes memory as it is now.
func (m *memory) accept(r workload.Range) { copy(m.copy(r), m.real(r)) }

// Closed: a destroyed queue pair writes to its receive buffers no more.
func (m *memory) Closed(now ib.Time, conn *workload.Conn) {
	for id, r := range m.posted { // tidy: order-free
		if r.End != nil && r.End.Conn == conn {
			m.accept(r.At)
			delete(m.posted, id)
		}
	}
}

func (m *memory) isFrozen(r workload.Range) bool {
	for _, f := range m.frozen {
		if f.Host == r.Host && r.Off < f.End() && f.Off < r.End() {
			return true
		}
	}
	return false
}

func (m *memory) Scribbled(now ib.Time, at workload.Range) {
	if m.shadow != nil {
		m.accept(at)
	}
}

func (m *memory) Freed(now ib.Time, at workload.Range) {
	m.Audit()
	m.accept(at)
	m.frozen = append(m.frozen, at)
}

func (m *memory) payload(o *workload.OpState) []byte {
	b := make([]byte, o.Size)
	workload.Payload(b, m.run.Spec.Seed, o.Flow.ID, o.N)
	return b
}

func (m *memory) OpPosted(now ib.Time, o *workload.OpState) {
	s := m.flows[o.Flow]
	slot := func() []byte { return s.slots[o.Remote.Off-o.Flow.Slots.Off:][:o.Size] }
	switch {
	case o.Code == hca.WRRDMARead:
		want := make([]byte, o.Size)
		if o.Remote.Len == o.Size {
			copy(want, slot())
		}
		s.reads = append(s.reads, &readWant{o, want})
	case o.Writes():
		if o.Remote.Len > 0 {
			s.pending = append(s.pending, o)
			copy(slot(), m.payload(o))
		}
	case o.Atomic():
		if o.Shared && o.Remote.Len > 0 {
			m.adds[o.Flow.To.Host]++
		}
		s.pending = append(s.pending, o)
	}
}

func (m *memory) RecvPosted(now ib.Time, r *workload.Recv) { m.posted[r.ID] = r }

func (m *memory) RecvDone(now ib.Time, host int, wc *hca.WC) {
	r := m.run.Recv(wc.WRID)
	if r == nil {
		return
	}
	delete(m.posted, r.ID)
	if wc.Status == hca.WCSuccess {
		from, to := 0, int(wc.ByteLen)
		if wc.Opcode == hca.WCRecvRDMAWithImm {
			to = 0 // the data went elsewhere
		} else if e := m.run.EndOf(host, wc.QPN); e != nil && e.Conn.Type == hca.UD && wc.Flags&hca.WCGRH == 0 {
			from = 40
		}
		// A UC message that was cut off leaves its beginning in a buffer that is
		// used again (IBA 9.8.2.2).
		cutOff := !m.sc.Calm && r.End != nil && r.End.Conn.Type == hca.UC
		if off, bad := m.outside(r, from, to); bad && !cutOff {
			m.report(memoryName, nil, "h%d QP %v: a receive of %d bytes has changed byte %d of its buffer", host+1,
				wc.QPN, wc.ByteLen, off)
		}
	}
	m.accept(r.At)
}

// outside finds a byte of a receive buffer outside [from, to) that has changed.
func (m *memory) outside(r *workload.Recv, from, to int) (int, bool) {
	at := 0
	for _, p := range r.Pieces {
		a, b := m.run.Mem[r.At.Host][p.Off:p.Off+p.Len], m.shadow[r.At.Host][p.Off:p.Off+p.Len]
		in := min(max(to-at, 0), p.Len)
		if at < from || !bytes.Equal(a[in:], b[in:]) {
			for i := range a {
				if n := at + i; (n < from || n >= to) && a[i] != b[i] {
					return n, true
				}
			}
		}
		at += p.Len
	}
	return 0, false
}

func (m *memory) SendDone(now ib.Time, host int, wc *hca.WC) {
	o := m.run.Op(wc.WRID)
	if o == nil || !o.Posted {
		return
	}
	s := m.flows[o.Flow]
	last := o.Index
	if wc.Status != hca.WCSuccess {
		// Those before it that are not signalled have ended well; it and what
		// follows may or may not have happened.
		last--
	}
	for ; s.settled <= last; s.settled++ {
		if p := &o.Flow.Ops[s.settled]; p.Posted {
			m.settle(s, p)
		}
	}
	if wc.Status != hca.WCSuccess {
		s.settled = max(s.settled, o.Index+1)
		m.giveUp(s, o)
	}
}

// settle takes it that an op has happened.
func (m *memory) settle(s *flowMemory, o *workload.OpState) {
	id := []int{o.Flow.ID}
	switch {
	case o.Code == hca.WRRDMARead:
		i := slices.IndexFunc(s.reads, func(r *readWant) bool { return r.op == o })
		if i < 0 {
			return
		}
		want := m.landed(o, s.reads[i].want)
		s.reads = slices.Delete(s.reads, i, i+1)
		if o.Remote.Len == o.Size && !bytes.Equal(m.real(o.Area), want) {
			m.report(memoryName, id, "%s: the data that it brought is not what was there: %s", name(o),
				difference(m.real(o.Area), want))
		}
		m.accept(o.Area)
	case o.Atomic():
		m.settleAtomic(s, o)
	case o.Writes() && reliable(o.Flow.From.Conn):
		i := slices.Index(s.pending, o)
		if i < 0 {
			return
		}
		// A write of the same place that came before is done, and over.
		s.pending = slices.Delete(s.pending, i, i+1)
		if m.isFrozen(o.Remote) {
			return
		}
		copy(m.copy(o.Remote), m.payload(o))
		if off, bad := m.strange(openRange{o.Remote, m.payloads(s.pending[i:], o.Remote)}); bad {
			m.report(memoryName, id, "%s: completed with success, but byte %d of h%d's memory, %d of %d that "+
				"it wrote, is not what it or a later one wrote",
				name(o), off, o.Remote.Host+1, off-o.Remote.Off, o.Size)
			m.accept(o.Remote)
		}
	}
}

// landed is what an op's memory holds once data lies in its pieces.
func (m *memory) landed(o *workload.OpState, data []byte) []byte {
	b := bytes.Clone(m.copy(o.Area))
	for _, p := range o.Pieces {
		n := copy(b[p.Off-o.Area.Off:][:p.Len], data)
		data = data[n:]
	}
	return b
}

func (m *memory) settleAtomic(s *flowMemory, o *workload.OpState) {
	if i := slices.Index(s.pending, o); i >= 0 {
		s.pending = slices.Delete(s.pending, i, i+1)
	}
	id := []int{o.Flow.ID}
	var v [8]byte
	copy(v[:], workload.Gather(nil, m.run.Mem[o.Area.Host], o.Pieces))
	got := binary.LittleEndian.Uint64(v[:])
	host := o.Flow.To.Host
	switch {
	case o.Remote.Len == 0:
	case o.Shared:
		m.sure[host]++
		if n := got - m.base[host]; n >= uint64(m.adds[host]) {
			m.report(memoryName, id, "%s: found %d added to the counter of h%d, where %d were posted", name(o), n, host+
				1, m.adds[host])
		}
		if m.drawn[host][got] {
			m.report(memoryName, id, "%s: found %#x in the counter of h%d, as another did before: one of them "+
				"was not executed", name(o), got, host+1)
		}
		m.drawn[host][got] = true
	default:
		if got != o.Orig {
			m.report(memoryName, id, "%s: found %#x: want %#x, as when all before it were executed once and in order",
				name(o), got, o.Orig)
		}
		if !m.isFrozen(o.Remote) {
			binary.LittleEndian.PutUint64(m.copy(o.Remote), o.Left)
		}
	}
	m.accept(o.Area)
}

// giveUp keeps what a failed op may have done possible for ever.
func (m *memory) giveUp(s *flowMemory, o *workload.OpState) {
	if o.Area.Len > 0 && o.Code == hca.WRRDMARead {
		i := slices.IndexFunc(s.reads, func(r *readWant) bool { return r.op == o })
		if i >= 0 {
			m.check(openRange{o.Area, [][]byte{m.landed(o, s.reads[i].want)}}, id1(o))
			s.reads = slices.Delete(s.reads, i, i+1)
		}
		m.accept(o.Area)
	}
}

func id1(o *workload.OpState) []int { return []int{o.Flow.ID} }

// payloads are what writes would put into a range, cut to it.
func (m *memory) payloads(ops []*workload.OpState, at workload.Range) [][]byte {
	var list [][]byte
	for _, o := range ops {
		if o.Remote.Len == 0 || o.Remote.Off >= at.End() || at.Off >= o.Remote.End() {
			continue
		}
		if o.Atomic() {
			list = append(list, binary.LittleEndian.AppendUint64(nil, o.Left))
			continue
		}
		list = append(list, m.payload(o))
	}
	return list
}

// strange finds a byte of an open range that is neither old nor new.
func (m *memory) strange(r openRange) (int, bool) {
	a, b := m.real(r.at), m.copy(r.at)
	if bytes.Equal(a, b) {
		return 0, false
	}
next:
	for i := 0; i < len(a); i++ {
		const many = 64 // most of it is as it was, or all new
		if i%many == 0 && i+many <= len(a) && (bytes.Equal(a[i:i+many], b[i:i+many]) ||
			slices.ContainsFunc(r.allowed, func(p []byte) bool {
				return i+many <= len(p) && bytes.Equal(a[i:i+many], p[i:i+many])
			})) {
			i += many - 1
			continue
		}
		if a[i] == b[i] {
			continue
		}
		for _, p := range r.allowed {
			if i < len(p) && p[i] == a[i] {
				continue next
			}
		}
		return r.at.Off + i, true
	}
	return 0, false
}

func (m *memory) check(r openRange, flows []int) {
	if off, bad := m.strange(r); bad {
		m.report(memoryName, flows,
			"byte %d of h%d's memory holds %#02x, which no request under way may have written (was %#02x)",
			off, r.at.Host+1, m.run.Mem[r.at.Host][off], m.shadow[r.at.Host][off])
		m.accept(r.at)
	}
}

// Audit compares all memory of all hosts.
func (m *memory) Audit() {
	for host := range m.shadow {
		m.auditHost(host)
	}
}

func (m *memory) auditHost(host int) {
	if bytes.Equal(m.run.Mem[host], m.shadow[host]) {
		return
	}
	m.collect(host)
	at := 0
	for _, r := range m.open {
		m.gap(host, at, r.at.Off)
		at = max(at, r.at.End())
		if m.isFrozen(r.at) {
			m.gap(host, r.at.Off, r.at.End())
			continue
		}
		if r.allowed != nil {
			m.check(r, nil)
		}
	}
	m.gap(host, at, len(m.shadow[host]))
}

// collect lists the open ranges of a host by their place. No two overlap.
func (m *memory) collect(host int) {
	m.open = m.open[:0]
	for _, r := range m.posted { // tidy: order-free
		if r.At.Host == host {
			m.open = append(m.open, openRange{at: r.At})
		}
	}
	m.open = append(m.open, openRange{at: m.run.Counter[host]})
	for _, f := range m.run.Flows {
		s := m.flows[f]
		if f.From.Host == host {
			for _, r := range s.reads {
				m.open = append(m.open, openRange{r.op.Area, [][]byte{m.landed(r.op, r.want)}})
			}
			for _, o := range s.pending {
				if o.Atomic() {
					m.open = append(m.open, openRange{at: o.Area})
				}
			}
		}
		if f.To.Host != host || len(s.pending) == 0 {
			continue
		}
		for i := range f.Spec.Slots {
			at := workload.Range{Host: host, Off: f.Slots.Off + i*f.Spec.SlotSize, Len: f.Spec.SlotSize}
			if p := m.payloads(s.pending, at); p != nil {
				m.open = append(m.open, openRange{at, p})
			}
		}
		for i := range f.Spec.Cells {
			at := workload.Range{Host: host, Off: f.CellsAt.Off + 8*i, Len: 8}
			if p := m.payloads(s.pending, at); p != nil {
				m.open = append(m.open, openRange{at, p})
			}
		}
	}
	slices.SortFunc(m.open, func(a, b openRange) int { return a.at.Off - b.at.Off })
}

// gap compares memory that no request may touch.
func (m *memory) gap(host, from, to int) {
	if from >= to {
		return
	}
	a, b := m.run.Mem[host][from:to], m.shadow[host][from:to]
	if bytes.Equal(a, b) {
		return
	}
	n, first := 0, -1
	for i := range a {
		if a[i] != b[i] {
			if n++; first < 0 {
				first = i
			}
		}
	}
	where, flows := m.owner(host, from+first)
	m.report(memoryName, flows,
		"%d bytes of h%d's memory have changed that no request may touch, the first at %d (%s), now %#02x",
		n, host+1, from+first, where, a[first])
	copy(b, a)
}

// owner says what a byte of memory is.
func (m *memory) owner(host, off int) (string, []int) {
	in := func(r workload.Range) bool { return r.Host == host && r.Holds(off) }
	for _, e := range m.run.Ends {
		switch {
		case in(e.LocalAt):
			for i := range e.Flow.Ops {
				if o := &e.Flow.Ops[i]; in(o.Area) {
					return fmt.Sprintf("data of %s", name(o)), []int{e.Flow.ID}
				}
			}
			return fmt.Sprintf("receive buffers of %s", endName(e)), []int{e.In.ID}
		case in(e.TargetAt):
			return fmt.Sprintf("target region of %s", endName(e)), []int{e.In.ID}
		}
	}
	for i, q := range m.run.SRQs {
		if in(q.At) {
			return fmt.Sprintf("receive buffers of SRQ %d", i), nil
		}
	}
	switch {
	case in(m.run.Counter[host]):
		return "the shared counter", nil
	case in(m.run.Foreign[host]):
		return "a region of another domain", nil
	}
	return "outside every region", nil
}

// Rest compares once more, and counts the shared adds.
func (m *memory) Rest() {
	m.Audit()
	for host := range m.shadow {
		n := binary.LittleEndian.Uint64(m.real(m.run.Counter[host])) - m.base[host]
		if n < uint64(m.sure[host]) || n > uint64(m.adds[host]) {
			m.report(memoryName, nil,
				"h%d's counter has grown by %d: want %d at least, that succeeded, and %d at most, that were posted",
				host+1, n, m.sure[host], m.adds[host])
		}
	}
}
