package server_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"softib/proto/ib"
	"softib/verbs"
	"softib/verbs/attach"
)

// A player is a program of a soak: it is attached to a host, and makes, runs and ends flows as it is told. It lives in
// a process of its own, or in the test's.

// order is what a player is told, result what it answers.
type order struct {
	ID, Flow int
	Do       string // make, connect, break, quiesce, end, state
	Make     flowSpec
	Peer     flowInfo
}

type result struct {
	ID    int
	Err   string // something is wrong
	Lost  string // the flow has ended, with this status
	Info  flowInfo
	Stats flowStats
}

// flowSpec is one end of a connection. Each end sends what follows from its seed.
type flowSpec struct {
	Type        verbs.QPType
	Seed, Their uint64
	Max         int // longest message
	SRQ         bool
	Mode        int // see flow.next
}

type flowInfo struct {
	verbs.Info
	Addr uint64
	RKey uint32
}

type flowStats struct{ Sent, Received, Bytes uint64 }

const soakQKey = 0x1234

// errProtocol is a broken promise of the fabric.
var errProtocol = errors.New("soak")

type player struct {
	dev *attach.Device
	ctx *verbs.Context
	mu  sync.Mutex
	fl  map[int]*flow
}

// play obeys until the conversation ends.
func play(conn io.ReadWriter, socket, host string) error {
	d, err := attach.Open(attach.Options{Socket: socket, Host: host})
	if err != nil {
		return err
	}
	defer d.Close()
	p := &player{dev: d, ctx: verbs.Open(d), fl: map[int]*flow{}}
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	var wg sync.WaitGroup
	defer wg.Wait()
	var sending sync.Mutex
	for {
		var o order
		if err := in.Decode(&o); err != nil {
			p.mu.Lock()
			for _, f := range p.fl {
				f.stop()
			}
			p.mu.Unlock()
			return nil
		}
		wg.Go(func() {
			r := p.obey(&o)
			r.ID = o.ID
			sending.Lock()
			_ = out.Encode(&r)
			sending.Unlock()
		})
	}
}

func (p *player) obey(o *order) (r result) {
	p.mu.Lock()
	f := p.fl[o.Flow]
	p.mu.Unlock()
	var err error
	switch o.Do {
	case "make":
		if f, err = newFlow(p.ctx, o.Make); err == nil {
			p.mu.Lock()
			p.fl[o.Flow] = f
			p.mu.Unlock()
			r.Info, err = f.info()
		}
	case "connect":
		if err = f.connect(o.Peer); err == nil {
			go f.run()
		} else {
			close(f.ended)
		}
	case "break":
		f.breakOff()
	case "state":
		if r.Lost = "no flow"; f != nil {
			r.Lost = f.state()
		}
	case "quiesce":
		close(f.quiet)
		f.giveUp()
		select {
		case <-f.still:
		case <-f.ended:
		}
		r.Lost, err = f.outcome()
	case "end":
		f.stop()
		<-f.ended
		f.untouched()
		r.Lost, err = f.outcome()
		r.Stats = f.stats
		f.close()
		p.mu.Lock()
		delete(p.fl, o.Flow)
		p.mu.Unlock()
	}
	if err != nil {
		r.Err = err.Error()
	}
	return r
}

const (
	soakAhead  = 2 // rounds that are under way at a time
	soakRecvs  = 4 // receives that are posted
	soakGroups = soakAhead + soakRecvs
)

// flow is one end. A reliable one goes in rounds: perhaps a WRITE, a READ of it and of something that never changes, an
// atomic, and then a SEND or a WRITE with immediate, which tells the receiver that the round is complete. It looks at
// everything before it posts the receive for a later round, so that nothing is overwritten that it has not seen.
type flow struct {
	flowSpec
	peer flowInfo
	pd   *verbs.PD
	cq   *verbs.CQ
	srq  *verbs.SRQ
	qp   *verbs.QP
	ah   *verbs.AH
	mr   *verbs.MR

	quiet, still, halt, ended chan struct{}
	once, stillOnce           sync.Once

	rng         *rand.Rand
	round, done uint32 // of ours: begun, complete
	theirs      uint32 // the next to come
	adds        uint64
	stats       flowStats

	work   sync.Mutex // held while memory is used
	broken bool

	mu   sync.Mutex
	lost string
	err  error
}

