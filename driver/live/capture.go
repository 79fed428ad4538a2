package live

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"softib/fabric"
	"softib/proto/topo"
	"softib/proto/trace"
)

// captureBytes is how much of a capture waits for its sink before packets wait too.
const captureBytes = 4 << 20

// capture is a capture that runs.
type capture struct {
	f     *Fabric
	sink  fabric.Sink
	ports []*portState

	mu      sync.Mutex    // guards what is below; taken after all others
	records []trace.Event // whose bytes are among bytes
	bytes   []byte
	bell    chan struct{}
	stopped bool
	err     error
	done    chan struct{}
}

// Start is when the fabric's time began: what times of captures are counted from.
func (f *Fabric) Start() time.Time { return f.start }

// Capture shows every packet that crosses one of the ports, in either direction, to a sink, as they stood on the cable
// and in the order in which they passed: the data of programs, which from now on go through the switches one by one,
// and packets of management. It is complete: while the sink does not keep up, packets wait. The sink is called by one
// goroutine. Stop ends it, hands over what is left, and returns the sink's first error, after which the sink was not
// called any more.
//
// A host is captured by capturing all its ports.
func (f *Fabric) Capture(refs []topo.PortRef, sink fabric.Sink) (stop func() error, err error) {
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
		f.eng.Tap(p.place(), true)
	}
	f.eng.SetSink(f.plane)
	f.captures = append(f.captures, c)
	f.reroute()
	go c.write()
	return sync.OnceValue(c.stop), nil
}

func (c *capture) stop() error {
	f := c.f
	f.mu.Lock()
	for _, p := range c.ports {
		p.taps = without(p.taps, c)
		f.eng.Tap(p.place(), len(p.taps) > 0)
	}
	f.captures = without(f.captures, c)
	if len(f.captures) == 0 {
		f.eng.SetSink(nil)
	}
	f.changed()
	f.mu.Unlock()
	c.end()
	<-c.done
	f.mu.Lock()
	f.plane.knock() // packets may have waited for the sink
	f.mu.Unlock()
	return c.err
}

// end makes write return when it has handed over what is left.
func (c *capture) end() {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	ring(c.bell)
}

// write hands what was captured to the sink until the capture ends.
func (c *capture) write() {
	defer close(c.done)
	var records []trace.Event
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
		for i := range records {
			if c.err == nil {
				c.err = c.sink.Write(&records[i])
			}
		}
		switch {
		case len(records) > 0:
		case stopped:
			return
		default:
			<-c.bell
		}
	}
}

// isFull reports whether packets have to wait for the sink.
func (c *capture) isFull() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.bytes) >= captureBytes
}

// Write shows a packet that passes a port to whoever captures there.
func (s *plane) Write(e *trace.Event) error {
	if e.Kind == trace.Packet {
		s.f.nodes[e.Node].ports[e.Port].show(e)
	}
	return nil
}

// show is Write for a port.
func (p *portState) show(e *trace.Event) {
	for _, c := range p.taps {
		c.mu.Lock()
		start := len(c.bytes)
		if e.Packet != nil {
			c.bytes = e.Packet.Append(c.bytes)
		} else {
			c.bytes = append(c.bytes, e.Bytes...)
		}
		c.records = append(c.records, trace.Event{Time: e.Time, Node: uint32(p.topo.Index), Port: p.num,
			Kind: trace.Packet, Dir: e.Dir, Note: e.Note, Bytes: c.bytes[start:]})
		if len(c.records) == 1 {
			ring(c.bell)
		}
		c.mu.Unlock()
	}
}
