package roce

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"softib/driver/endpoint"
	"softib/node/hca"
)

// Stats counts what a link did.
type Stats struct {
	Sent, Received           atomic.Uint64 // datagrams
	SentBytes, ReceivedBytes atomic.Uint64 // of datagrams, with all that is in them
	GroupSent, GroupReceived atomic.Uint64 // of the datagrams, those to groups
	Calls                    atomic.Uint64 // that sent them
	Unsent                   atomic.Uint64 // datagrams that the kernel did not take
	Malformed                atomic.Uint64 // received ones that are no RoCEv2, or were damaged
	Unjoined                 atomic.Uint64 // groups that the kernel did not let us into
	Unhanded                 atomic.Uint64 // datagrams that the server could not hand to a program
}

const (
	statsWords = int(unsafe.Sizeof(Stats{}) / 8)
	// accountBytes is the memory of an account: a ledger, and a page for the rest.
	accountBytes = endpoint.LedgerBytes + 1<<12
)

// account is what a program tells of itself, in memory that it shares with the server: its endpoint's ledger, and what
// its link has counted. The server believes nothing of it.
type account struct {
	mem    []byte
	ledger *endpoint.Ledger
	stats  *Stats
}

func accountIn(mem []byte, err error) (account, error) {
	a := account{mem: mem}
	if err == nil {
		a.ledger, err = endpoint.NewLedger(mem[:endpoint.LedgerBytes])
	}
	if err != nil {
		return a, fmt.Errorf("roce: %w", err)
	}
	a.stats = (*Stats)(unsafe.Pointer(&mem[endpoint.LedgerBytes]))
	return a, nil
}

// newAccount makes one. The descriptor is the caller's.
func newAccount() (a account, fd int, err error) {
	fd, mem, err := endpoint.NewMemory("account", accountBytes)
	a, err = accountIn(mem, err)
	return a, fd, err
}

// mapAccount is the server's view of one; the descriptor is closed.
func mapAccount(fd int) (account, error) {
	defer unix.Close(fd)
	return accountIn(endpoint.MapMemory(fd, accountBytes))
}

// Counted is what has been counted at an interface, by all programs that have used it and by the server.
type Counted struct {
	Engine hca.Stats // of the programs
	Link   LinkCounts
	Downs  uint64 // how often the interface went down
}

// LinkCounts is a Stats as it was at a time.
type LinkCounts struct {
	Sent, Received, SentBytes, ReceivedBytes, GroupSent, GroupReceived, Calls, Unsent, Malformed, Unjoined,
	Unhanded uint64
}

// Both have the same words.
var _ = [1]byte{}[unsafe.Sizeof(LinkCounts{})-unsafe.Sizeof(Stats{})]

func (c *LinkCounts) words() *[statsWords]uint64 { return (*[statsWords]uint64)(unsafe.Pointer(c)) }

func (s *Stats) words() *[statsWords]atomic.Uint64 {
	return (*[statsWords]atomic.Uint64)(unsafe.Pointer(s))
}

// countMax bounds what a program is believed to have counted of anything: more takes years.
const countMax = 1 << 56

// fold adds what a program has counted since it was last looked at to the sum. The server is locked.
func (g *guest) fold(sum *Counted) {
	if g.account.ledger == nil {
		return
	}
	before := g.counted
	g.account.ledger.Counted(&g.counted.Engine)
	endpoint.AddStats(&sum.Engine, &g.counted.Engine, &before.Engine)
	seen, total := g.counted.Link.words(), sum.Link.words()
	for i := range seen {
		if v := g.account.stats.words()[i].Load(); v > seen[i] && v < countMax {
			total[i] += v - seen[i]
			seen[i] = v
		}
	}
}

// Counted is what has been counted until now.
func (s *Server) Counted() Counted {
	s.mu.Lock()
	defer s.mu.Unlock()
	for g := range s.guests {
		g.fold(&s.totals)
	}
	all := s.totals
	for i := range all.Link.words() {
		all.Link.words()[i] += s.Stats.words()[i].Load()
	}
	return all
}