func newFlow(ctx *verbs.Context, s flowSpec) (*flow, error) {
	f := &flow{flowSpec: s, quiet: make(chan struct{}), still: make(chan struct{}), halt: make(chan struct{}),
		ended: make(chan struct{}), rng: rand.New(rand.NewPCG(s.Seed, 1))}
	var err error
	if f.pd, err = ctx.AllocPD(); err != nil {
		return nil, err
	}
	if f.cq, err = ctx.CreateCQ(256); err != nil {
		return nil, err
	}
	if f.mr, err = f.pd.RegMR(make([]byte, f.size()), allRights); err != nil {
		return nil, err
	}
	init := verbs.QPInit{Type: s.Type, SendCQ: f.cq, RecvCQ: f.cq, Caps: verbs.DefaultCaps}
	if s.SRQ {
		if f.srq, err = f.pd.CreateSRQ(verbs.SRQInit{MaxWR: 16, MaxSGE: 4}); err != nil {
			return nil, err
		}
		init.SRQ = f.srq
	}
	if f.qp, err = f.pd.CreateQP(init); err != nil {
		return nil, err
	}
	soakFill(f.mr.Bytes()[f.source():f.source()+f.Max], f.Seed, 's', 0)
	return f, nil
}

// Where things are in the flow's memory: of each of our rounds what is written, sent, read back and read; receives;
// what the peer writes; what it reads; the word that it adds to; what our atomics found.
func (f *flow) stride() int             { return f.Max + 64 }
func (f *flow) own(r uint32, k int) int { return (int(r%soakAhead)*4 + k) * f.stride() }
func (f *flow) recv(i int) int          { return (soakAhead*4 + i) * f.stride() }
func (f *flow) group(r uint32) int      { return (soakAhead*4 + soakRecvs + int(r%soakGroups)) * f.stride() }
func (f *flow) source() int             { return (soakAhead*4 + soakRecvs + soakGroups) * f.stride() }
func (f *flow) word() int               { return f.source() + f.stride() }
func (f *flow) found(r uint32) int      { return f.word() + 8 + 8*int(r%soakAhead) }
func (f *flow) size() int               { return f.word() + 8 + 8*soakAhead }

func (f *flow) info() (flowInfo, error) {
	i, err := f.qp.Info(1, ib.PSN(f.Seed&0xFFFFFF))
	return flowInfo{i, f.mr.Addr(), f.mr.RKey()}, err
}

func (f *flow) connect(peer flowInfo) error {
	f.peer = peer
	if f.Type == verbs.UD {
		if err := f.qp.Ready(1, 0, soakQKey); err != nil {
			return err
		}
		var err error
		if f.ah, err = f.pd.CreateAH(verbs.AHAttr{DLID: peer.LID, Port: 1}); err != nil {
			return err
		}
	} else {
		self, err := f.info()
		if err != nil {
			return err
		}
		o := verbs.DefaultConnect
		// 0.27 s, eight times: a cable that is out, or a player that is stopped, may be so for seconds
		o.Timeout, o.MinRNRTimer = 16, 5
		if err := f.qp.Connect(self.Info, peer.Info, o); err != nil {
			return err
		}
	}
	for i := range soakRecvs {
		if err := f.postRecv(i); err != nil {
			return err
		}
	}
	return nil
}

func (f *flow) postRecv(i int) error {
	n := f.Max + 40
	cut := f.rng.IntN(n)
	wr := &verbs.RecvWR{WRID: uint64(i)<<8 | wrRecv,
		SGList: []verbs.SGE{f.mr.SGE(f.recv(i), cut), f.mr.SGE(f.recv(i)+cut, n-cut)}}
	if f.srq != nil {
		return f.srq.PostRecv(wr)
	}
	return f.qp.PostRecv(wr)
}

func (f *flow) stop() { f.once.Do(func() { close(f.halt) }) }

// breakOff does what a program may do at any time: it ends the queue pair, or takes its memory away, whatever goes on.
// After that the memory is its own: nobody sees what it has there from now on, and nobody writes to it.
func (f *flow) breakOff() {
	f.work.Lock()
	defer f.work.Unlock()
	f.end("broken off", nil)
	f.broken = true
	if f.Seed&1 == 0 {
		_ = f.mr.Close()
	} else {
		_ = f.qp.Close()
		f.stop()
	}
	for b := f.mr.Bytes(); len(b) > 0; b = b[copy(b, soakScribble):] {
	}
}

// giveUp ends a queue pair without memory, which would ask its peer to wait for a receive for ever.
func (f *flow) giveUp() {
	f.work.Lock()
	defer f.work.Unlock()
	if f.broken {
		_ = f.qp.Close()
		f.stop()
	}
}

