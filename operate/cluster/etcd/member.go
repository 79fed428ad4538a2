package etcd

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"softib/operate/cluster"
	"softib/proto/ib"
)

// ErrNameTaken is another machine that has the name.
var ErrNameTaken = errors.New("another machine has this name")

// ErrEnded is a member that has left.
var ErrEnded = errors.New("this machine has left the cluster")

// rewatchAfter is how long a watch that broke off is left alone, so that one that breaks at once is no busy loop.
const rewatchAfter = 200 * time.Millisecond

// Member is this machine's part in a cluster, in real time. Its methods are safe for concurrent use.
type Member struct {
	store *Store
	tell  func(cluster.Event)
	ctx   context.Context
	stop  context.CancelFunc
	wake  chan struct{}
	over  chan struct{} // closed when the engine is done

	mu      sync.Mutex
	e       *cluster.Engine
	joined  chan struct{} // closed when it first is a member, or never will be
	refused error
	isIn    bool
	changes map[string]chan cluster.Event
	watch   context.CancelFunc
	calls   sync.WaitGroup
}

// Start begins to join. tell hears every event, one after the other, and must not wait for the member.
func Start(store *Store, who cluster.Info, tell func(cluster.Event)) *Member {
	for who.Instance == 0 {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		who.Instance = binary.BigEndian.Uint64(b[:])
	}
	if who.Since == "" {
		who.Since = time.Now().UTC().Format(time.RFC3339)
	}
	if tell == nil {
		tell = func(cluster.Event) {}
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &Member{store: store, tell: tell, ctx: ctx, stop: stop, wake: make(chan struct{}, 1),
		over: make(chan struct{}), joined: make(chan struct{}), changes: map[string]chan cluster.Event{},
		e: cluster.New(now(), cluster.Config{Info: who})}
	go m.run()
	return m
}

// now is the time since the machine was started, which goes on while it sleeps.
func now() ib.Time {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err)
	}
	return ib.Time(t.Nano()) * ib.Nanosecond
}

// run drives the engine until it is done.
func (m *Member) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer m.stop()
	for {
		m.mu.Lock()
		t := now()
		if t >= m.e.NextDeadline() {
			m.e.HandleDeadline(t)
		}
		for r, ok := m.e.PollRequest(); ok; r, ok = m.e.PollRequest() {
			m.request(r)
		}
		var events []cluster.Event
		for ev, ok := m.e.PollEvent(); ok; ev, ok = m.e.PollEvent() {
			m.note(&ev)
			events = append(events, ev)
		}
		over, wait := m.e.IsOver(), time.Hour
		if d := m.e.NextDeadline(); d != ib.Never {
			wait = max(durationOf(d-now()+ib.Nanosecond), 0)
		}
		m.mu.Unlock()
		for _, ev := range events {
			m.tell(ev)
		}
		if over {
			m.end()
			return
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-m.wake:
		case <-m.ctx.Done(): // Abandon
			m.mu.Lock()
			m.note(&cluster.Event{Kind: cluster.EventLeft})
			m.mu.Unlock()
			m.end()
			return
		}
	}
}

// end tells whoever waits.
func (m *Member) end() {
	m.mu.Lock()
	for id, ch := range m.changes {
		ch <- cluster.Event{Kind: cluster.EventRejected, Change: id, Err: cluster.ErrUnsettled}
		delete(m.changes, id)
	}
	m.mu.Unlock()
	close(m.over)
}

// request begins to carry a request. The lock is held.
func (m *Member) request(r cluster.Request) {
	if r.Op == cluster.OpWatch {
		if m.watch != nil {
			m.watch()
		}
		ctx, cancel := context.WithCancel(m.ctx)
		m.watch = cancel
		go m.store.Watch(ctx, r, func(b cluster.Batch) {
			if b.Outcome == cluster.OutcomeUnknown {
				select {
				case <-time.After(rewatchAfter):
				case <-ctx.Done():
					return
				}
			}
			m.mu.Lock()
			m.e.HandleBatch(now(), b)
			m.mu.Unlock()
			m.awake()
		})
		return
	}
	m.calls.Go(func() {
		a := m.store.Do(m.ctx, r)
		m.mu.Lock()
		m.e.HandleAnswer(now(), a)
		m.mu.Unlock()
		m.awake()
	})
}

