package rdmacm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"softib/node/cm"
	"softib/node/hca"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
)

// endPort is one port of a host: its connection manager, its session with the management service, and what it has asked
// the administrator. It is guarded by the host's lock; one goroutine takes what comes.
type endPort struct {
	h       *host
	num     ib.PortNum
	shown   ib.PortNum // its number to programs, at the adapter
	guid    ib.GUID    // of that
	session Session
	cmAgent madrpc.AgentID
	saAgent madrpc.AgentID
	engine  *cm.Port

	conns   map[cm.ConnID]*ident
	listens map[uint64]*listening
	// outside and services are of programs without librdmacm.
	outside  map[cm.ConnID]*Conn
	services map[uint64]*service
	asks     map[uint32]func(answer)
	lastAsk  uint32
	groups   map[groupKey]*group

	timer  *time.Timer
	cancel context.CancelFunc
	done   chan struct{}
	dead   bool
}

// grace is how long a request waits for who is about to listen: a program that is told over another connection "connect
// to me now" can be faster than the other's next call, which no adapter would have let it be.
const grace = 100 * ib.Millisecond

// listening is a service ID that IDs of the host listen on. They may be several, with different addresses.
type listening struct {
	id    cm.ListenID
	users int
}

func openPort(h *host, info *Port) (*endPort, error) {
	session, err := h.s.ports.Open(h.name, info.Num)
	if err != nil {
		return nil, err
	}
	p := &endPort{
		h: h, num: info.Num, shown: info.Shown, guid: info.NodeGUID, session: session,
		conns: map[cm.ConnID]*ident{}, listens: map[uint64]*listening{}, asks: map[uint32]func(answer){},
		groups: map[groupKey]*group{}, outside: map[cm.ConnID]*Conn{}, services: map[uint64]*service{},
		done: make(chan struct{}),
		engine: cm.New(cm.Config{Rand: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), CAGUID: info.NodeGUID,
			AckDelay: hca.AckDelay, Port: info.Shown, Grace: grace}),
	}
	name := fmt.Sprintf("rdma_cm on %s port %d", h.name, info.Num)
	p.cmAgent, err = session.Register(madrpc.Registration{
		Class: mad.ClassCM, ClassVersion: mad.CMClassVersion, Methods: madrpc.MethodSet(mad.MethodSend), Name: name,
	})
	if err == nil {
		p.saAgent, err = session.Register(madrpc.Registration{Class: mad.ClassSA, ClassVersion: mad.SAVersion,
			Name: name})
	}
	if err != nil {
		session.Close()
		return nil, err
	}
	p.engine.SetAttr(cm.PortAttr{LMC: info.LMC, PKeys: info.PKeys, GIDs: info.GIDs})
	p.timer = time.AfterFunc(time.Hour, p.expire)
	p.timer.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go p.receive(ctx)
	return p, nil
}

// close ends the session; what is under way hears no more.
func (p *endPort) close() {
	p.cancel()
	<-p.done
	p.h.mu.Lock()
	p.dead = true
	p.timer.Stop()
	p.h.mu.Unlock()
	_ = p.session.Close()
}

// receive takes what comes until the session ends.
func (p *endPort) receive(ctx context.Context) {
	defer close(p.done)
	for {
		d, err := p.session.Recv(ctx)
		if err != nil {
			p.h.mu.Lock()
			p.dead = true
			p.h.mu.Unlock()
			return
		}
		p.h.mu.Lock()
		switch d.Agent {
		case p.cmAgent:
			if d.Kind == madrpc.Unsolicited {
				p.refresh(d.Data)
				p.engine.Handle(p.session.Now(), d.Env, d.Data)
				p.turn()
			}
		case p.saAgent:
			p.answered(&d)
		}
		p.h.mu.Unlock()
	}
}

// refresh tells the engine the port's tables as they are, before it looks at a request that names partitions.
func (p *endPort) refresh(dgram []byte) {
	v, err := mad.AsView(dgram)
	if err != nil || v.AttrID() != mad.AttrCMReq && v.AttrID() != mad.AttrSIDRReq {
		return
	}
	if a, err := p.h.adapter(); err == nil {
		if info := a.port(p.num); info != nil {
			p.engine.SetAttr(cm.PortAttr{LMC: info.LMC, PKeys: info.PKeys, GIDs: info.GIDs})
		}
	}
}

