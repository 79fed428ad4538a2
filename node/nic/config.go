package nic

import (
	"slices"

	"softib/proto/ib"
)

// PCIe is an adapter's link to its host.
type PCIe struct {
	Gen, Lanes int
	// RoundTrip is how long a read of the host's memory takes.
	RoundTrip ib.Time
}

// genMBps is what a lane of a generation carries in each direction, after its line code.
var genMBps = [...]int64{1: 250, 2: 500, 3: 985, 4: 1969, 5: 3938, 6: 7563}

// MaxGen is the newest generation of PCI Express that is known.
const MaxGen = len(genMBps) - 1

// MBps is the link's rate, headers included.
func (p PCIe) MBps() int64 { return genMBps[p.Gen] * int64(p.Lanes) }

// Config is an adapter. The zero value is none: packets cost nothing.
type Config struct {
	PCIe PCIe
	// Packet is how long each of the two pipelines is busy with a packet.
	Packet ib.Time
	// Fetches is how many packets wait for the host's memory at a time, because a cache did not have what they need.
	Fetches int
	// Contexts, Requests and Translations are what the caches hold: contexts of queue pairs, READs and atomics under
	// way, which need their request again when the response comes, and pages of registered memory. 0 holds all.
	Contexts, Requests, Translations int
	// Page is how large a page of registered memory is; 0 is 4096.
	Page uint64
	// Inline is up to how many bytes of a message come with its doorbell, so that neither they nor the request are
	// fetched.
	Inline int
	// Shared, if it is not 0, is how many initiators of dynamically connected transport (DC) all queue pairs share:
	// there are as many contexts, and one that turns to another peer first sends it a packet to connect.
	Shared int
}

// On reports whether there is anything to pay for.
func (c *Config) On() bool { return c.Packet > 0 }

// Model is an adapter that is known by name.
type Model struct {
	Name, Help string
	Config     Config
}

// Models are the adapters that are known.
//
// The generation of PCI Express is the data sheet's. RoundTrip is what Neugebauer and others measured of reads of 64
// bytes on servers (Understanding PCIe performance for end host networking, SIGCOMM 2018: 0.5 to 0.6 us).
//
// Of ConnectX-6 three figures are fitted to measurements of one kind (docs/VALIDATION.md, Adapters): Packet to WRITEs
// on 32 queue pairs, Fetches to READs on 512, Requests to READs on 64. Contexts is a round number; from 600 to 2,000 it
// changes little there. Translations and Inline are assumed.
//
// For the others there was nothing to fit. The data sheets promise 200, 215 and 330 million messages a second of the
// three; Packet is taken in proportion to ConnectX-6's, and all else is taken from there: assumptions.
var Models = []Model{
	{"cx5", "ConnectX-5, PCIe 3.0 x16", like(3, 8740)},
	{"cx6", "ConnectX-6, PCIe 4.0 x16", like(4, 8130)},
	{"cx7", "ConnectX-7, PCIe 5.0 x16", like(5, 5300)},
}

func like(gen int, packet ib.Time) Config {
	return Config{PCIe: PCIe{Gen: gen, Lanes: 16, RoundTrip: 550 * ib.Nanosecond}, Packet: packet, Fetches: 23,
		Contexts: 1024, Requests: 716, Translations: 16384}
}

// Find is the model of a name.
func Find(name string) (Model, bool) {
	i := slices.IndexFunc(Models, func(m Model) bool { return m.Name == name })
	if i < 0 {
		return Model{}, false
	}
	return Models[i], true
}
