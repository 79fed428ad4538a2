package history

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Tiers. Each keeps the same history coarser and longer than the one before.
const (
	tierRaw = iota
	tierMinute
	tierTen
	numTier
)

// tiers says how coarse each is, and its part of the room on disk.
var tiers = [numTier]struct {
	name  string
	step  int64 // milliseconds; 0 is as sampled
	share float64
}{
	{"raw", 0, 0.4},
	{"minute", 60_000, 0.4},
	{"ten", 600_000, 0.2},
}

// Options are a store's. Zero values are the defaults.
type Options struct {
	// How long samples, minutes and tens of minutes are kept. 6 hours, 7 days and 90 days.
	Raw, Minute, Ten time.Duration
	// MaxBytes is how large the file may get. What is oldest goes when there is no room; a file that is larger already
	// is not filled further, but does not shrink. 4 GiB; 256 MiB in memory.
	MaxBytes int64
	// Flush is how much time may be in memory only, and be lost with the process. 5 minutes.
	Flush time.Duration
	// HeadBytes is how much memory the newest samples may take before they are written sooner. 32 MiB; while that
	// is written as much again may come.
	HeadBytes int
	// MaxGap is the longest time between two samples that still gives a rate. 1 minute.
	MaxGap time.Duration
}

func (o Options) withDefaults(inMemory bool) Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.Raw, 6*time.Hour)
	def(&o.Minute, 7*24*time.Hour)
	def(&o.Ten, 90*24*time.Hour)
	def(&o.Flush, 5*time.Minute)
	def(&o.MaxGap, time.Minute)
	o.Flush = max(o.Flush, time.Millisecond)
	if o.MaxBytes <= 0 {
		if o.MaxBytes = 4 << 30; inMemory {
			o.MaxBytes = 256 << 20
		}
	}
	if o.HeadBytes <= 0 {
		o.HeadBytes = 32 << 20
	}
	return o
}

// Store is a history. Its methods may be called by many at once; samples are best appended by one.
type Store struct {
	path     string
	opts     Options
	db       *bolt.DB
	pageSize int64

	mu     sync.Mutex
	closed bool
	keys   []PortKey
	ids    map[PortKey]uint32

	// The sample before: its ports as they were given, where each is in order of numbers, and totals in that order.
	lastAt  int64
	lastIn  []uint32
	order   []int32
	sorted  []uint32
	totals  []Values
	lastSet *portSet
	builder rowBuilder

	// now is when the last sample was, and steady since when time has passed as it should; both are 0 before the first.
	now, steady int64

	head   *head
	sealed []*head // to be written, oldest first; the first is being written while writing is set
	// chunks is what is on disk, by key. The slices are replaced, never changed.
	chunks  [numTier][]*chunk
	pending map[int64]bool // keys of the chunks of minutes that are not yet part of a chunk of tens

	writing bool
	dropped uint64     // samples that were lost because they could not be written
	failed  error      // why the last write failed
	idle    *sync.Cond // all is written, or writing failed
	wake    chan struct{}
	ended   chan struct{}
}

