package webui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"softib/internal/patience"
	"softib/operate/manager"
	"softib/operate/manager/health"
	"softib/proto/ib"
)

const (
	// deadBand is by how many thousandths utilisation has to move to be told; colours show no less.
	deadBand = 4
	// errorHalfLife is how long the map remembers errors: somebody has to have a chance to see them.
	errorHalfLife = 30 * time.Second
	// writeLimit is how long a client may not read before it is cut off.
	writeLimit = 10 * time.Second
	// heartbeat tells a client that the connection still is one, between the samples of a large fabric too.
	heartbeat = 5 * time.Second
	// eventsAtOnce bounds how many events one message has.
	eventsAtOnce = 200
)

// State bits of a cable, as the page knows them. The lowest two are its health.
const (
	stateNotActive = 1 << (iota + 2)
	stateDown
	stateSlow
	stateFault
)

// cableShown is what clients were last told of a cable.
type cableShown struct {
	state  uint8
	util   [2]uint16 // what A sends, what B sends, in thousandths
	wait   [2]uint16
	errors [2]uint32 // a minute, in tenths
}

// moved reports whether a client should be told.
func (c *cableShown) moved(n *cableShown) bool {
	if c.state != n.state || c.errors != n.errors {
		return true
	}
	for i := range 2 {
		if apart(c.util[i], n.util[i]) || apart(c.wait[i], n.wait[i]) {
			return true
		}
	}
	return false
}

func apart(a, b uint16) bool {
	return a != b && (a == 0 || b == 0 || max(a, b)-min(a, b) >= deadBand)
}

// hub makes one encoded frame of each sample, which all streams share.
type hub struct {
	m     *manager.Manager
	ends  [][2]int // indices of a cable's ports in a sample
	shown []cableShown
	decay [][2]float64

	mu      sync.Mutex
	frame   *frame
	clients map[chan struct{}]struct{}
}

// frame is a state of all links, encoded as the difference to the frame before. The whole is encoded when the first
// client wants it.
type frame struct {
	seq    uint64
	delta  []byte
	status []byte
	whole  func() []byte
}

func newHub(m *manager.Manager) *hub {
	h := &hub{m: m, clients: map[chan struct{}]struct{}{}}
	cables := m.Cables()
	h.shown, h.decay, h.ends = make([]cableShown, len(cables)), make([][2]float64, len(cables)),
		make([][2]int, len(cables))
	for i, c := range cables {
		h.ends[i][0], _ = m.PortIndex(c.A)
		h.ends[i][1], _ = m.PortIndex(c.B)
	}
	h.step()
	return h
}

// run makes frames until ctx ends, and rings whenever clients should look.
func (h *hub) run(ctx context.Context) {
	samples, events := h.m.Samples(ctx), h.m.Journal().Bell(ctx)
	for {
		select {
		case <-ctx.Done():
			h.mu.Lock()
			for c := range h.clients {
				close(c)
			}
			h.clients = nil
			h.mu.Unlock()
			return
		case <-samples:
			h.step()
		case <-events:
		}
		h.mu.Lock()
		for c := range h.clients {
			select {
			case c <- struct{}{}:
			default: // it has not looked since the last ring: one is enough
			}
		}
		h.mu.Unlock()
	}
}

// step makes the next frame.
func (h *hub) step() {
	s := h.m.Sample()
	now := h.look(s)
	prev := h.last()
	f := &frame{seq: 1}
	if prev != nil {
		f.seq = prev.seq + 1
	}
	changed := make([]int, 0, 64)
	next := make([]cableShown, len(now))
	copy(next, h.shown)
	for i := range now {
		if next[i].moved(&now[i]) {
			next[i] = now[i]
			changed = append(changed, i)
		}
	}
	h.shown = next
	f.delta = encodeLinks(f.seq, s.At, false, next, changed)
	f.whole = sync.OnceValue(func() []byte {
		var busy []int
		for i := range next {
			if next[i] != (cableShown{}) {
				busy = append(busy, i)
			}
		}
		return encodeLinks(f.seq, s.At, true, next, busy)
	})
	f.status, _ = json.Marshal(readStatus(h.m)) // numbers and strings always marshal
	h.mu.Lock()
	h.frame = f
	h.mu.Unlock()
}

func (h *hub) last() *frame {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.frame
}