// untouched makes sure of that at the end.
func (f *flow) untouched() {
	if !f.broken {
		return
	}
	for i, v := range f.mr.Bytes() {
		if v != soakScribble[0] {
			f.wrong("byte %d of %d was written after the flow was broken off", i, f.mr.Len())
			return
		}
	}
}

var soakScribble = bytes.Repeat([]byte{0xEE}, 4096)

func (f *flow) close() {
	_ = f.qp.Close()
	if f.srq != nil {
		_ = f.srq.Close()
	}
	if f.ah != nil {
		_ = f.ah.Close()
	}
	_ = f.mr.Close()
	_ = f.cq.Close()
	_ = f.pd.Close()
}

func (f *flow) end(lost string, err error) {
	f.mu.Lock()
	if f.lost == "" {
		f.lost = lost
	}
	if f.err == nil {
		f.err = err
	}
	f.mu.Unlock()
}

func (f *flow) outcome() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost, f.err
}

// state is what to look at when a flow hangs.
func (f *flow) state() string {
	a, err := f.qp.Query()
	lost, _ := f.outcome()
	return fmt.Sprintf("seed %x, mode %d, round %d, %d done, %d came, broken %v, lost %q, err %v, plan %+v, "+
		"QP %v %v %+v", f.Seed, f.Mode, f.round, f.done, f.theirs, f.broken, lost, err, f.plan(f.Seed, f.done),
		f.qp.Num(), f.qp.State(), a)
}

// plan is a round, the same at both ends.
type plan struct {
	write, src, srcOff, last int // lengths, -1 is none
	back, add, imm, inline   bool
}

// soakSizes are those around which something changes: what fits into a cell, packets, references, copies, bundles.
var soakSizes = []int{0, 1, 8, 12, 13, 27, 28, 29, 64, 1000, 4095, 4096, 4097, 8191, 8192, 8193, 12288, 16383, 16384,
	16385, 65536, 262143, 262144, 262145, 1 << 20}

func (f *flow) plan(seed uint64, r uint32) plan {
	rng := rand.New(rand.NewPCG(seed, uint64(r)))
	size := func() int {
		n := 0
		switch k := rng.IntN(20); {
		case k < 8:
			n = rng.IntN(100)
		case k < 18:
			n = soakSizes[rng.IntN(len(soakSizes))]
		default:
			n = rng.IntN(f.Max)
		}
		for n > f.Max {
			n >>= 1
		}
		return n
	}
	p := plan{write: -1, src: -1, last: size(), inline: rng.IntN(2) == 0}
	if f.Type != verbs.RC {
		p.imm = true
		return p
	}
	if rng.IntN(2) == 0 {
		p.write = size()
		p.back = rng.IntN(3) == 0
	} else {
		p.imm = rng.IntN(2) == 0 // WRITE with immediate
	}
	if rng.IntN(4) == 0 {
		p.src = size()
		p.srcOff = rng.IntN(f.Max-p.src+1) &^ 7
	}
	p.add = rng.IntN(3) == 0
	return p
}

// Kinds of requests, in the last byte of WRID.
const (
	wrRecv = iota + 1
	wrWrite
	wrBack
	wrSrc
	wrAdd
	wrLast
)

