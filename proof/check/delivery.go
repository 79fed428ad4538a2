package check

import (
	"bytes"
	"fmt"

	"softib/fabric"
	"softib/node/hca"
	"softib/proof/workload"
	"softib/proto/ib"
)

// delivery guards that what is received is what was sent: by the reliable services
// exactly once, in order and intact, by the others intact and, where no fault
// makes copies, at most once.
type delivery struct {
	ignore
	*scene
	flows map[*workload.FlowState]*flowDelivery
	want  []byte
	got   []byte
}

type flowDelivery struct {
	next int // reliable, UC: index of the first op that may be received next
	// seen counts, by op and by receiving end, for datagrams.
	seen map[*workload.End][]int
}

const deliveryName = "delivery"

func newDelivery(c *scene) *delivery {
	return &delivery{scene: c, flows: map[*workload.FlowState]*flowDelivery{}}
}

func (d *delivery) flow(f *workload.FlowState) *flowDelivery {
	s := d.flows[f]
	if s == nil {
		s = &flowDelivery{seen: map[*workload.End][]int{}}
		d.flows[f] = s
	}
	return s
}

func (d *delivery) count(f *workload.FlowState, e *workload.End) []int {
	s := d.flow(f)
	if s.seen[e] == nil {
		s.seen[e] = make([]int, len(f.Ops))
	}
	return s.seen[e]
}

func (d *delivery) RecvDone(now ib.Time, host int, wc *hca.WC) {
	e, r := d.run.EndOf(host, wc.QPN), d.run.Recv(wc.WRID)
	if e == nil || r == nil || wc.Status != hca.WCSuccess {
		return
	}
	o, why := d.identify(e, r, wc)
	if o == nil {
		d.report(deliveryName, []int{e.In.ID}, "%s: received %d bytes (%v): %s", endName(e), wc.ByteLen, wc.Opcode, why)
		return
	}
	if why := d.wrong(e, r, wc, o); why != "" {
		d.report(deliveryName, []int{o.Flow.ID}, "%s: received by h%d QP %v: %s", name(o), host+1, wc.QPN, why)
	}
}

// identify says which op a receive is of.
func (d *delivery) identify(e *workload.End, r *workload.Recv, wc *hca.WC) (*workload.OpState, string) {
	conn := e.Conn
	s := d.flow(e.In)
	if reliable(conn) {
		for i := s.next; i < len(e.In.Ops); i++ {
			o := &e.In.Ops[i]
			if !o.Receives() || o.Skipped {
				continue
			}
			if !o.Posted {
				break
			}
			s.next = i + 1
			return o, ""
		}
		return nil, "everything that was sent has been received already"
	}
	var id, n int
	ok := wc.Flags&hca.WCWithImm != 0
	if ok {
		id, n = workload.FromImmediate(wc.ImmData)
	} else {
		d.got = workload.Gather(d.got[:0], d.run.Mem[r.At.Host], r.Pieces)
		off := 0
		if conn.Type == hca.UD {
			off = 40
		}
		if int(wc.ByteLen) > len(d.got) || int(wc.ByteLen) < off {
			return nil, "longer than its buffer"
		}
		id, n, ok = workload.Identify(d.got[off:wc.ByteLen])
	}
	if !ok {
		return nil, "carries neither immediate nor header"
	}
	f := d.run.FlowByID(id)
	if f == nil {
		return nil, fmt.Sprintf("names a flow %d that there is not", id)
	}
	for i := range f.Ops {
		if o := &f.Ops[i]; o.N == n && o.Posted && o.Receives() {
			return o, ""
		}
	}
	return nil, fmt.Sprintf("names an op %d of flow %d that was not sent", n, id)
}

