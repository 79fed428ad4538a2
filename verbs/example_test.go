package verbs_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"softib/driver/live"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/verbs"
)

// try ends an example that cannot go on.
func try(err error) {
	if err != nil {
		panic(err)
	}
}

func get[T any](v T, err error) T {
	try(err)
	return v
}

// hosts is a fabric in this process, and its hosts' devices. Programs have theirs from attach.Open.
func hosts(n int) ([]*live.Host, func() error) {
	f := get(live.New(get(topo.ParseSpec(fmt.Sprintf("star:%d", n))), live.Config{}))
	get(f.BringUp())
	return f.Hosts(), f.Close
}

// end is one end of a connection with all that belongs to it, as the first example makes it.
type end struct {
	ctx *verbs.Context
	pd  *verbs.PD
	mr  *verbs.MR
	cq  *verbs.CQ
	qp  *verbs.QP
}

func newEnd(d verbs.Device, t verbs.QPType) *end {
	e := &end{ctx: verbs.Open(d)}
	e.pd = get(e.ctx.AllocPD())
	e.mr = get(e.pd.RegMR(make([]byte, 4096), verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead|
		verbs.AccessRemoteAtomic|verbs.AccessMWBind))
	e.cq = get(e.ctx.CreateCQ(16))
	e.qp = get(e.pd.CreateQP(verbs.QPInit{Type: t, SendCQ: e.cq, RecvCQ: e.cq, Caps: verbs.DefaultCaps}))
	return e
}

// pair is two connected ends.
func pair(a, b verbs.Device) (*end, *end) {
	x, y := newEnd(a, verbs.RC), newEnd(b, verbs.RC)
	xi, yi := get(x.qp.Info(1, 100)), get(y.qp.Info(1, 200))
	try(x.qp.Connect(xi, yi, verbs.DefaultConnect))
	try(y.qp.Connect(yi, xi, verbs.DefaultConnect))
	return x, y
}

// next waits for one completion.
func (e *end) next() verbs.WC {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wc [1]verbs.WC
	get(e.cq.Wait(ctx, wc[:]))
	return wc[0]
}

// A message from one host to another, with everything that it takes.
func Example() {
	devices, down := hosts(2)
	defer down()

	// Each side: a domain, memory that is registered in it, a completion queue, a queue pair.
	var mr [2]*verbs.MR
	var cq [2]*verbs.CQ
	var qp [2]*verbs.QP
	var info [2]verbs.Info
	for i, dev := range devices {
		ctx := verbs.Open(dev.Device())
		defer ctx.Close() // closes whatever is still open, in the right order
		pd := get(ctx.AllocPD())
		mr[i] = get(pd.RegMR(make([]byte, 64), verbs.AccessLocalWrite))
		cq[i] = get(ctx.CreateCQ(16))
		qp[i] = get(pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: cq[i], RecvCQ: cq[i], Caps: verbs.DefaultCaps}))
		info[i] = get(qp[i].Info(1, 0)) // on port 1; packets are counted from 0
	}
	// Sides that are two processes tell each other their Info over a socket.
	try(qp[0].Connect(info[0], info[1], verbs.DefaultConnect))
	try(qp[1].Connect(info[1], info[0], verbs.DefaultConnect))

	// The receive goes first: a message that finds none waits for it, and tries again.
	try(qp[1].PostRecv(&verbs.RecvWR{WRID: 7, SGList: mr[1].SGEs(0, 64)}))
	n := copy(mr[0].Bytes(), "hello, fabric")
	try(qp[0].PostSend(&verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
		SGList: mr[0].SGEs(0, n)}))

	var wc [1]verbs.WC
	for _, side := range []int{1, 0} {
		get(cq[side].Wait(context.Background(), wc[:]))
		try(wc[0].Err())
		fmt.Println(devices[side].Name(), wc[0].Opcode, "request", wc[0].WRID)
	}
	fmt.Printf("%s\n", mr[1].Bytes()[:n])
	// Output:
	// h2 RECV request 7
	// h1 SEND request 1
	// hello, fabric
}