// begin posts a round.
func (f *flow) begin() error {
	r := f.round
	p := f.plan(f.Seed, r)
	b := f.mr.Bytes()
	var wrs []verbs.SendWR
	add := func(kind int, wr verbs.SendWR, at, n int) {
		wr.WRID, wr.Flags = uint64(r)<<8|uint64(kind), wr.Flags|verbs.SendSignaled
		if wr.Opcode == verbs.WRSend && wr.Imm != 0 {
			wr.Opcode = verbs.WRSendImm
		}
		switch {
		case p.inline && n <= 64 && kind != wrBack && kind != wrSrc && kind != wrAdd:
			wr.Flags |= verbs.SendInline
			wr.InlineData = b[at : at+n]
		case n > 2 && f.rng.IntN(4) == 0:
			cut, more := 1+f.rng.IntN(n-2), 0
			if f.rng.IntN(2) == 0 {
				more = f.rng.IntN(n - cut)
			}
			wr.SGList = []verbs.SGE{f.mr.SGE(at, cut), f.mr.SGE(at+cut, more), f.mr.SGE(at+cut+more, n-cut-more)}
		default:
			wr.SGList = f.mr.SGEs(at, n)
		}
		wrs = append(wrs, wr)
	}
	group := f.peer.Addr + uint64(f.group(r))
	if p.write >= 0 {
		soakFill(b[f.own(r, 0):f.own(r, 0)+p.write], f.Seed, 'w', r)
		add(wrWrite, verbs.SendWR{Opcode: verbs.WRRDMAWrite, RemoteAddr: group, RKey: f.peer.RKey}, f.own(r, 0),
			p.write)
		if p.back {
			clear(b[f.own(r, 2) : f.own(r, 2)+p.write])
			add(wrBack, verbs.SendWR{Opcode: verbs.WRRDMARead, RemoteAddr: group, RKey: f.peer.RKey}, f.own(r, 2),
				p.write)
		}
	}
	if p.src >= 0 {
		clear(b[f.own(r, 3) : f.own(r, 3)+p.src])
		add(wrSrc, verbs.SendWR{Opcode: verbs.WRRDMARead, RemoteAddr: f.peer.Addr + uint64(f.source()+p.srcOff),
			RKey: f.peer.RKey}, f.own(r, 3), p.src)
	}
	if p.add {
		add(wrAdd, verbs.SendWR{Opcode: verbs.WRAtomicFetchAdd, RemoteAddr: f.peer.Addr + uint64(f.word()),
			RKey: f.peer.RKey, CompareAdd: 1}, f.found(r), 8)
		wrs[len(wrs)-1].SGList = f.mr.SGEs(f.found(r), 8)
	}
	at := f.own(r, 1)
	soakFill(b[at:at+p.last], f.Seed, 'l', r)
	switch {
	case f.Type == verbs.RC && p.imm:
		add(wrLast, verbs.SendWR{Opcode: verbs.WRRDMAWriteImm, RemoteAddr: group, RKey: f.peer.RKey, Imm: r}, at,
			p.last)
	case f.Type == verbs.UD:
		add(wrLast, verbs.SendWR{Opcode: verbs.WRSendImm, Imm: r, AH: f.ah, RemoteQPN: f.peer.QPN,
			RemoteQKey: soakQKey}, at, p.last)
	default:
		add(wrLast, verbs.SendWR{Opcode: verbs.WRSendImm, Imm: r}, at, p.last)
	}
	f.round++
	_, err := f.qp.PostSends(wrs)
	return err
}

// run does the work until it is halted.
func (f *flow) run() {
	defer close(f.ended)
	wcs := make([]verbs.WC, 16)
	resting := false
	for {
		select {
		case <-f.halt:
			return
		default:
		}
		if lost, _ := f.outcome(); lost == "" && !resting {
			select {
			case <-f.quiet:
				resting = true
			default:
			}
			if f.round-f.done < soakAhead && !resting && (f.Type == verbs.RC || f.rng.IntN(4) == 0) {
				f.work.Lock()
				if !f.broken {
					if err := f.begin(); err != nil {
						f.end(err.Error(), nil)
					}
				}
				f.work.Unlock()
			}
		} else if lost != "" {
			resting = true
			f.stillOnce.Do(func() { close(f.still) })
		}
		if resting && f.round == f.done {
			f.stillOnce.Do(func() { close(f.still) })
		}
		n := f.next(wcs)
		for i := range wcs[:n] {
			f.handle(&wcs[i])
		}
	}
}

