package nic

import (
	"cmp"

	"softib/proto/ib"
	"softib/proto/wire"
)

// Sizes of what crosses PCI Express, in bytes: a doorbell, a request, a completion, a context and a translation. A
// packet of PCIe carries up to tlpMax, and its headers take tlpHead.
const (
	doorbellSize    = 8
	requestSize     = 64
	completionSize  = 64
	contextSize     = 256
	translationSize = 64
	tlpMax          = 256
	tlpHead         = 24
)

// Stats counts what an adapter did.
type Stats struct {
	Sent, Received uint64 // packets
	// Hits and misses of the caches.
	ContextHits, ContextMisses         uint64
	RequestHits, RequestMisses         uint64
	TranslationHits, TranslationMisses uint64
	// Connects counts the turns of DC initiators to other peers.
	Connects uint64
	// ToHost and FromHost are bytes on PCI Express, headers included.
	ToHost, FromHost uint64
}

// Add adds another adapter's.
func (s *Stats) Add(t Stats) {
	s.Sent, s.Received = s.Sent+t.Sent, s.Received+t.Received
	s.ContextHits, s.ContextMisses = s.ContextHits+t.ContextHits, s.ContextMisses+t.ContextMisses
	s.RequestHits, s.RequestMisses = s.RequestHits+t.RequestHits, s.RequestMisses+t.RequestMisses
	s.TranslationHits += t.TranslationHits
	s.TranslationMisses += t.TranslationMisses
	s.Connects += t.Connects
	s.ToHost, s.FromHost = s.ToHost+t.ToHost, s.FromHost+t.FromHost
}

// Adapter is one.
type Adapter struct {
	cfg              Config
	sending          ib.Time // the pipelines take the next packet then
	receiving        ib.Time
	toHost, fromHost ib.Time   // PCIe is free again
	fetches          []ib.Time // when each of the places for waiting packets is free again
	contexts         cache
	requests         cache
	translations     cache
	peers            []ib.QPN  // of each DC initiator: whom it is connected to
	left, came       []ib.Time // by queue pair: when its last packet left and was ready
	stats            Stats
}

// New makes an adapter of which cfg.On is true.
func New(cfg Config) *Adapter {
	cfg.Page = cmp.Or(cfg.Page, 4096)
	return &Adapter{cfg: cfg, fetches: make([]ib.Time, max(cfg.Fetches, 1)),
		contexts: newCache(cfg.Contexts, contextWays), requests: newCache(cfg.Requests, requestWays),
		translations: newCache(cfg.Translations, translationWays), peers: make([]ib.QPN, cfg.Shared)}
}

// Stats is what the adapter did so far.
func (a *Adapter) Stats() Stats {
	s := a.stats
	s.ContextHits, s.ContextMisses = a.contexts.hits, a.contexts.misses
	s.RequestHits, s.RequestMisses = a.requests.hits, a.requests.misses
	s.TranslationHits, s.TranslationMisses = a.translations.hits, a.translations.misses
	return s
}

// NextSend and NextReceive are when the pipelines take another packet.
func (a *Adapter) NextSend() ib.Time    { return a.sending }
func (a *Adapter) NextReceive() ib.Time { return a.receiving }

// Send is a packet that hca has made for queue pair q. first says that its request is the only one of its queue pair
// under way: then the adapter hears of it by a doorbell now, while it has looked at others ahead of time. It returns
// when the packet is at the port.
func (a *Adapter) Send(now ib.Time, q ib.QPN, p *wire.Packet, first bool) (leave ib.Time) {
	info := p.BTH.Opcode.Info()
	a.stats.Sent++
	busy := a.cfg.Packet
	misses := 0
	// Whose turn comes is known ahead of time, so that contexts are fetched ahead too: that takes time, but no place.
	if a.context(now, q) {
		misses++
	}
	if n := ib.QPN(len(a.peers)); n > 0 && info.Is(wire.FlagRequest) && a.peers[q%n] != p.BTH.DestQP {
		a.peers[q%n] = p.BTH.DestQP
		a.stats.Connects++
		busy += a.cfg.Packet
	}
	ready := now + ib.Time(misses)*a.cfg.PCIe.RoundTrip
	a.sending = now + busy
	half, inline := a.cfg.PCIe.RoundTrip/2, false
	if info.Is(wire.FlagRequest) && info.Is(wire.FlagStart) {
		inline = a.cfg.Inline > 0 && info.Is(wire.FlagEnd) && p.PayloadLen() <= a.cfg.Inline
		come := doorbellSize
		switch {
		case inline:
			come += requestSize + p.PayloadLen()
		case first:
			ready += a.cfg.PCIe.RoundTrip
		}
		if first {
			ready += half
		}
		ready = max(ready, a.cross(&a.fromHost, &a.stats.FromHost, now, come))
		if !inline {
			ready = max(ready, a.cross(&a.fromHost, &a.stats.FromHost, now, requestSize))
		}
		if info.Kind == wire.KindReadRequest || info.Kind == wire.KindAtomic {
			a.requests.put(request(q, p.BTH.PSN))
		}
	}
	if n := p.PayloadLen(); n > 0 && !inline {
		ready = max(ready+a.cfg.PCIe.RoundTrip, a.cross(&a.fromHost, &a.stats.FromHost, now, n))
	}
	return inOrder(&a.left, q, ready)
}

