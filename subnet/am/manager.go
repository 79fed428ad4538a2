package am

import (
	"errors"
	"fmt"

	"softib/node/aggregate"
)

// Request is what a job wants.
type Request struct {
	// Members are, in the order of the job's ranks, the switches that their hosts are at.
	Members []int32
	// OSTs and Payload are how many operations are outstanding, and how many bytes each has. Stream asks for a tree on
	// which long vectors go at the rate of the links; a switch has few of those.
	OSTs, Payload int
	Stream        bool
	// Multicast asks for results by multicast besides; not for streams.
	Multicast bool
	// Wait has the job wait in line where places are taken, instead of being refused.
	Wait bool
}

// Job is one that has a tree, or waits for it.
type Job struct {
	Request
	// Tree is nil while the job waits.
	Tree *Tree
}

// ErrNoWay is matched where hosts cannot be joined by a tree at all.
var ErrNoWay = errors.New("no tree joins the hosts of the job")

// Manager makes trees.
type Manager struct {
	fabric *Fabric
	limits aggregate.Limits
	used   []aggregate.Limits // by switch
	busy   map[edge]int       // trees by link
	line   []*Job             // those who wait
	last   uint32             // tree
	trees  int                // that jobs have

	// For searching.
	open  []bool // switches that have places for the job
	dist  []int32
	up    []link
	queue []int32
}

type edge struct{ from, to int32 }

// New makes a manager of switches whose aggregation nodes have so many places.
func New(f *Fabric, limits aggregate.Limits) *Manager {
	return &Manager{fabric: f, limits: limits, used: make([]aggregate.Limits, len(f.links)), busy: map[edge]int{},
		open: make([]bool, len(f.links)), dist: make([]int32, len(f.links)), up: make([]link, len(f.links))}
}

// SetFabric says how the switches are joined now; their number stays.
func (m *Manager) SetFabric(f *Fabric) { m.fabric = f }

// Create makes a tree for a job. Where places are taken, and the job waits for them, it has none yet.
func (m *Manager) Create(r Request) (*Job, error) {
	if len(r.Members) == 0 || r.OSTs < 1 || r.Payload < 8 {
		return nil, fmt.Errorf("a job of %d hosts, %d operations of %d bytes: want a host, an operation and 8 bytes "+
			"at least", len(r.Members), r.OSTs, r.Payload)
	}
	j := &Job{Request: r}
	if err := m.Replace(j); err != nil {
		return nil, err
	}
	return j, nil
}

// Replace gives a job whose tree has failed another one, or has it wait for its turn as Create does.
func (m *Manager) Replace(j *Job) error {
	m.drop(j)
	err := m.place(j)
	if j.Wait && m.mayFit(err) && m.limits.Lacks(aggregate.Limits{}, &aggregate.Tree{
		OSTs: j.OSTs, Payload: j.Payload, Children: make([]aggregate.Child, 1), Stream: j.Stream}) == nil {
		m.line = append(m.line, j)
		return nil
	}
	return err
}

// mayFit reports whether a job that could not be placed may be when another is over: places were taken.
func (m *Manager) mayFit(err error) bool { return m.trees > 0 && errors.Is(err, aggregate.ErrFull) }

// Release ends a job. It lists those who waited and have a tree now, and those who need not wait any longer, since no
// other job is in their way: what is, Replace says.
func (m *Manager) Release(j *Job) (ready, stuck []*Job) {
	m.drop(j)
	var line []*Job
	for _, w := range m.line {
		if w == j {
			continue
		}
		switch err := m.place(w); {
		case err == nil:
			ready = append(ready, w)
		case m.mayFit(err):
			line = append(line, w)
		default:
			stuck = append(stuck, w)
		}
	}
	m.line = line
	return ready, stuck
}

// drop gives back what a job's tree has taken.
func (m *Manager) drop(j *Job) {
	if j.Tree != nil {
		m.count(j.Tree, -1)
		j.Tree = nil
	}
}