// next waits for completions: polling, sleeping, or busy with something else now and then.
func (f *flow) next(wcs []verbs.WC) int {
	if f.Mode == 2 && f.rng.IntN(50) == 0 {
		time.Sleep(time.Duration(f.rng.IntN(20)) * time.Millisecond)
	}
	if f.Mode == 0 {
		for range 1000 {
			if n := f.cq.Poll(wcs); n > 0 {
				return n
			}
			runtime.Gosched()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if f.Type == verbs.RC && f.round-f.done >= soakAhead {
		// Nothing else to do: only a completion helps, or somebody who gives up on us.
		cancel()
		ctx, cancel = context.WithTimeout(context.Background(), time.Second)
		defer cancel()
	}
	n, _ := f.cq.Wait(ctx, wcs)
	return n
}

func (f *flow) wrong(format string, args ...any) {
	f.end("wrong", fmt.Errorf("%w: %v flow %x: %s", errProtocol, f.Type, f.Seed, fmt.Sprintf(format, args...)))
}

func (f *flow) handle(wc *verbs.WC) {
	f.work.Lock()
	defer f.work.Unlock()
	if f.broken {
		return
	}
	if wc.Status != verbs.WCSuccess {
		f.end(wc.Status.String(), nil)
		return
	}
	b := f.mr.Bytes()
	if wc.WRID&0xFF == wrRecv {
		f.received(wc)
		return
	}
	r := uint32(wc.WRID >> 8)
	if r != f.done {
		f.wrong("a completion of round %d: want %d", r, f.done)
		return
	}
	p := f.plan(f.Seed, r)
	switch wc.WRID & 0xFF {
	case wrBack:
		if i := soakCheck(b[f.own(r, 2):f.own(r, 2)+p.write], f.Seed, 'w', r); i >= 0 {
			f.wrong("round %d: byte %d of %d that were read back is not what was written", r, i, p.write)
		}
	case wrSrc:
		if i := soakCheckAt(b[f.own(r, 3):f.own(r, 3)+p.src], f.Their, 's', 0, p.srcOff); i >= 0 {
			f.wrong("round %d: byte %d of %d that were read is wrong", r, i, p.src)
		}
	case wrAdd:
		if v := binary.LittleEndian.Uint64(b[f.found(r):]); v != f.adds {
			f.wrong("round %d: an atomic found %d: want %d", r, v, f.adds)
		}
		f.adds++
	case wrLast:
		f.done++
		f.stats.Sent++
	}
}

// received looks at a round of the peer's.
func (f *flow) received(wc *verbs.WC) {
	slot := int(wc.WRID >> 8)
	r, b := wc.ImmData, f.mr.Bytes()
	at := f.recv(slot)
	switch {
	case f.Type == verbs.RC && r != f.theirs:
		f.wrong("round %d arrived: want %d", r, f.theirs)
		return
	case r < f.theirs:
		f.wrong("round %d arrived after %d", r, f.theirs-1)
		return
	}
	f.theirs = r + 1
	p := f.plan(f.Their, r)
	n := p.last
	if f.Type == verbs.UD {
		at += 40
		n += 40
	}
	if int(wc.ByteLen) != n {
		f.wrong("round %d has %d bytes: want %d", r, wc.ByteLen, n)
		return
	}
	if p.write >= 0 {
		if i := soakCheck(b[f.group(r):f.group(r)+p.write], f.Their, 'w', r); i >= 0 {
			f.wrong("round %d: byte %d of %d that were written is wrong", r, i, p.write)
			return
		}
	}
	if f.Type == verbs.RC && p.imm {
		at = f.group(r)
	}
	if i := soakCheck(b[at:at+p.last], f.Their, 'l', r); i >= 0 {
		f.wrong("round %d: byte %d of %d that were sent is wrong", r, i, p.last)
		return
	}
	f.stats.Received++
	f.stats.Bytes += uint64(p.last + max(p.write, 0))
	if err := f.postRecv(slot); err != nil {
		f.end(err.Error(), nil)
	}
}

func soakKey(seed uint64, what byte, r uint32) uint64 {
	return (seed*0x9E3779B97F4A7C15+uint64(r))*0xBF58476D1CE4E5B9 ^ uint64(what)<<32
}

func soakWord(x uint64, i int) uint64 {
	v := (x + uint64(i)) * 0x94D049BB133111EB
	return v ^ v>>29
}

// soakFill fills b with what nothing else has.
func soakFill(b []byte, seed uint64, what byte, r uint32) {
	x := soakKey(seed, what, r)
	i := 0
	for ; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], soakWord(x, i))
	}
	for ; i < len(b); i++ {
		b[i] = byte(soakWord(x, i&^7) >> (8 * (i & 7)))
	}
}

// soakCheck is the first byte that soakFill would have made another, or -1.
func soakCheck(b []byte, seed uint64, what byte, r uint32) int {
	return soakCheckAt(b, seed, what, r, 0)
}

// soakCheckAt does so for a part that begins at off, a multiple of 8.
func soakCheckAt(b []byte, seed uint64, what byte, r uint32, off int) int {
	x := soakKey(seed, what, r)
	i := 0
	for ; i+8 <= len(b); i += 8 {
		if binary.LittleEndian.Uint64(b[i:]) != soakWord(x, off+i) {
			break
		}
	}
	for ; i < len(b); i++ {
		if b[i] != byte(soakWord(x, (off+i)&^7)>>(8*(i&7))) {
			return i
		}
	}
	return -1
}