// What two processes have to tell each other is plain data: here it goes through JSON, and with it where the memory is
// that the peer may use.
func ExampleQP_Connect() {
	devices, down := hosts(2)
	defer down()
	a, b := newEnd(devices[0].Device(), verbs.RC), newEnd(devices[1].Device(), verbs.RC)

	type hello struct {
		verbs.Info
		Addr uint64
		RKey uint32
	}
	tell := func(e *end, psn ib.PSN) []byte {
		return get(json.Marshal(hello{get(e.qp.Info(1, psn)), e.mr.Addr(), e.mr.RKey()}))
	}
	fromA, fromB := tell(a, 0x123), tell(b, 0x456)
	connect := func(e *end, mine, theirs []byte) (peer hello) {
		var self hello
		try(errors.Join(json.Unmarshal(mine, &self), json.Unmarshal(theirs, &peer)))
		o := verbs.DefaultConnect
		o.MTU = ib.MTU1024 // at most the smaller of both ports'
		try(e.qp.Connect(self.Info, peer.Info, o))
		return peer
	}
	peer := connect(a, fromA, fromB)
	connect(b, fromB, fromA)

	attr := get(a.qp.Query())
	fmt.Println(attr.State, "to LID", attr.AH.DLID, "with an MTU of", attr.PathMTU)
	try(a.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled | verbs.SendInline,
		InlineData: []byte("written"), RemoteAddr: peer.Addr, RKey: peer.RKey}))
	fmt.Println(a.next().Status)
	fmt.Printf("%s\n", b.mr.Bytes()[:7])
	// Output:
	// RTS to LID 2 with an MTU of 1024
	// SUCCESS
	// written
}

// One side reads, writes and changes the other's memory; the other's program does nothing.
func ExampleQP_PostSend() {
	devices, down := hosts(2)
	defer down()
	a, b := pair(devices[0].Device(), devices[1].Device())
	copy(b.mr.Bytes()[8:], "there")

	do := func(wr verbs.SendWR, off int) {
		wr.Flags, wr.RemoteAddr, wr.RKey = verbs.SendSignaled, b.mr.Addr()+uint64(off), b.mr.RKey()
		try(a.qp.PostSend(&wr))
		wc := a.next()
		try(wc.Err())
	}
	do(verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: a.mr.SGEs(0, 5)}, 8)
	fmt.Printf("read %q\n", a.mr.Bytes()[:5])

	copy(a.mr.Bytes(), "HERE ")
	do(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: a.mr.SGEs(0, 5)}, 8)
	fmt.Printf("wrote %q\n", b.mr.Bytes()[8:13])

	for range 3 {
		do(verbs.SendWR{Opcode: verbs.WRAtomicFetchAdd, SGList: a.mr.SGEs(64, 8), CompareAdd: 5}, 0)
	}
	old, now := a.mr.Bytes()[64:], b.mr.Bytes()
	fmt.Println("added up to", binary.NativeEndian.Uint64(now), "and found", binary.NativeEndian.Uint64(old))

	do(verbs.SendWR{Opcode: verbs.WRAtomicCmpSwap, SGList: a.mr.SGEs(64, 8), CompareAdd: 15, Swap: 1}, 0)
	fmt.Println("swapped", binary.NativeEndian.Uint64(old), "for", binary.NativeEndian.Uint64(now))
	// Output:
	// read "there"
	// wrote "HERE "
	// added up to 15 and found 10
	// swapped 15 for 1
}

// A request that is refused ends with a status, and its queue pair in the error state.
func ExampleWC_Err() {
	devices, down := hosts(2)
	defer down()
	a, b := pair(devices[0].Device(), devices[1].Device())
	try(a.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGList: a.mr.SGEs(0, 8),
		RemoteAddr: b.mr.Addr() + uint64(b.mr.Len()), RKey: b.mr.RKey()})) // behind the end
	wc := a.next()
	if e, ok := errors.AsType[*verbs.StatusError](wc.Err()); ok {
		fmt.Println(e.Status, a.qp.State())
	}
	// Output: REM_ACCESS_ERR ERR
}