// Open opens the history in a file, which is made if need be. Without a path it is kept in memory. An error that is
// ErrCorrupt or ErrNewer means that the file should be moved away; nothing was changed in it.
func Open(path string, o Options) (*Store, error) {
	s := &Store{
		path: path, opts: o.withDefaults(path == ""),
		ids: map[PortKey]uint32{}, pending: map[int64]bool{},
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	s.idle = sync.NewCond(&s.mu)
	s.head = newHead(newSet(nil))
	if err := s.openFile(); err != nil {
		return nil, &FileError{s.name(), err}
	}
	go s.write()
	s.wakeWriter() // what the last process left to do
	return s, nil
}

// name is the path, for errors.
func (s *Store) name() string {
	if s.path == "" {
		return "in memory"
	}
	return s.path
}

// Close writes what is in memory and closes the file.
func (s *Store) Close() error {
	err := s.Flush()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.closed = true
	s.mu.Unlock()
	close(s.wake)
	<-s.ended
	return errors.Join(err, s.guard(s.db.Close))
}

// PortIDs gives each port the number under which its history is kept: the one that it always had, or a new one.
func (s *Store) PortIDs(ports []PortKey) ([]uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	old := len(s.keys)
	ids := make([]uint32, len(ports))
	for i, k := range ports {
		id, ok := s.ids[k]
		if !ok {
			id = uint32(len(s.keys))
			s.keys = append(s.keys, k)
			s.ids[k] = id
		}
		ids[i] = id
	}
	forget := func() {
		for _, k := range s.keys[old:] {
			delete(s.ids, k)
		}
		s.keys = s.keys[:old]
	}
	if len(s.keys) > maxPorts {
		forget()
		return nil, fmt.Errorf("history: %d ports: at most %d have a number: %w", len(s.keys)+len(ports), maxPorts,
			ErrUnknownPort)
	}
	if len(s.keys) > old {
		if err := s.saveKeys(old); err != nil {
			forget()
			return nil, &FileError{s.name(), err}
		}
	}
	return ids, nil
}

// Key is the port with a number.
func (s *Store) Key(id uint32) (PortKey, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(id) >= len(s.keys) {
		return PortKey{}, false
	}
	return s.keys[id], true
}

// Append takes a sample: the totals of ports, by the numbers of PortIDs, at a time. What a port did is the difference
// to the sample before, so all ports that are watched should be in each sample, in the same order; a port that was not
// in the one before has a gap there.
//
// An error that is ErrNotSaved says that samples pile up in memory, and why; this one was taken all the same.
func (s *Store) Append(at time.Time, ports []uint32, values []Values) error {
	if len(ports) != len(values) {
		return fmt.Errorf("history: %d ports with %d values: one each is wanted: %w", len(ports), len(values),
			ErrUnknownPort)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	now := at.UnixMilli()
	s.tick(now)
	var err error
	if slices.Equal(ports, s.lastIn) && s.lastSet != nil {
		err = s.appendSame(now, values)
	} else {
		err = s.appendChanged(now, ports, values)
	}
	if err != nil {
		return err
	}
	return s.sealIfDue(now)
}

// How far time may go back or forth between two calls and still be taken for steady.
const (
	steadyBack    = int64(time.Minute / time.Millisecond)
	steadyForward = int64(10 * time.Minute / time.Millisecond)
)

// tick notes the time of a sample.
func (s *Store) tick(now int64) {
	if s.steady == 0 || now < s.now-steadyBack || now > s.now+steadyForward {
		s.steady = now
	}
	s.now = now
}

// gives reports how long before now the last sample was, if that makes a rate. A clock that went backward, or
// stood, makes none.
func (s *Store) gives(now int64) (int64, bool) {
	d := now - s.lastAt
	return d, s.lastSet != nil && d > 0 && d <= s.opts.MaxGap.Milliseconds()
}

// appendSame takes a sample of the ports that the one before had.
func (s *Store) appendSame(now int64, values []Values) error {
	if now == s.lastAt {
		return nil
	}
	dur, ok := s.gives(now)
	if ok {
		s.useHead(s.lastSet)
		b := &s.builder
		b.begin()
		for i := 0; i < len(s.sorted); {
			no := s.sorted[i] / blockPorts
			at, active := b.openBlock(), uint64(0)
			for ; i < len(s.sorted) && s.sorted[i]/blockPorts == no; i++ {
				v := &values[s.order[i]]
				if *v == s.totals[i] {
					continue
				}
				if b.port(v, &s.totals[i]) {
					active |= 1 << (s.sorted[i] % blockPorts)
				}
				s.totals[i] = *v
			}
			b.closeBlock(at, active)
		}
		s.head.add(b.end(span{s.lastAt, dur}))
	} else {
		for i := range s.sorted {
			s.totals[i] = values[s.order[i]]
		}
	}
	s.lastAt = now
	return nil
}

// appendChanged takes a sample of other ports than before: those that were there before have a rate.
func (s *Store) appendChanged(now int64, ports []uint32, values []Values) error {
	order := make([]int32, len(ports))
	for i, id := range ports {
		if int(id) >= len(s.keys) {
			return fmt.Errorf("history: port number %d: the last one given out is %d: %w", id, len(s.keys)-1,
				ErrUnknownPort)
		}
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return int(ports[a]) - int(ports[b]) })
	sorted := make([]uint32, len(ports))
	totals := make([]Values, len(ports))
	for i, o := range order {
		sorted[i], totals[i] = ports[o], values[o]
		if i > 0 && sorted[i] == sorted[i-1] {
			return fmt.Errorf("history: port number %d is there twice: %w", sorted[i], ErrUnknownPort)
		}
	}
	if dur, ok := s.gives(now); ok {
		s.appendCommon(span{s.lastAt, dur}, sorted, totals)
	}
	s.lastAt, s.lastIn, s.order, s.sorted, s.totals = now, slices.Clone(ports), order, sorted, totals
	s.lastSet = newSet(sorted)
	return nil
}

// appendCommon takes a sample of the ports that are there and were there before.
func (s *Store) appendCommon(at span, sorted []uint32, totals []Values) {
	var common []uint32
	var was, is []*Values
	for i, j := 0, 0; i < len(s.sorted) && j < len(sorted); {
		switch {
		case s.sorted[i] < sorted[j]:
			i++
		case s.sorted[i] > sorted[j]:
			j++
		default:
			common, was, is = append(common, sorted[j]), append(was, &s.totals[i]), append(is, &totals[j])
			i, j = i+1, j+1
		}
	}
	if len(common) == 0 {
		return
	}
	s.useHead(newSet(common))
	b := &s.builder
	b.begin()
	for i := 0; i < len(common); {
		no := common[i] / blockPorts
		place, active := b.openBlock(), uint64(0)
		for ; i < len(common) && common[i]/blockPorts == no; i++ {
			if b.port(is[i], was[i]) {
				active |= 1 << (common[i] % blockPorts)
			}
		}
		b.closeBlock(place, active)
	}
	s.head.add(b.end(at))
}

// useHead makes the head one of these ports.
func (s *Store) useHead(set *portSet) {
	if s.head.set.equal(set) {
		return
	}
	if len(s.head.rows) > 0 {
		s.sealHead()
	}
	scalars, from, to := s.head.scalars, s.head.from, s.head.to
	s.head = newHead(set)
	s.head.scalars, s.head.from, s.head.to = scalars, from, to
}

// maxScalar is the largest number that is kept: means of larger ones might not be numbers.
const maxScalar = 1e300

// AppendScalar notes a number that belongs to no port, under its name: the time of a sweep, the latency of an answer.
// What is not a finite number is left out.
func (s *Store) AppendScalar(name string, at time.Time, v float64) error {
	if name == "" || len(name) > 255 {
		return fmt.Errorf("history: name %.20q…: 1 to 255 bytes are wanted: %w", name, ErrBadQuery)
	}
	if math.IsNaN(v) || math.Abs(v) > maxScalar {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	now := at.UnixMilli()
	s.tick(now)
	err := s.sealIfDue(now)
	s.head.cover(now, now+1)
	s.head.scalars[name] = append(s.head.scalars[name], scalarPoint{at: now, mean: v, max: v})
	s.head.bytes += 32
	return err
}

// sealIfDue lets the head be written once it is long or large enough. A chunk ends with a minute if it can, so that
// minutes are whole.
//
// It returns why chunks are not written, if they are not.
func (s *Store) sealIfDue(now int64) error {
	h := s.head
	long := h.to-h.from >= s.opts.Flush.Milliseconds() || floor(now, s.opts.Flush.Milliseconds()) > h.from
	if !h.empty() && (long || h.bytes >= s.opts.HeadBytes || len(h.rows) >= chunkPoints) {
		before := s.dropped
		s.sealHead()
		if n := s.dropped - before; n > 0 && s.failed == nil {
			return fmt.Errorf("history: %s: %w: the disk is too slow, %d samples were lost", s.name(), ErrNotSaved, n)
		}
	}
	return s.failed
}

// sealHead begins a new head and gives the old one to the writer.
func (s *Store) sealHead() {
	if s.head.empty() {
		return
	}
	s.sealed = append(s.sealed, s.head)
	s.head = newHead(s.head.set)
	// If they cannot be written the oldest are lost, but never one that is being written.
	for first := boolInt(s.writing); len(s.sealed)-first > 1 && s.sealedBytes() > 3*s.opts.HeadBytes; {
		s.dropped += uint64(len(s.sealed[first].rows))
		s.sealed = slices.Delete(slices.Clone(s.sealed), first, first+1)
	}
	s.wakeWriter()
}

func (s *Store) sealedBytes() (n int) {
	for _, h := range s.sealed {
		n += h.bytes
	}
	return n
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// wakeWriter has the writer look for what there is to write. The channel is closed by Close alone, after which nothing
// is sealed.
func (s *Store) wakeWriter() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Flush writes what is in memory and returns when that is done, or has failed.
func (s *Store) Flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.sealHead()
	s.failed = nil
	s.wakeWriter()
	for len(s.sealed) > 0 && s.failed == nil {
		s.idle.Wait()
	}
	return s.failed
}

// Stats is how a store stands.
type Stats struct {
	// Ports have a number; Chunks are on disk.
	Ports, Chunks int
	// HeadBytes are in memory and not yet written.
	HeadBytes int
	// LiveBytes are in use in the file, FileBytes is its size.
	LiveBytes, FileBytes int64
	// Dropped counts samples that were lost because they could not be written.
	Dropped uint64
	// Oldest is the first moment of which anything is known, of each tier; zero if nothing is.
	Oldest [numTier]time.Time
	// Failed is why the last write failed.
	Failed error
}

// Stats says how the store stands.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{Ports: len(s.keys), Dropped: s.dropped, Failed: s.failed, HeadBytes: s.head.bytes + s.sealedBytes()}
	for t := range s.chunks {
		st.Chunks += len(s.chunks[t])
		if len(s.chunks[t]) > 0 {
			st.Oldest[t] = time.UnixMilli(s.chunks[t][0].from)
		}
	}
	if !s.closed {
		st.FileBytes, st.LiveBytes = s.sizes()
	}
	return st
}
