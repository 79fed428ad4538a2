package manager

import (
	"context"
	"sync"
	"time"

	"softib/proto/ib"
	"softib/proto/topo"
)

// How long the subnet administrator takes is measured as a program sees it: a query for a path goes out from a host, by
// datagrams, now and then.

// adminProbeEvery is the time between two such queries.
const adminProbeEvery = 10 * time.Second

// AdminBounds are the upper bounds of AdminLatency's buckets.
var AdminBounds = [...]time.Duration{
	50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond, time.Millisecond,
	2 * time.Millisecond,
	5 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond, time.Second,
}

// AdminLatency says how long queries to the subnet administrator took since the manager began.
type AdminLatency struct {
	// Count were answered, and took Sum together; Failed were not.
	Count, Failed uint64
	Sum           time.Duration
	// Buckets count those that took no longer than the bound of the same index, and no bound before.
	Buckets [len(AdminBounds) + 1]uint64
	// Last is the last one's, at the time At.
	Last time.Duration
	At   time.Time
}

type adminProbe struct {
	mu sync.Mutex
	AdminLatency
}

// AdminLatency is how the subnet administrator answers.
func (m *Manager) AdminLatency() AdminLatency {
	m.admin.mu.Lock()
	defer m.admin.mu.Unlock()
	return m.admin.AdminLatency
}

// probeAdmin asks the administrator for a path, from the first host that has an address to the last.
func (m *Manager) probeAdmin(ctx context.Context) {
	var ends []topo.PortRef
	for _, h := range m.g.Hosts() {
		r := topo.PortRef{Node: h.Index, Port: 1}
		if pi, ok := m.opts.Fabric.PortInfo(r); ok && pi.PortState == ib.PortActive && pi.MasterSMLID != 0 {
			if ends = append(ends, r); len(ends) == 2 {
				break
			}
		}
	}
	if len(ends) < 2 {
		return // no subnet, nobody to ask
	}
	a, err := NewAsker(m.opts.Fabric, ends[0])
	if err != nil {
		return
	}
	defer a.Close()
	began := time.Now()
	recs, err := a.Paths(ctx, []ib.LID{a.info.MasterSMLID}, []ib.LID{m.LID(ends[1])})
	took := time.Since(began)
	if ctx.Err() != nil {
		return
	}
	l := &m.admin
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || recs[0] == nil {
		l.Failed++
		return
	}
	i := 0
	for i < len(AdminBounds) && took > AdminBounds[i] {
		i++
	}
	l.Buckets[i]++
	l.Count++
	l.Sum += took
	l.Last, l.At = took, began
}