// wrong says what is wrong with a receive of op o; empty if nothing is.
func (d *delivery) wrong(e *workload.End, r *workload.Recv, wc *hca.WC, o *workload.OpState) string {
	conn := e.Conn
	switch {
	case o.Misuse.Fails() || o.Misuse == workload.WrongQKey || o.Misuse == workload.WrongQPN ||
		o.Misuse == workload.WrongLID:
		return "it must not be: " + o.Misuse.String()
	case o.Flow.From.Conn.Crosses(d.run.Spec) && o.Group == 0:
		return "the ends share no partition"
	}
	if why := d.order(e, wc, o); why != "" {
		return why
	}
	wantOp, wantLen := hca.WCRecv, o.Size
	if o.Code == hca.WRRDMAWriteImm {
		wantOp = hca.WCRecvRDMAWithImm
	}
	if conn.Type == hca.UD {
		wantLen += 40
	}
	var flags hca.WCFlags
	imm := uint32(0)
	if o.HasImm() {
		flags, imm = hca.WCWithImm, workload.Immediate(o.Flow.ID, o.N)
	}
	if o.Code == hca.WRSendInv {
		flags, imm = hca.WCWithInv, wc.ImmData
	}
	switch {
	case wc.Opcode != wantOp:
		return fmt.Sprintf("completion says %v: want %v", wc.Opcode, wantOp)
	case wc.ByteLen != uint32(wantLen):
		return fmt.Sprintf("%d bytes: want %d", wc.ByteLen, wantLen)
	case wc.Flags&^hca.WCGRH != flags || wc.ImmData != imm:
		return fmt.Sprintf("immediate %#x (flags %b): want %#x (%b)", wc.ImmData, wc.Flags, imm, flags)
	case wc.SrcQP != o.Flow.From.QP.Num():
		return fmt.Sprintf("source QP %v: want %v", wc.SrcQP, o.Flow.From.QP.Num())
	case wc.SLID != d.lid(o.Flow.From.Host):
		return fmt.Sprintf("source LID %v: want %v", wc.SLID, d.lid(o.Flow.From.Host))
	case o.Code == hca.WRRDMAWriteImm:
		return ""
	}
	d.got = workload.Gather(d.got[:0], d.run.Mem[r.At.Host], r.Pieces)
	got := d.got[wantLen-o.Size : wantLen]
	d.want = append(d.want[:0], make([]byte, o.Size)...)
	workload.Payload(d.want, d.run.Spec.Seed, o.Flow.ID, o.N)
	if !bytes.Equal(got, d.want) {
		return "not intact: " + difference(got, d.want)
	}
	return ""
}

// order says what is wrong with when a message is received.
func (d *delivery) order(e *workload.End, wc *hca.WC, o *workload.OpState) string {
	copies := d.sim.FaultCounts()[fabric.FaultDuplicate] > 0
	switch e.Conn.Type {
	case hca.UD:
		if o.Group == 0 && o.Flow != e.In {
			return "it was sent to somebody else"
		}
		if o.Group > 0 && !d.isMember(o.Group-1, e) {
			return "it was sent to a group that the receiver is not in"
		}
		seen := d.count(o.Flow, e)
		if seen[o.Index]++; seen[o.Index] > 1 && !copies {
			return "it was received before"
		}
	case hca.UC:
		if o.Flow != e.In {
			return "it was sent to somebody else"
		}
		s := d.flow(e.In)
		if o.Index < s.next && !copies {
			return fmt.Sprintf("op #%d came before it", e.In.Ops[s.next-1].N)
		}
		s.next = max(s.next, o.Index+1)
		d.count(o.Flow, e)[o.Index]++
	}
	return ""
}

func (d *delivery) isMember(group int, e *workload.End) bool {
	for _, m := range d.run.Spec.Groups[group].Members {
		if m == (workload.EndRef{Conn: e.Conn.ID, End: e.E}) {
			return true
		}
	}
	return false
}

// Rest holds what the senders were told against what was received.
func (d *delivery) Rest() {
	for _, f := range d.run.Flows {
		if d.run.Stopped(f.To.Host) || d.run.Stopped(f.From.Host) {
			continue
		}
		s := d.flow(f)
		for i := range f.Ops {
			o := &f.Ops[i]
			if !o.Done || o.Status != hca.WCSuccess || !o.Receives() {
				continue
			}
			switch {
			case reliable(f.From.Conn):
				if i >= s.next {
					d.report(deliveryName, []int{f.ID}, "%s: completed with success and was never received", name(o))
					return
				}
			case d.sc.Calm && o.Group == 0:
				if n := d.count(f, f.To)[i]; n != 1 {
					d.report(deliveryName, []int{f.ID}, "%s: received %d times in a fabric without faults", name(o), n)
				}
			case d.sc.Calm:
				d.group(o)
			}
		}
	}
}

// group checks that each member of a group has had a message, the sender excepted where it
// blocks its own.
func (d *delivery) group(o *workload.OpState) {
	for _, e := range d.run.Ends {
		if !d.isMember(o.Group-1, e) || e == o.Flow.From && e.E == 1 {
			continue
		}
		if n := d.count(o.Flow, e)[o.Index]; n != 1 {
			d.report(deliveryName, []int{o.Flow.ID},
				"%s to group %d: received %d times by member %s in a fabric without faults",
				name(o), o.Group-1, n, endName(e))
		}
	}
}

// difference says where two messages part.
func difference(got, want []byte) string {
	n := 0
	first := -1
	for i := range got {
		if got[i] != want[i] {
			if n++; first < 0 {
				first = i
			}
		}
	}
	return fmt.Sprintf("%d of %d bytes differ, the first at %d (%#02x: want %#02x)", n, len(got), first, got[first],
		want[first])
}