func (m *Manager) count(t *Tree, sign int) {
	m.trees += sign
	for i := range t.Nodes {
		n := &t.Nodes[i]
		c := t.Config(i)
		m.used[n.Switch].Add(&c, sign)
		if n.Parent >= 0 {
			m.busy[edge{n.Switch, t.Nodes[n.Parent].Switch}] += sign
		}
	}
}

// place finds a tree: the lowest, and of those the one whose root has the fewest trees.
func (m *Manager) place(j *Job) error {
	r := &j.Request
	best, height := int32(-1), int32(0)
	full := error(nil)
	for s := range m.open {
		m.open[s] = m.full(int32(s), r) == nil
	}
	for root := range int32(len(m.fabric.links)) {
		if !m.open[root] {
			continue
		}
		h, ok := m.search(r, root, height, best >= 0)
		if !ok || best >= 0 && (h > height || h == height && m.used[root].Trees >= m.used[best].Trees) {
			continue
		}
		t := m.grow(r, root, m.up)
		if err := m.fits(t); err != nil {
			full = err
			continue
		}
		best, height = root, h
		j.Tree = t
	}
	if best < 0 {
		return m.why(r, full)
	}
	m.last++
	j.Tree.ID = m.last
	m.count(j.Tree, 1)
	return nil
}

// full says what a switch lacks for being part of a tree, with one child at least.
func (m *Manager) full(sw int32, r *Request) error {
	return m.limits.Lacks(m.used[sw], &aggregate.Tree{OSTs: r.OSTs, Payload: r.Payload, Stream: r.Stream,
		Children: make([]aggregate.Child, 1)})
}

// fits says which switch of a tree lacks what.
func (m *Manager) fits(t *Tree) error {
	for i := range t.Nodes {
		c := t.Config(i)
		if err := m.limits.Lacks(m.used[t.Nodes[i].Switch], &c); err != nil {
			return fmt.Errorf("switch %d: %w", t.Nodes[i].Switch, err)
		}
	}
	return nil
}

// search goes from a root to all members, over switches that have places, and says how far the farthest is. Of several
// ways that are as short, each switch takes the one that the fewest trees use.
func (m *Manager) search(r *Request, root, height int32, bounded bool) (int32, bool) {
	for i := range m.dist {
		m.dist[i] = -1
	}
	m.queue = append(m.queue[:0], root)
	m.dist[root] = 0
	for i := 0; i < len(m.queue); i++ {
		s := m.queue[i]
		if bounded && m.dist[s] >= height {
			break
		}
		for _, l := range m.fabric.links[s] {
			// Seen from the far end, which it leads up from.
			up := link{to: s, port: l.far, far: l.port}
			switch {
			case m.dist[l.to] < 0 && m.open[l.to]:
				m.dist[l.to] = m.dist[s] + 1
				m.up[l.to] = up
				m.queue = append(m.queue, l.to)
			case m.dist[l.to] == m.dist[s]+1 && m.load(l.to, s) < m.load(l.to, m.up[l.to].to):
				m.up[l.to] = up
			}
		}
	}
	far := int32(0)
	for _, s := range r.Members {
		if m.dist[s] < 0 {
			return 0, false
		}
		far = max(far, m.dist[s])
	}
	return far, true
}

// load is how busy a way up is: the link's trees, and then its upper end's.
func (m *Manager) load(from, to int32) int {
	return m.busy[edge{from, to}]<<16 + m.used[to].Trees
}

// why says what is in the way of a job.
func (m *Manager) why(r *Request, full error) error {
	for _, s := range r.Members {
		if err := m.full(s, r); err != nil {
			full = fmt.Errorf("switch %d: %w", s, err)
			break
		}
	}
	if full == nil {
		// Perhaps there is a way, but not past those that are full.
		for s := range m.used {
			if err := m.full(int32(s), r); err != nil && full == nil {
				full = fmt.Errorf("switch %d: %w", s, err)
			}
		}
	}
	if full != nil {
		return fmt.Errorf("%w; next: end another job, ask for fewer operations or a shorter payload, or wait", full)
	}
	return fmt.Errorf("%w: %d hosts; next: mend the links between their switches", ErrNoWay, len(r.Members))
}
