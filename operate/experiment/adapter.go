package experiment

import "softib/driver/jobs"

// Adapters is what the adapters of all hosts did.
type Adapters struct {
	// QueuePairs is how many the adapter with the most had.
	QueuePairs int `json:"queue_pairs"`
	// What was looked up on the chip: contexts of queue pairs, requests of READs, pages of memory.
	Contexts     Cache `json:"contexts"`
	Requests     Cache `json:"requests"`
	Translations Cache `json:"translations"`
	// Connects counts the turns of DC initiators to other peers.
	Connects uint64 `json:"connects"`
	// ToHost and FromHost are bytes on PCI Express, headers included.
	ToHost   uint64 `json:"to_host"`
	FromHost uint64 `json:"from_host"`
}

// Cache is how often something was on the chip, and how often it had to be fetched.
type Cache struct {
	Hits   uint64 `json:"hits"`
	Misses uint64 `json:"misses"`
}

// Lost is links that went down, and what that has cost.
type Lost struct {
	Links int `json:"links"`
	// Timeouts counts acknowledgements that did not come in time, Again packets that were sent once more.
	Timeouts uint64 `json:"timeouts"`
	Again    uint64 `json:"retransmits"`
}

// adapters takes what a run by packets has of them.
func (r *Report) adapters(p *jobs.Packets) {
	if links, timeouts, again := p.Lost(); links > 0 {
		r.Lost = &Lost{links, timeouts, again}
	}
	s, on := p.AdapterStats()
	if !on {
		return
	}
	r.Adapters = &Adapters{QueuePairs: p.QueuePairs(), Contexts: Cache{s.ContextHits, s.ContextMisses},
		Requests: Cache{s.RequestHits, s.RequestMisses}, Translations: Cache{s.TranslationHits, s.TranslationMisses},
		Connects: s.Connects, ToHost: s.ToHost, FromHost: s.FromHost}
}
