package sim

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// meeting is where all parts wait for each other. Windows are short and parts equal, so that who comes first looks for
// a while before it sleeps.
type meeting struct {
	all   int32
	looks int
	there atomic.Int32
	turn  atomic.Uint32
	mu    sync.Mutex
	over  *sync.Cond
}

// looks is how often a part looks for the others before it sleeps: some tenths of a millisecond.
const looks = 100_000

func (m *meeting) init(n int) {
	m.all = int32(n)
	if n <= runtime.GOMAXPROCS(0) {
		m.looks = looks
	}
	m.over = sync.NewCond(&m.mu)
}

func (m *meeting) wait() {
	turn := m.turn.Load()
	if m.there.Add(1) == m.all {
		m.there.Store(0)
		m.mu.Lock()
		m.turn.Add(1)
		m.mu.Unlock()
		m.over.Broadcast()
		return
	}
	for range m.looks {
		if m.turn.Load() != turn {
			return
		}
	}
	m.mu.Lock()
	for m.turn.Load() == turn {
		m.over.Wait()
	}
	m.mu.Unlock()
}

// pace knows whether processors that work together are quicker than one alone. They are not where there is little to do
// in a window, or where the machine has other things to do: a window takes until the last of them has got a processor.
type pace struct {
	cost  [2]float64 // of a hop, alone and together, in nanoseconds; 0 is not known
	left  int        // slices until the worse way is tried again,
	every int        // and how many there will be the next time
	// trying: what the next windows take is news, of which more than a mean is to be learned.
	trying bool
}

// How many windows a slice has, and one that is only to try; how many slices there are between two tries.
const (
	slice    = 1024
	try      = 64
	minEvery = 16
	maxEvery = 256
)

// choose says how to do the next windows, and how many.
func (c *pace) choose() (together bool, windows int) {
	c.trying = true
	switch better := c.better(); {
	case c.cost[1] == 0:
		return true, try
	case c.cost[0] == 0:
		return false, try
	case c.left <= 0:
		c.every = min(max(2*c.every, minEvery), maxEvery)
		c.left = c.every
		return !better, try
	default:
		c.left--
		c.trying = false
		return better, slice
	}
}

// better reports whether together is.
func (c *pace) better() bool { return c.cost[1] <= c.cost[0] }

// note learns what it took.
func (c *pace) note(together bool, took time.Duration, hops uint64) {
	if hops == 0 {
		return
	}
	before, way := c.better(), 0
	if together {
		way = 1
	}
	cost := float64(took.Nanoseconds()) / float64(hops)
	if !c.trying {
		cost = (3*c.cost[way] + cost) / 4
	}
	if c.cost[way] = cost; c.better() != before {
		c.every = 0
	}
}