// A call that cannot be right is refused with the name of the attribute, and changes nothing.
func ExampleAttrError() {
	devices, down := hosts(1)
	defer down()
	ctx := verbs.Open(devices[0].Device())
	_, err := ctx.CreateCQ(0)
	if e, ok := errors.AsType[*verbs.AttrError](err); ok {
		fmt.Println(e.Verb, e.Attr, e.Got, errors.Is(err, verbs.ErrInvalid))
	}
	// Output: create_cq cqe 0 true
}

// A datagram to one, and to a group.
func ExampleQP_AttachMcast() {
	f := get(live.New(get(topo.ParseSpec("star:3")), live.Config{}))
	defer f.Close()
	get(f.BringUp())
	gid, lid := get(ib.ParseGID("ff12::1234")), ib.LID(0xC001)
	try(f.CreateMulticast(lid, f.Hosts()...)) // programs: attach.Device.JoinMulticast

	const qkey, grh = 0x11111111, 40
	var ends []*end
	for _, h := range f.Hosts() {
		e := newEnd(h.Device(), verbs.UD)
		try(e.qp.Ready(1, 0, qkey))
		try(e.qp.PostRecv(&verbs.RecvWR{SGList: e.mr.SGEs(0, 256)}))
		ends = append(ends, e)
	}
	send := func(way verbs.AHAttr, to ib.QPN, text string) {
		ah := get(ends[0].pd.CreateAH(way))
		defer ah.Close()
		try(ends[0].qp.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, InlineData: []byte(text),
			AH: ah, RemoteQPN: to, RemoteQKey: qkey}))
	}
	show := func(e *end) {
		wc := e.next() // the first 40 bytes are kept for a global route header
		fmt.Printf("%s: %q from LID %d\n", e.ctx.Device().Name(), e.mr.Bytes()[grh:wc.ByteLen], wc.SLID)
	}

	port := get(ends[2].ctx.QueryPort(1))
	send(verbs.AHAttr{DLID: port.LID, Port: 1}, ends[2].qp.Num(), "for you")
	show(ends[2])
	try(ends[2].qp.PostRecv(&verbs.RecvWR{SGList: ends[2].mr.SGEs(0, 256)}))

	try(ends[1].qp.AttachMcast(gid, lid))
	try(ends[2].qp.AttachMcast(gid, lid))
	send(verbs.AHAttr{DLID: lid, Port: 1, IsGlobal: true, DGID: gid}, ib.QPNMulticast, "for all")
	show(ends[1])
	show(ends[2])
	// Output:
	// h3: "for you" from LID 1
	// h2: "for all" from LID 1
	// h3: "for all" from LID 1
}

// Two connections share receives, and the program is told when they run low.
func ExamplePD_CreateSRQ() {
	devices, down := hosts(3)
	defer down()
	b := newEnd(devices[2].Device(), verbs.RC)
	srq := get(b.pd.CreateSRQ(verbs.SRQInit{MaxWR: 8, MaxSGE: 1, Limit: 2}))
	for i := range 3 {
		try(srq.PostRecv(&verbs.RecvWR{WRID: uint64(i), SGList: b.mr.SGEs(64*i, 64)}))
	}
	for i, dev := range devices[:2] {
		a := newEnd(dev.Device(), verbs.RC)
		far := get(b.pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: b.cq, RecvCQ: b.cq, SRQ: srq,
			Caps: verbs.DefaultCaps}))
		mine, theirs := get(a.qp.Info(1, 0)), get(far.Info(1, 0))
		try(a.qp.Connect(mine, theirs, verbs.DefaultConnect))
		try(far.Connect(theirs, mine, verbs.DefaultConnect))
		try(a.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRSendImm, Imm: uint32(i), Flags: verbs.SendInline,
			InlineData: []byte("x")}))
		wc := b.next()
		fmt.Println("receive", wc.WRID, "has what connection", wc.ImmData, "sent")
	}
	for {
		e := get(b.ctx.WaitEvent(context.Background()))
		if e.Type == verbs.EventSRQLimitReached {
			fmt.Println(e.Type, e.SRQ == srq)
			return
		}
	}
	// Output:
	// receive 0 has what connection 0 sent
	// receive 1 has what connection 1 sent
	// SRQ_LIMIT_REACHED true
}