func (m *Member) awake() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// note keeps what callers wait for. The lock is held.
func (m *Member) note(ev *cluster.Event) {
	settled := func() {
		if !m.isIn {
			m.isIn = true
			close(m.joined)
		}
	}
	switch ev.Kind {
	case cluster.EventJoined:
		settled()
	case cluster.EventRefused:
		who := &ev.Member
		m.refused = fail(fmt.Sprintf("give this machine another --machine, or end the fabric at %s first", who.Control),
			"cluster: %w: %s at %s, since %s", ErrNameTaken, ev.Name, who.Control, who.Since)
		settled()
	case cluster.EventLeft:
		m.refused = ErrEnded
		settled()
	case cluster.EventMade, cluster.EventRejected:
		if ch := m.changes[ev.Change]; ch != nil {
			ch <- *ev
			delete(m.changes, ev.Change)
		}
	}
}

// Joined waits until this machine is a member and knows what the others know.
func (m *Member) Joined(ctx context.Context) error {
	select {
	case <-m.joined:
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.refused
	case <-ctx.Done():
		return m.store.silent(ctx.Err())
	}
}

// Change makes a change, and returns when it is in etcd, as which revision. If ctx ends first the change may still be
// made (cluster.ErrUnsettled).
func (m *Member) Change(ctx context.Context, c cluster.Change) (int64, error) {
	if c.When == "" {
		c.When = time.Now().UTC().Format(time.RFC3339)
	}
	ch := make(chan cluster.Event, 1)
	m.mu.Lock()
	id, err := m.e.Propose(now(), c)
	if err == nil {
		m.changes[id] = ch
	}
	m.mu.Unlock()
	if err != nil {
		return 0, m.advise(err)
	}
	m.awake()
	select {
	case ev := <-ch:
		return ev.Revision, m.advise(ev.Err)
	case <-ctx.Done():
		return 0, m.advise(fmt.Errorf("cluster: %w: %w", cluster.ErrUnsettled, ctx.Err()))
	}
}

// advise adds what to do about a change that was not made.
func (m *Member) advise(err error) error {
	next := ""
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cluster.ErrNotMaster):
		next = "ask the master"
		if name := m.MasterName(); name != "" {
			next += ", which is " + name
		} else {
			next += "; there is none just now, and one will be there in two seconds if etcd answers"
		}
	case errors.Is(err, cluster.ErrStale), errors.Is(err, cluster.ErrBusy):
		next = "look at what the fabric is now, and try again"
	case errors.Is(err, cluster.ErrUnsettled):
		next = "look at what the fabric is when etcd answers again: it may have been changed"
	case errors.Is(err, cluster.ErrFull):
		next = "make room in etcd: etcdctl compact, etcdctl defrag, etcdctl alarm disarm; " +
			"or a larger --quota-backend-bytes"
	case errors.Is(err, cluster.ErrRefused):
		next = "give the user rights to write below " + m.store.prefix + ", or raise etcd's --max-request-bytes"
	default:
		return err
	}
	return &Error{err, next}
}

// Leave gives the lease back, so that others need not wait for its end.
func (m *Member) Leave(ctx context.Context) error {
	m.mu.Lock()
	m.e.Leave(now())
	m.mu.Unlock()
	m.awake()
	select {
	case <-m.over:
		m.calls.Wait()
		return nil
	case <-ctx.Done():
		m.Abandon()
		return ctx.Err()
	}
}

// Abandon ends the member as a process that is killed does: the lease runs out.
func (m *Member) Abandon() {
	m.stop()
	<-m.over
	m.calls.Wait()
}

// locked looks at the engine.
func locked[T any](m *Member, look func(*cluster.Engine) T) T {
	m.mu.Lock()
	defer m.mu.Unlock()
	return look(m.e)
}

// IsMaster says whether this machine may act as the master at this moment.
func (m *Member) IsMaster() bool {
	_, mine := m.Reign()
	return mine
}

// Reign is the term of whoever is the master, and whether that is this machine, which may act as such now.
func (m *Member) Reign() (term int64, mine bool) {
	mine = locked(m, func(e *cluster.Engine) bool {
		term = e.Term()
		return m.ctx.Err() == nil && e.Master(now())
	})
	return term, mine
}

// MasterName is who the master is, as far as is known; empty if there is none.
func (m *Member) MasterName() string { return locked(m, (*cluster.Engine).MasterName) }

// Members are those that are there, in the order in which they came.
func (m *Member) Members() []cluster.Member { return locked(m, (*cluster.Engine).Members) }

// Revision is the newest of what the fabric is that has come here.
func (m *Member) Revision() int64 { return locked(m, (*cluster.Engine).Revision) }

// Section is a part of what the fabric is. It is not to be changed.
func (m *Member) Section(name string) (value []byte, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.e.Section(name)
}
