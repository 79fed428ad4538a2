package manager

import (
	"context"
	"slices"
	"sync"
	"time"

	"softib/proto/ib"
	"softib/proto/topo"
)

// Sample is what all ports showed at one moment. It is never changed once it is there.
type Sample struct {
	Seq uint64
	At  time.Time
	// Interval is the time since the sample before, which rates are over; 0 for the first.
	Interval time.Duration
	// Epoch is the fabric's: equal ones have equal states.
	Epoch uint64
	// Ports are in the order of Manager.Ports.
	Ports []PortSample
	// XmitBytes and RcvBytes are what hosts have sent and received a second, all together.
	XmitBytes, RcvBytes float64
	// Active counts the cables whose link is Active, Down those whose link is down.
	Active, Down int
}

// PortSample is one port in a sample.
type PortSample struct {
	State ib.PortState
	// Rate is what the link runs at, Capable what both ends could; zero without a link.
	Rate, Capable ib.LinkRate
	// MTU is that of the link.
	MTU ib.MTU
	// Counters are totals since the fabric began.
	Counters ib.Counters
	// Bytes and packets a second.
	XmitBytes, RcvBytes, XmitPkts, RcvPkts float32
	// Wait is the part of the time in which there was something to send and no credit for it, 0 to 1.
	Wait float32
	// Errors a second, of all kinds that a good link has none of, and packets a second that were discarded or refused.
	Errors, Discards float32
}

// Utilisation is the part of the link's capacity that is in use, in the busier direction, 0 to 1.
func (p *PortSample) Utilisation() float64 {
	full := float64(p.Rate.Mbps()) * 1e6 / 8
	if full <= 0 {
		return 0
	}
	return min(float64(max(p.XmitBytes, p.RcvBytes))/full, 1)
}

// ErrorTotal is how much a link has done that a good one does not: damage, and times that it went down.
func ErrorTotal(c *ib.Counters) uint64 { return c.Errors() + c[ib.LinkDownedCounter] }

// intervalFor is how often a fabric is looked at: a look at 70,000 ports takes some 20 ms.
func intervalFor(ports int) time.Duration {
	if ports <= 8192 {
		return time.Second
	}
	return 5 * time.Second
}

// sampler is what the next sample needs of the last one.
type sampler struct {
	mu  sync.Mutex
	seq uint64
}

// Sample is the last one.
func (m *Manager) Sample() *Sample { return m.sample.Load() }

// Samples rings whenever there is a new sample, until ctx ends; one ring may stand for several.
func (m *Manager) Samples(ctx context.Context) <-chan struct{} { return m.samples.bell(ctx) }

// Fresh is a sample as of now. It has no effect on others' intervals: its rates are those of the last.
func (m *Manager) Fresh() *Sample {
	last := m.Sample()
	s := &Sample{Seq: last.Seq, At: time.Now(), Interval: last.Interval, Epoch: m.opts.Fabric.Epoch(),
		XmitBytes: last.XmitBytes, RcvBytes: last.RcvBytes}
	s.Ports = append(s.Ports, last.Ports...)
	m.look(s, last)
	return s
}

// Measure is a sample whose rates are those of the time from now on: what has happened before is not in it.
func (m *Manager) Measure(ctx context.Context, over time.Duration) (*Sample, error) {
	first := m.Fresh()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(over):
	}
	s := &Sample{Seq: first.Seq, At: time.Now(), Epoch: m.opts.Fabric.Epoch(), Ports: slices.Clone(first.Ports)}
	s.Interval = s.At.Sub(first.At)
	m.look(s, first)
	m.rates(s, first)
	return s, nil
}

// look fills in states and counters. States are read only if something has changed since another sample.
func (m *Manager) look(s, last *Sample) {
	if last == nil || s.Epoch != last.Epoch {
		for i, r := range m.ports {
			m.lookAt(r, &s.Ports[i])
		}
		for _, c := range m.cables {
			a, _ := m.PortIndex(c.A)
			b, _ := m.PortIndex(c.B)
			x, y := &s.Ports[a], &s.Ports[b]
			best := x.Capable.Lesser(y.Capable)
			x.Capable, y.Capable = best, best
			switch {
			case min(x.State, y.State) == ib.PortActive:
				s.Active++
			case min(x.State, y.State) <= ib.PortDown:
				s.Down++
			}
		}
	} else {
		s.Active, s.Down = last.Active, last.Down
	}
	for i, c := range m.opts.Fabric.CountersOf(m.ports) {
		s.Ports[i].Counters = c
	}
}