// With XRC an initiator names the receive queue at its target by number: processes of one host share connections.
func ExampleXRCD() {
	devices, down := hosts(2)
	defer down()
	a, b := newEnd(devices[0].Device(), verbs.RC), newEnd(devices[1].Device(), verbs.RC)
	domain := b.ctx.OpenXRCD()
	srq := get(b.pd.CreateSRQ(verbs.SRQInit{MaxWR: 4, MaxSGE: 1, XRCD: domain, CQ: b.cq}))
	try(srq.PostRecv(&verbs.RecvWR{SGList: b.mr.SGEs(0, 64)}))

	initiator := get(a.pd.CreateQP(verbs.QPInit{Type: verbs.XRCSend, SendCQ: a.cq, Caps: verbs.DefaultCaps}))
	target := get(domain.CreateQP(verbs.QPInit{}))
	near, far := get(initiator.Info(1, 0)), get(target.Info(1, 0))
	try(initiator.Connect(near, far, verbs.DefaultConnect))
	try(target.Connect(far, near, verbs.DefaultConnect))

	try(initiator.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, InlineData: []byte("shared"),
		RemoteSRQN: srq.Num()}))
	wc := b.next()
	fmt.Printf("%s\n", b.mr.Bytes()[:wc.ByteLen])
	// Output: shared
}

// A window opens a part of a region to a peer, and closes it again, without registering anything.
func ExampleMW_Bind() {
	devices, down := hosts(2)
	defer down()
	a, b := pair(devices[0].Device(), devices[1].Device())
	w := get(b.pd.AllocMW(verbs.MWType2))
	key := w.RKey() + 1 // its lowest byte is ours to choose
	try(b.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled,
		Bind: w.Bind(b.mr, 1000, 8, verbs.AccessRemoteWrite, key)}))
	fmt.Println(b.next().Opcode)

	write := func() {
		try(a.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled | verbs.SendInline,
			InlineData: []byte("through"), RemoteAddr: b.mr.Addr() + 1000, RKey: key}))
		fmt.Println("write:", a.next().Status)
	}
	write()
	try(b.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRLocalInv, Imm: key, Flags: verbs.SendSignaled}))
	fmt.Println(b.next().Opcode)
	write()
	// Output:
	// BIND_MW
	// write: SUCCESS
	// LOCAL_INV
	// write: REM_ACCESS_ERR
}

// Whoever waits can be called off.
func ExampleCQ_Wait() {
	devices, down := hosts(1)
	defer down()
	cq := get(verbs.Open(devices[0].Device()).CreateCQ(1))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := cq.Wait(ctx, make([]verbs.WC, 1))
	fmt.Println(err)
	// Output: context canceled
}

// A device says what happened to its objects, here that a peer has tried what it may not.
func ExampleContext_WaitEvent() {
	devices, down := hosts(2)
	defer down()
	a, b := pair(devices[0].Device(), devices[1].Device())
	try(a.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled | verbs.SendInline,
		InlineData: []byte{1}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey() + 1}))
	fmt.Println(a.next().Status)
	for {
		e := get(b.ctx.WaitEvent(context.Background()))
		if e.QP == b.qp && e.Type == verbs.EventQPAccessErr {
			fmt.Println(e.Type)
			return
		}
	}
	// Output:
	// REM_ACCESS_ERR
	// QP_ACCESS_ERR
}

// What is in use cannot be closed. Either everything is closed by hand, users first, or all at once.
func ExampleContext_Close() {
	devices, down := hosts(2)
	defer down()
	a, b := pair(devices[0].Device(), devices[1].Device())
	fmt.Println(errors.Is(a.pd.Close(), verbs.ErrBusy))
	try(errors.Join(a.qp.Close(), a.cq.Close(), a.mr.Close(), a.pd.Close()))
	try(b.ctx.Close())
	fmt.Println(errors.Is(b.qp.Close(), verbs.ErrDestroyed))
	// Output:
	// true
	// true
}
