package live

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/proto/trace"
	"softib/proto/wire"
)

// Sink takes captured packets, as they stood on the cable and in the order in which they passed. trace.Pcapng and
// trace.JSON are sinks. It is called by one goroutine; the event is valid during the call only.
type Sink interface {
	Write(*trace.Event) error
}

// captureBytes is how much of a capture waits for its sink before packets wait too.
const captureBytes = 4 << 20

// capture is a capture that runs.
type capture struct {
	f     *Fabric
	sink  Sink
	ports []*portState

	mu      sync.Mutex // guards what is below; taken after all others
	records []captured
	bytes   []byte
	bell    chan struct{}
	stopped bool
	err     error
	done    chan struct{}
}

// captured is a packet that passed a port. Its bytes end at end.
type captured struct {
	at   ib.Time
	port topo.PortRef
	dir  trace.Dir
	note string
	end  int
}

// Start is when the fabric's time began: what times of captures are counted from.
func (f *Fabric) Start() time.Time { return f.start }

// Capture shows every packet that crosses one of the ports, in either direction, to a sink: the data of programs in
// processes of their own, which from now on go through the switches one by one, and packets of management. It is
// complete: while the sink does not keep up, packets wait. Stop ends it, hands over what is left, and returns the
// sink's first error, after which the sink was not called any more.
//
// A host is captured by capturing all its ports.
func (f *Fabric) Capture(refs []topo.PortRef, sink Sink) (stop func() error, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &capture{f: f, sink: sink, bell: make(chan struct{}, 1), done: make(chan struct{})}
	for _, r := range refs {
		p, err := f.cabled(r)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(c.ports, p) {
			c.ports = append(c.ports, p)
		}
	}
	if len(c.ports) == 0 {
		return nil, fmt.Errorf("live: a capture of no port: %w", ErrFault)
	}
	if err := f.startPlane(); err != nil {
		return nil, err
	}
	for _, p := range c.ports {
		p.taps = append(p.taps, c)
	}
	f.captures = append(f.captures, c)
	f.reroute()
	go c.write()
	return sync.OnceValue(c.stop), nil
}

func (c *capture) stop() error {
	f := c.f
	f.mu.Lock()
	for _, p := range c.ports {
		p.taps = slices.DeleteFunc(slices.Clone(p.taps), func(o *capture) bool { return o == c })
	}
	f.captures = slices.DeleteFunc(f.captures, func(o *capture) bool { return o == c })
	f.changed()
	f.mu.Unlock()
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	c.ring()
	<-c.done
	f.mu.Lock()
	f.plane.knock() // packets may have waited for the sink
	f.mu.Unlock()
	return c.err
}

func (c *capture) ring() {
	select {
	case c.bell <- struct{}{}:
	default:
	}
}

// write hands what was captured to the sink until the capture ends.
func (c *capture) write() {
	defer close(c.done)
	var records []captured
	var bytes []byte
	for {
		c.mu.Lock()
		full := len(c.bytes) >= captureBytes
		records, c.records = c.records, records[:0]
		bytes, c.bytes = c.bytes, bytes[:0]
		stopped := c.stopped
		c.mu.Unlock()
		if full {
			c.f.mu.Lock()
			c.f.plane.knock()
			c.f.mu.Unlock()
		}
		at := 0
		for _, r := range records {
			if c.err == nil {
				c.err = c.sink.Write(&trace.Event{
					Time: r.at, Node: uint32(r.port.Node), Port: r.port.Port, Kind: trace.Packet, Dir: r.dir,
					Bytes: bytes[at:r.end], Note: r.note,
				})
			}
			at = r.end
		}
		if len(records) > 0 {
			continue
		}
		if stopped {
			return
		}
		<-c.bell
	}
}

// isFull reports whether packets have to wait for the sink.
func (c *capture) isFull() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.bytes) >= captureBytes
}

// tap shows a packet that passes a port to whoever captures there.
func (p *portState) tap(at ib.Time, dir trace.Dir, pkt *wire.Packet) {
	for _, c := range p.taps {
		c.mu.Lock()
		c.bytes = pkt.Append(c.bytes)
		c.add(captured{at: at, port: p.ref(), dir: dir})
		c.mu.Unlock()
	}
}

// tapBytes does so with one that is no packet any more.
func (p *portState) tapBytes(at ib.Time, dir trace.Dir, b []byte, note string) {
	for _, c := range p.taps {
		c.mu.Lock()
		c.bytes = append(c.bytes, b...)
		c.add(captured{at: at, port: p.ref(), dir: dir, note: note})
		c.mu.Unlock()
	}
}

func (c *capture) add(r captured) {
	r.end = len(c.bytes)
	c.records = append(c.records, r)
	if len(c.records) == 1 {
		c.ring()
	}
}

// tapMgmt shows a management packet that passes a port.
func (f *Fabric) tapMgmt(p *portState, dir trace.Dir, vl ib.VL, m *packet) {
	pkt := wire.Packet{
		LRH:  wire.LRH{VL: vl, LNH: wire.LNHLocal, SL: m.sl, DLID: m.dlid, SLID: m.slid},
		BTH:  wire.BTH{Opcode: wire.MakeOpcode(wire.UD, wire.OpSendOnly), PKey: m.pkey, DestQP: m.dstQP},
		DETH: wire.DETH{QKey: m.qkey, SrcQP: m.srcQP}, Payload: m.data[:mad.Size],
	}
	if m.dstQP == ib.QPNSMI {
		pkt.BTH.PKey = ib.PKeyDefault // which nobody looks at (IBA 10.9.4)
	} else if m.hasGRH {
		pkt.LRH.LNH = wire.LNHGlobal
		pkt.GRH = wire.GRH{
			IPVer: wire.GRHVersion, TClass: m.tclass, Flow: m.flow, NxtHdr: wire.GRHNextIBA, HopLimit: m.hopLimit,
			SGID: m.sgid, DGID: m.dgid,
		}
	}
	pkt.Seal()
	p.tap(f.Now(), dir, &pkt)
}