// lookAt reads the state of a port.
func (m *Manager) lookAt(r topo.PortRef, p *PortSample) {
	pi, ok := m.opts.Fabric.PortInfo(r)
	if !ok {
		return
	}
	p.State, p.Rate, p.MTU = pi.PortState, ib.LinkRate{}, pi.NeighborMTU
	if pi.PortState > ib.PortDown {
		p.Rate = pi.Rate()
	}
	p.Capable = ib.LinkRate{Width: pi.LinkWidthSupported.Widest(), Speed: pi.SupportedSpeed()}
}

// take makes the next sample.
func (m *Manager) take(now time.Time) {
	m.sampler.mu.Lock()
	defer m.sampler.mu.Unlock()
	last := m.Sample()
	m.sampler.seq++
	s := &Sample{Seq: m.sampler.seq, At: now, Epoch: m.opts.Fabric.Epoch(), Ports: make([]PortSample, len(m.ports))}
	if last != nil {
		s.Interval = now.Sub(last.At)
		copy(s.Ports, last.Ports)
	}
	m.look(s, last)
	if last != nil && s.Interval > 0 {
		m.rates(s, last)
	}
	m.sample.Store(s)
	m.sampled(s, last)
	m.samples.ring()
}

// rates works out what happened since the last sample.
func (m *Manager) rates(s, last *Sample) {
	sec := s.Interval.Seconds()
	for i := range s.Ports {
		p, q := &s.Ports[i], &last.Ports[i]
		diff := func(k ib.Counter) float32 {
			if p.Counters[k] <= q.Counters[k] {
				return 0
			}
			return float32(float64(p.Counters[k]-q.Counters[k]) / sec)
		}
		p.XmitBytes, p.RcvBytes = 4*diff(ib.PortXmitData), 4*diff(ib.PortRcvData)
		p.XmitPkts, p.RcvPkts = diff(ib.PortXmitPkts), diff(ib.PortRcvPkts)
		p.Wait, p.Errors, p.Discards = 0, 0, 0
		// A tick of PortXmitWait is the time of 4 bytes on the link.
		if full := float64(p.Rate.Mbps()) * 1e6 / 8; full > 0 {
			p.Wait = min(float32(4*float64(diff(ib.PortXmitWait))/full), 1)
		}
		if now, was := ErrorTotal(&p.Counters), ErrorTotal(&q.Counters); now > was {
			p.Errors = float32(float64(now-was) / sec)
		}
		if now, was := p.Counters.Discards(), q.Counters.Discards(); now > was {
			p.Discards = float32(float64(now-was) / sec)
		}
		if !m.g.Nodes[m.ports[i].Node].IsSwitch() {
			s.XmitBytes += float64(p.XmitBytes)
			s.RcvBytes += float64(p.RcvBytes)
		}
	}
}

// Paced is a fabric whose counters are read now and then and not whenever they are asked for: samples are taken when
// there is something new.
type Paced interface {
	// Reads sends when the counters were last read, until ctx ends. One that nobody has taken makes room for the next.
	Reads(ctx context.Context) <-chan time.Time
}

// run samples until ctx ends.
func (m *Manager) run(ctx context.Context) {
	t := time.NewTicker(m.opts.Interval)
	defer t.Stop()
	tick := t.C
	if p, ok := m.opts.Fabric.(Paced); ok {
		tick = p.Reads(ctx)
	}
	probe := time.NewTicker(adminProbeEvery)
	defer probe.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-probe.C:
			m.probeAdmin(ctx)
		case now := <-tick:
			m.take(now)
		}
	}
}

// bells ring for any number of listeners. None of them can hold up who rings.
type bells struct {
	mu   sync.Mutex
	list map[chan struct{}]bool
}

func (b *bells) bell(ctx context.Context) <-chan struct{} {
	c := make(chan struct{}, 1)
	b.mu.Lock()
	if b.list == nil {
		b.list = map[chan struct{}]bool{}
	}
	b.list[c] = true
	b.mu.Unlock()
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		delete(b.list, c)
		b.mu.Unlock()
	})
	return c
}

func (b *bells) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.list {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
