package route

import (
	"fmt"
	"slices"
	"strings"

	"softib/proto/ib"
)

// Choice says how switches choose among the ports of a group.
type Choice uint8

// Choices.
const (
	NoChoice  Choice = iota // they do not: the forwarding table decides
	ByPacket                // anew for each packet: receivers have to bear any order
	ByFlowlet               // anew when a queue pair has sent nothing for a while
	ByMessage               // anew with the first packet of a message
)

// ChoiceNames are the names of the choices.
var ChoiceNames = []string{"off", "packet", "flowlet", "message"}

func (c Choice) String() string { return ChoiceNames[c] }

// ParseChoice reads a name.
func ParseChoice(name string) (Choice, error) {
	if i := slices.Index(ChoiceNames, name); i >= 0 {
		return Choice(i), nil
	}
	return NoChoice, fmt.Errorf("%q is no way to choose ports: want one of %s", name, strings.Join(ChoiceNames, ", "))
}

// FlowletGap is how long a queue pair has to be silent for ByFlowlet: more than two ways usually differ by.
const FlowletGap = 5 * ib.Microsecond

// Groups are what switches may choose from: for a destination not one port but several.
type Groups struct {
	// Sets are the groups of each switch.
	Sets [][]ib.PortMask
	// Detours, where it is not 0, says that groups are pairs of sets: ports on the shortest ways, and ports of detours,
	// for packets that come on certain lanes (bit n stands for lane n) and would wait much longer otherwise.
	Detours uint16
	// Of is the group for a destination, its number plus 1, by [switch][index into Network.Dests]; 0 is none:
	// the forwarding table alone decides.
	Of [][]uint16
}

// MaxGroups is how many sets a switch gets; destinations for which there is none left keep their one port.
const MaxGroups = 1024

// newGroups makes groups that are empty.
func newGroups(n *Network) *Groups {
	g := &Groups{Sets: make([][]ib.PortMask, len(n.Switches)), Of: make([][]uint16, len(n.Switches))}
	for s := range g.Of {
		g.Of[s] = make([]uint16, len(n.Dests))
	}
	return g
}

// ways is what a switch may choose from for a destination: the ports of the shortest ways and of detours. Without a
// group it is the one of the forwarding table, and chosen is false.
func (g *Groups) ways(t *Tables, n *Network, s, dest int) (near, detours ib.PortMask, chosen bool) {
	at := int(g.Of[s][dest])
	switch {
	case at == 0:
		if p := t.LFT[s][n.Dests[dest].LID]; p != NoPort {
			near.Set(p)
		}
	case g.Detours == 0:
		return g.Sets[s][at-1], detours, true
	default:
		return g.Sets[s][2*at-2], g.Sets[s][2*at-1], true
	}
	return near, detours, false
}

// Adaptive finds the groups that go with tables of ways that go up and then down, or with a dragonfly's. Whatever the
// switches choose, a packet on the former goes up by the shortest ways until it is above its destination and then down
// by the shortest, so that, as with the tables themselves, nothing waits in a circle; packets that choose and packets
// that do not may share a lane.
//
// A switch does not know where a packet came from. So whoever is above a destination sends down, although it may have a
// shorter way by going up first: a packet that came from above may not.
func Adaptive(n *Network, t *Tables) (*Groups, error) {
	switch {
	case t.dragon != nil:
		return t.dragon.groups(n), nil
	case t.Rank == nil:
		return nil, notUpDown(t)
	}
	w := newAdjacency(n)
	f := &chooser{dir: newDirection(w, t.Rank), down: make([]int32, len(w.out)), any: make([]int32, len(w.out))}
	g := newGroups(n)
	for first := 0; first < len(n.Dests); {
		last := first + 1
		for last < len(n.Dests) && n.Dests[last].Switch == n.Dests[first].Switch {
			last++
		}
		f.aim(n.Dests[first].Switch)
		for s := range g.Of {
			m := f.group(int32(s))
			if m.Empty() {
				continue
			}
			at := uint16(0)
			for d := first; d < last; d++ {
				// One port is a choice as well where the table has another, which might lead up again.
				if n.Dests[d].IsEnd() && (several(&m) || !m.Has(t.LFT[s][n.Dests[d].LID])) {
					if at == 0 {
						at = g.place(s, m)
					}
					g.Of[s][d] = at
				}
			}
		}
		first = last
	}
	return g, nil
}

// notUpDown says why tables have no groups.
func notUpDown(t *Tables) error {
	return unfit(t.Engine, "adaptive routing needs ways that go up and then down, and these do not: want updn, or "+
		"dragonfly where it fits")
}

// several reports whether there is anything to choose.
func several(m *ib.PortMask) bool {
	rest := *m
	rest.Pop()
	return !rest.Empty()
}

// place finds or makes a group of a switch: one set, or two with detours.
func (g *Groups) place(s int, sets ...ib.PortMask) uint16 {
	for i := 0; i < len(g.Sets[s]); i += len(sets) {
		if slices.Equal(g.Sets[s][i:i+len(sets)], sets) {
			return uint16(i/len(sets) + 1)
		}
	}
	if len(g.Sets[s])+len(sets) > MaxGroups {
		return 0
	}
	g.Sets[s] = append(g.Sets[s], sets...)
	return uint16(len(g.Sets[s]) / len(sets))
}

// chooser knows how far all switches are from one.
type chooser struct {
	dir       *direction
	down, any []int32 // hops by ways that only go down, and by the ways that packets take
	queue     []int32
}

// aim computes the distances to switch d.
func (f *chooser) aim(d int32) {
	f.queue = search(f.dir.up, []int32{d}, f.down, f.queue)
	for _, s := range f.dir.topmost {
		if f.any[s] = f.down[s]; f.any[s] < far {
			continue
		}
		for _, e := range f.dir.up[s] {
			f.any[s] = min(f.any[s], f.any[e.to]+1)
		}
	}
}

// group is the ports of switch s that lead nearer.
func (f *chooser) group(s int32) (m ib.PortMask) {
	edges, dist := f.dir.down[s], f.down
	if f.down[s] >= far {
		edges, dist = f.dir.up[s], f.any
	}
	for _, e := range edges {
		if dist[e.to] < far && dist[e.to] == dist[s]-1 {
			m.Set(e.port)
		}
	}
	return m
}