func (p *endPort) expire() {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	if !p.dead {
		p.engine.HandleTimer(p.session.Now())
		p.turn()
	}
}

// turn sends what the engine wants sent and passes on what it tells, until there is nothing more.
func (p *endPort) turn() {
	for moved := true; moved; {
		moved = false
		for {
			env, data, ok := p.engine.PollSend()
			if !ok {
				break
			}
			moved = true
			// A datagram that cannot be sent is as good as lost, and repeated like one.
			_ = p.session.Send(p.cmAgent, madrpc.Message{Env: env, Data: data[:]})
		}
		for {
			e, ok := p.engine.PollEvent()
			if !ok {
				break
			}
			moved = true
			p.happened(&e)
		}
	}
	if at := p.engine.NextDeadline(); at != ib.Never && !p.dead {
		p.timer.Reset(time.Duration(max(at-p.session.Now(), 0)/ib.Nanosecond) + time.Microsecond)
	}
}

// listen makes the engine take requests for a service.
func (p *endPort) listen(sid uint64) error {
	if l := p.listens[sid]; l != nil {
		l.users++
		return nil
	}
	id, err := p.engine.Listen(sid, ^uint64(0))
	if err != nil {
		return err
	}
	p.listens[sid] = &listening{id, 1}
	return nil
}

func (p *endPort) unlisten(sid uint64) {
	l := p.listens[sid]
	if l == nil {
		return
	}
	if l.users--; l.users == 0 {
		delete(p.listens, sid)
		_ = p.engine.Unlisten(l.id)
	}
}

// answer is what became of a question to the administrator: errno 0 and the record, or why there is none.
type answer struct {
	errno  syscall.Errno
	record []byte
}

// question is what the administrator is asked.
type question struct {
	method  mad.Method
	attr    mad.AttrID
	mask    uint64
	record  []byte
	timeout ib.Time // of each time that it is sent
	retries int
}

var errNoManager = fmt.Errorf("rdmacm: the port knows no subnet manager: %w", syscall.EAGAIN)

// ask sends a question; done is called with the answer, once, with the host's lock held, unless forget is called
// before.
func (p *endPort) ask(info *Port, q question, done func(answer)) (uint32, error) {
	if !info.SMLID.IsUnicast() {
		return 0, errNoManager
	}
	p.lastAsk++
	for p.asks[p.lastAsk] != nil || p.lastAsk == 0 {
		p.lastAsk++
	}
	b := make([]byte, 0, mad.Size)
	b = (&mad.Header{
		BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassSA, ClassVersion: mad.SAVersion, Method: q.method,
		AttributeID:   q.attr,
		TransactionID: uint64(p.lastAsk),
	}).Append(b)
	b = append(b, make([]byte, mad.SAHeaderOff-len(b))...)
	b = (&mad.SAHeader{ComponentMask: q.mask}).Append(b)
	b = append(b, q.record...)
	key, _ := info.keyIndex(ib.PKeyDefault)
	err := p.session.Send(p.saAgent, madrpc.Message{
		Env:  mad.Envelope{LID: info.SMLID, QPN: ib.QPNGSI, QKey: ib.QKeyGSI, SL: info.SMSL, PKeyIndex: key},
		Data: b, Timeout: q.timeout, Retries: q.retries, Cookie: uint64(p.lastAsk),
	})
	if err != nil {
		return 0, err
	}
	p.asks[p.lastAsk] = done
	return p.lastAsk, nil
}

// forget drops a question; its answer concerns nobody any more.
func (p *endPort) forget(n uint32) { delete(p.asks, n) }

// answered passes an answer to who asked.
func (p *endPort) answered(d *madrpc.Delivery) {
	done := p.asks[uint32(d.Cookie)]
	if done == nil {
		return
	}
	delete(p.asks, uint32(d.Cookie))
	a := answer{errno: syscall.ETIMEDOUT}
	if d.Kind == madrpc.Response {
		a.errno = syscall.EINVAL
		if v, err := mad.AsView(d.Data); err == nil && v.Status() == mad.StatusOK {
			a = answer{record: d.Data[mad.SADataOff:]}
		}
	}
	done(a)
	p.turn()
}