// look reads a sample as the map shows it.
func (h *hub) look(s *manager.Sample) []cableShown {
	now := make([]cableShown, len(h.ends))
	keep := 1.0
	if s.Interval > 0 {
		keep = pow2(-float64(s.Interval) / float64(errorHalfLife))
	}
	for i, e := range h.ends {
		c := &now[i]
		for k := range 2 {
			p := &s.Ports[e[k]]
			if full := float64(p.Rate.Mbps()) * 1e6 / 8; full > 0 {
				c.util[k] = thousandths(float64(p.XmitBytes) / full)
			}
			c.wait[k] = thousandths(float64(p.Wait))
			d := max(h.decay[i][k]*keep, float64(p.Errors)*60)
			if d < 0.5 {
				d = 0
			}
			h.decay[i][k] = d
			c.errors[k] = uint32(min(d*10, 1e9))
			switch {
			case p.State <= ib.PortDown:
				c.state |= stateDown | stateNotActive
			case p.State != ib.PortActive:
				c.state |= stateNotActive
			case p.Rate.Mbps() < p.Capable.Mbps():
				c.state |= stateSlow
			}
		}
	}
	for _, v := range h.m.Worst() {
		if v.Cable >= 0 && v.Cable < len(now) {
			now[v.Cable].state |= uint8(min(v.Severity, health.Down))
		}
	}
	for _, f := range h.m.Faults() {
		if i, ok := h.m.CableOf(f.Port); ok {
			now[i].state |= stateFault
		}
	}
	return now
}

// thousandths of 0 to 1; whatever is more than nothing is at least one.
func thousandths(v float64) uint16 {
	switch {
	case v <= 0 || v != v:
		return 0
	case v >= 1:
		return 1000
	}
	return uint16(max(1, v*1000))
}

// encodeLinks writes a message about some cables.
func encodeLinks(seq uint64, at time.Time, full bool, all []cableShown, which []int) []byte {
	b := make([]byte, 0, 64+24*len(which))
	b = append(b, `{"seq":`...)
	b = strconv.AppendUint(b, seq, 10)
	b = append(b, `,"full":`...)
	b = strconv.AppendBool(b, full)
	b = append(b, `,"at":`...)
	b = strconv.AppendInt(b, at.UnixMilli(), 10)
	b = append(b, `,"c":[`...)
	for n, i := range which {
		if n > 0 {
			b = append(b, ',')
		}
		c := &all[i]
		for k, v := range [...]uint32{uint32(i), uint32(c.state), uint32(c.util[0]), uint32(c.util[1]),
			uint32(c.wait[0]), uint32(c.wait[1]), c.errors[0], c.errors[1]} {
			if k > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(b, uint64(v), 10)
		}
	}
	return append(b, "]}"...)
}

// join adds a client; ring it when there is something.
func (h *hub) join(limit int) (chan struct{}, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clients == nil || len(h.clients) >= limit {
		return nil, false
	}
	c := make(chan struct{}, 1)
	h.clients[c] = struct{}{}
	return c, true
}

func (h *hub) leave(c chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.clients, c)
}

// serveStream tells one client what changes. Nothing waits for it: it looks at the latest frame whenever it has written
// the one before.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request) {
	bell, ok := s.hub.join(s.opts.StreamsMax)
	if !ok {
		w.Header().Set("Retry-After", "5")
		fail(w, &apiError{Status: http.StatusServiceUnavailable,
			Text: fmt.Sprintf("%d streams are open already", s.opts.StreamsMax),
			Next: "close some pages, or ask /api/v1/status now and then"})
		return
	}
	defer s.hub.leave(bell)
	w.Header().Set("Content-Type", "text/event-stream")
	out := &streamWriter{w: w, rc: http.NewResponseController(w)}
	journal := s.m.Journal()
	lastEvent := journal.Last()
	if id, err := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64); err == nil && id <= lastEvent {
		lastEvent = id
	}
	out.line("retry: 2000\n\n")
	var seq uint64
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		if f := s.hub.last(); f.seq != seq {
			if f.seq == seq+1 && seq != 0 {
				out.event("links", f.delta)
			} else {
				out.event("links", f.whole())
			}
			out.event("status", f.status)
			seq = f.seq
		}
		if events := journal.After(lastEvent, eventsAtOnce); len(events) > 0 {
			lastEvent = events[len(events)-1].ID
			b, _ := json.Marshal(events) // its fields always marshal
			out.event("events", b)
		}
		if out.flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case _, open := <-bell:
			if !open {
				return
			}
		case <-tick.C:
			out.line("event: beat\ndata: {}\n\n")
		}
	}
}

// streamWriter collects messages and sends them together, within the time that a client has.
type streamWriter struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	buf bytes.Buffer
}

func (o *streamWriter) line(s string) { o.buf.WriteString(s) }

func (o *streamWriter) event(name string, data []byte) {
	fmt.Fprintf(&o.buf, "event: %s\ndata: ", name)
	o.buf.Write(data)
	o.buf.WriteString("\n\n")
}

func (o *streamWriter) flush() error {
	if o.buf.Len() == 0 {
		return nil
	}
	_ = o.rc.SetWriteDeadline(time.Now().Add(patience.For(writeLimit))) // a writer without deadlines is a test's
	_, err := o.w.Write(o.buf.Bytes())
	o.buf.Reset()
	if err != nil {
		return err
	}
	return o.rc.Flush()
}
