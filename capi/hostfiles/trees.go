package hostfiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"softib/driver/live"
	"softib/proto/ib"
	"softib/proto/topo"
)

// ErrNoHost is a node that the fabric does not have.
var ErrNoHost = errors.New("no such host")

// How often a host that is open is looked at.
const (
	watchEvery   = 100 * time.Millisecond // whether anything but counters has changed
	refreshEvery = time.Second            // everything
)

// Trees are the files of the hosts of a fabric. Its methods may be called from many goroutines.
type Trees struct {
	f    *live.Fabric
	dir  string
	lock *os.File // of dir
	cfg  Config

	mu     sync.Mutex
	names  *names
	trees  map[int]*tree // by node
	epoch  uint64        // of the last look at states
	open   int           // trees with users
	stop   chan struct{} // ends the one who refreshes; nil if nobody does
	closed bool
	wait   sync.WaitGroup
}

// New makes a folder of its own. What is in it, of a fabric that was killed, is removed.
func New(f *live.Fabric, dir string, cfg Config) (*Trees, error) {
	lock, err := claim(dir)
	if err != nil {
		return nil, fmt.Errorf("hostfiles: %w", err)
	}
	cfg.Domain = freeDomain(sysDir)
	return &Trees{f: f, dir: dir, lock: lock, cfg: cfg, trees: make(map[int]*tree)}, nil
}

// Open is the folder with a node's files. They are as the node is now, and are kept so until release is called, which
// may be done more than once.
func (t *Trees) Open(node string) (path string, release func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return "", nil, fmt.Errorf("hostfiles: %w", os.ErrClosed)
	}
	n := t.f.Graph().ByName(node)
	if n == nil {
		return "", nil, fmt.Errorf("hostfiles: %w: %q", ErrNoHost, node)
	}
	x, err := t.make(n)
	if err != nil {
		return "", nil, fmt.Errorf("hostfiles: %s: %w", node, err)
	}
	if err := errors.Join(t.names.refresh(), t.refresh([]*tree{x}, true)); err != nil {
		return "", nil, fmt.Errorf("hostfiles: %s: %w", node, err)
	}
	if x.users++; x.users == 1 {
		t.open++
	}
	if t.stop == nil {
		t.stop = make(chan struct{})
		stop := t.stop
		t.wait.Go(func() { t.keep(stop) })
	}
	return x.root, sync.OnceFunc(func() { t.release(x) }), nil
}

func (t *Trees) release(x *tree) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x.users--; x.users > 0 {
		return
	}
	if t.open--; t.open == 0 && t.stop != nil {
		close(t.stop)
		t.stop = nil
	}
}

// make finds or makes a node's tree.
func (t *Trees) make(n *topo.Node) (*tree, error) {
	if x := t.trees[n.Index]; x != nil {
		return x, nil
	}
	if t.names == nil {
		t.names = newNames(filepath.Join(t.dir, "hosts"), t.f.Hosts())
	}
	if err := t.names.refresh(); err != nil {
		return nil, err
	}
	x := &tree{root: filepath.Join(t.dir, strconv.Itoa(n.Index)), node: n, text: make(map[string]string)}
	for _, p := range ports(n) {
		x.dirs = append(x.dirs, portDir(t.cfg, p))
		x.refs = append(x.refs, topo.PortRef{Node: n.Index, Port: p})
	}
	x.ports = make([]*port, len(x.refs))
	device(t.cfg, n, lookAround(sysDir), x.put, x.link)
	err := errors.Join(x.take(), os.MkdirAll(filepath.Join(x.root, "etc"), 0o755))
	if err == nil {
		// One file for all hosts.
		err = os.Link(t.names.path, filepath.Join(x.root, "etc", "hosts"))
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(x.root))
	}
	t.trees[n.Index] = x
	return x, nil
}

// refresh writes what has changed of some trees, counters only if asked to.
func (t *Trees) refresh(trees []*tree, counters bool) error {
	var refs []topo.PortRef
	for _, x := range trees {
		for i, ref := range x.refs {
			if p, ok := t.look(x.node, ref); ok {
				x.setState(i, p)
			}
		}
		refs = append(refs, x.refs...)
	}
	if counters {
		all := t.f.CountersOf(refs)
		for _, x := range trees {
			for i := range x.refs {
				x.setCounters(i, all[i])
			}
			if s, ok := t.f.StatsAt(x.node.Index); ok { // a switch has no programs
				x.setStats(&s.Stats)
			}
			all = all[len(x.refs):]
		}
	}
	var err error
	for _, x := range trees {
		err = errors.Join(err, x.take())
	}
	return err
}

// look is a port as it is.
func (t *Trees) look(n *topo.Node, ref topo.PortRef) (port, bool) {
	pi, ok := t.f.PortInfo(ref)
	if !ok {
		return port{}, false
	}
	pi.MKey = 0 // a secret, and not shown
	p := port{num: ref.Port, info: pi, gids: t.f.GIDs(ref), pkeys: t.f.PKeys(ref)}
	if len(p.gids) == 0 {
		p.gids = []ib.GID{ib.MakeGID(pi.GidPrefix, n.PortGUID(ref.Port))}
	}
	if len(p.pkeys) == 0 {
		p.pkeys = []ib.PKey{ib.PKeyDefault}
	}
	return p, true
}

// keep refreshes the trees that are open.
func (t *Trees) keep(stop chan struct{}) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-stop:
			return
		case now := <-tick.C:
			all := now.Sub(last) >= refreshEvery-watchEvery/2
			if all {
				last = now
			}
			t.tick(stop, all)
		}
	}
}

func (t *Trees) tick(stop chan struct{}, all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	epoch := t.f.Epoch()
	if t.stop != stop || !all && epoch == t.epoch {
		return
	}
	t.epoch = epoch
	var open []*tree
	for _, x := range t.trees {
		if x.users > 0 {
			open = append(open, x)
		}
	}
	// What cannot be written is written the next time.
	_ = t.refresh(open, all)
	if all {
		_ = t.names.refresh()
	}
}

// Close removes the files. Programs that still look find an adapter that has gone.
func (t *Trees) Close() error {
	t.mu.Lock()
	t.closed = true
	if t.stop != nil {
		close(t.stop)
		t.stop = nil
	}
	t.mu.Unlock()
	t.wait.Wait()
	is, err := isAt(t.lock, t.dir)
	if errors.Is(err, os.ErrClosed) {
		return nil // the name may be another's
	}
	if is {
		err = os.RemoveAll(t.dir)
	}
	if err = errors.Join(err, t.lock.Close()); err != nil {
		return fmt.Errorf("hostfiles: %w", err)
	}
	return nil
}