// Receive is a packet that has arrived, which the pipeline takes now. It returns when hca gets it: what it needs is
// there, and who waits for it at the host has been told.
func (a *Adapter) Receive(now ib.Time, p *wire.Packet) (ready ib.Time) {
	info := p.BTH.Opcode.Info()
	q := p.BTH.DestQP
	a.stats.Received++
	misses := 0
	if a.context(now, q) {
		misses++
	}
	switch {
	case info.Has(wire.ExtRETH):
		if !a.translations.take(p.RETH.VA/a.cfg.Page<<32 | uint64(p.RETH.RKey)) {
			a.cross(&a.fromHost, &a.stats.FromHost, now, translationSize)
			misses++
		}
	case info.Is(wire.FlagStart) && (info.Kind == wire.KindReadResponse || info.Kind == wire.KindAtomicAck):
		// The adapter has to know where the data go, which the request says. It has sent that long ago.
		if !a.requests.has(request(q, p.BTH.PSN)) {
			a.cross(&a.fromHost, &a.stats.FromHost, now, requestSize)
			misses++
		}
	}
	start, ready := a.fetch(now, misses)
	a.receiving = max(now+a.cfg.Packet, start)
	if n := p.PayloadLen(); n > 0 {
		ready = max(ready, a.cross(&a.toHost, &a.stats.ToHost, now, n))
	}
	if info.Is(wire.FlagEnd) && (info.Is(wire.FlagRecv) || !info.Is(wire.FlagRequest)) {
		ready = max(ready, a.cross(&a.toHost, &a.stats.ToHost, now, completionSize)) + a.cfg.PCIe.RoundTrip/2
	}
	return inOrder(&a.came, q, ready)
}

// request names a READ or atomic that is under way.
func request(q ib.QPN, first ib.PSN) uint64 { return uint64(q)<<24 | uint64(first) }

// context reports whether the context of a queue pair has to be fetched.
func (a *Adapter) context(now ib.Time, q ib.QPN) bool {
	if n := ib.QPN(len(a.peers)); n > 0 {
		q %= n
	}
	if a.contexts.take(uint64(q)) {
		return false
	}
	a.cross(&a.fromHost, &a.stats.FromHost, now, contextSize)
	return true
}

// fetch lets a packet wait for so many reads of the host's memory, each of which needs what the one before has brought.
// It begins when there is a place to wait in; until then the pipeline stands still.
func (a *Adapter) fetch(now ib.Time, reads int) (start, end ib.Time) {
	if reads == 0 {
		return now, now
	}
	best := 0
	for i, t := range a.fetches {
		if t < a.fetches[best] {
			best = i
		}
	}
	start = max(now, a.fetches[best])
	end = start + ib.Time(reads)*a.cfg.PCIe.RoundTrip
	a.fetches[best] = end
	return start, end
}

// cross puts bytes on one direction of PCI Express and returns when they have crossed it.
func (a *Adapter) cross(free *ib.Time, count *uint64, now ib.Time, bytes int) ib.Time {
	n := int64(bytes + (bytes+tlpMax-1)/tlpMax*tlpHead)
	*count += uint64(n)
	*free = max(*free, now) + ib.Time(n*int64(ib.Microsecond)/a.cfg.PCIe.MBps())
	return *free
}

// orderMax bounds the memory for order: queue pairs beyond share a place, and wait for each other a little.
const orderMax = 1 << 16

// inOrder keeps a packet behind those of its queue pair.
func inOrder(last *[]ib.Time, q ib.QPN, t ib.Time) ib.Time {
	i := int(q) & (orderMax - 1)
	for i >= len(*last) {
		*last = append(*last, make([]ib.Time, i+64-len(*last))...)
	}
	t = max(t, (*last)[i])
	(*last)[i] = t
	return t
}
