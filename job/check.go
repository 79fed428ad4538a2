package job

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrSchedule is what every refusal of a schedule is.
var ErrSchedule = errors.New("not a schedule that can be run")

// OpError is about one operation.
type OpError struct {
	Rank int
	Op   uint32
	Line int // of the file; 0 if it is from none
	What string
}

func (e *OpError) Error() string {
	where := fmt.Sprintf("rank %d, operation %d", e.Rank, e.Op)
	if e.Line > 0 {
		where = fmt.Sprintf("line %d (rank %d)", e.Line, e.Rank)
	}
	return where + ": " + e.What
}

// Is makes it one of ErrSchedule.
func (e *OpError) Is(target error) bool { return target == ErrSchedule }

func (s *Schedule) refuse(rank int, op uint32, format string, args ...any) error {
	return &OpError{Rank: rank, Op: op, Line: s.Ranks[rank].line(op), What: fmt.Sprintf(format, args...)}
}

// line is where the file has an operation, 0 if there is none.
func (r *Rank) line(op uint32) int {
	if int(op) < len(r.Lines) {
		return int(r.Lines[op])
	}
	return 0
}

// check refuses what cannot run, and finds how many processors and ports a rank needs.
func (s *Schedule) check() error {
	for i := range s.Ranks {
		r := &s.Ranks[i]
		for n := range r.Ops {
			o := &r.Ops[n]
			s.CPUs, s.NICs = max(s.CPUs, int(o.CPU)+1), max(s.NICs, int(o.NIC)+1)
			switch {
			case o.Kind == Calc || o.Kind == Recv && o.Peer == Any:
			case o.Kind == Aggregate:
				if err := s.grouped(i, uint32(n)); err != nil {
					return err
				}
			case o.Kind != Send && o.Kind != Recv:
				return s.refuse(i, uint32(n), "%v: want a send, a recv or a calc", o.Kind)
			case int64(o.Peer) >= int64(len(s.Ranks)):
				return s.refuse(i, uint32(n), "%v: there are ranks 0 to %d", *o, len(s.Ranks)-1)
			}
			if o.Kind == Send && o.Tag == Any {
				return s.refuse(i, uint32(n), "%v: only a receive can leave the tag open", *o)
			}
		}
		if err := s.circle(i); err != nil {
			return err
		}
	}
	if err := s.together(); err != nil {
		return err
	}
	return s.matched()
}

// grouped refuses a part in an operation of a group that the rank is not in.
func (s *Schedule) grouped(rank int, op uint32) error {
	o := &s.Ranks[rank].Ops[op]
	if int64(o.Tag) >= int64(len(s.Groups)) {
		return s.refuse(rank, op, "%v: there are %d groups", *o, len(s.Groups))
	}
	g := &s.Groups[o.Tag]
	switch {
	case g.Payload < 8:
		return s.refuse(rank, op, "%v: its group takes %d bytes at a time: want 8 at least", *o, g.Payload)
	case !slices.Contains(g.Ranks, uint32(rank)):
		return s.refuse(rank, op, "%v: the rank is not in that group", *o)
	case o.Way > Broadcast || o.Way != AllReduce && !slices.Contains(g.Ranks, o.Peer):
		return s.refuse(rank, op, "%v: way %d about rank %d: want one of the group's", *o, o.Way, o.Peer)
	}
	return nil
}

// together refuses groups whose members do not do the same.
func (s *Schedule) together() error {
	for k := range s.Groups {
		var first []Op
		for m, rank := range s.Groups[k].Ranks {
			if int64(rank) >= int64(len(s.Ranks)) {
				return fmt.Errorf("%w: group %d has rank %d: there are ranks 0 to %d", ErrSchedule, k, rank,
					len(s.Ranks)-1)
			}
			n := 0
			for at, o := range s.Ranks[rank].Ops {
				if o.Kind != Aggregate || o.Tag != uint32(k) {
					continue
				}
				if m == 0 {
					first = append(first, o)
				} else if n >= len(first) || first[n].Way != o.Way || first[n].Size != o.Size ||
					o.Way != AllReduce && first[n].Peer != o.Peer {
					return s.refuse(int(rank), uint32(at), "%v: it is number %d of the group, and rank %d does "+
						"something else then", o, n, s.Groups[k].Ranks[0])
				}
				n++
			}
			if m > 0 && n != len(first) {
				return fmt.Errorf("%w: rank %d has %d operations of group %d, and rank %d has %d", ErrSchedule, rank, n,
					k, s.Groups[k].Ranks[0], len(first))
			}
		}
	}
	return nil
}

// circle refuses operations of a rank that wait for each other.
func (s *Schedule) circle(rank int) error {
	r := &s.Ranks[rank]
	left := slices.Clone(r.waits)
	var free []uint32
	for n := range left {
		if left[n] == 0 {
			free = append(free, uint32(n))
		}
	}
	done := 0
	for ; len(free) > 0; done++ {
		n := free[len(free)-1]
		free = free[:len(free)-1]
		for _, next := range r.next[r.bounds[2*n]:r.bounds[2*n+2]] {
			if left[next]--; left[next] == 0 {
				free = append(free, next)
			}
		}
	}
	if done == len(r.Ops) {
		return nil
	}
	// Whoever is left waits for another one that is left: following that comes to a circle.
	before := make([]uint32, len(left))
	for n := range left {
		if left[n] == 0 {
			continue
		}
		for _, next := range r.next[r.bounds[2*n]:r.bounds[2*n+2]] {
			before[next] = uint32(n)
		}
	}
	at := uint32(slices.IndexFunc(left, func(n uint32) bool { return n > 0 }))
	for range left {
		at = before[at]
	}
	var names []string
	for n := before[at]; ; n = before[n] {
		names = append(names, s.name(rank, n))
		if n == at || len(names) == 8 {
			break
		}
	}
	return s.refuse(rank, at, "it waits for itself: %s, and so on; next: take one of these waits out",
		strings.Join(append([]string{s.name(rank, at)}, names...), ", which waits for "))
}

// name is how people find an operation.
func (s *Schedule) name(rank int, op uint32) string {
	if line := s.Ranks[rank].line(op); line > 0 {
		return fmt.Sprintf("line %d", line)
	}
	return fmt.Sprintf("operation %d", op)
}

// lot is what a message and a receive have to agree in.
type lot struct{ from, tag uint32 }

// matched refuses receives that nothing can come to, and messages that nobody takes.
func (s *Schedule) matched() error {
	sends := make([]map[lot]int, len(s.Ranks)) // by receiver
	for i := range s.Ranks {
		for _, o := range s.Ranks[i].Ops {
			if o.Kind != Send {
				continue
			}
			if sends[o.Peer] == nil {
				sends[o.Peer] = map[lot]int{}
			}
			sends[o.Peer][lot{uint32(i), o.Tag}]++
		}
	}
	for i := range s.Ranks {
		if err := s.matchedAt(i, sends[i]); err != nil {
			return err
		}
	}
	return nil
}

// matchedAt looks at one rank, which so many messages of each lot come to.
func (s *Schedule) matchedAt(rank int, sends map[lot]int) error {
	coming, open := 0, 0
	for _, n := range sends { // tidy: order-free
		coming += n
	}
	last := uint32(0)
	for n, o := range s.Ranks[rank].Ops {
		if o.Kind != Recv {
			continue
		}
		if o.Peer == Any || o.Tag == Any {
			open++
			last = uint32(n)
			continue
		}
		if sends[lot{o.Peer, o.Tag}] == 0 {
			return s.refuse(rank, uint32(n), "%v: nobody sends that, or others receive it; next: add the send, or "+
				"take this receive out", o)
		}
		sends[lot{o.Peer, o.Tag}]--
		coming--
	}
	switch {
	case open > coming:
		return s.refuse(rank, last, "%v: %d receives are open to any sender or tag, and %d messages are left for them",
			s.Ranks[rank].Ops[last], open, coming)
	case open == coming:
		return nil
	}
	return s.unreceived(rank, sends, coming-open)
}

// unreceived names the first sender of a message that nobody takes.
func (s *Schedule) unreceived(rank int, left map[lot]int, count int) error {
	for i := range s.Ranks {
		for n, o := range s.Ranks[i].Ops {
			if o.Kind == Send && int(o.Peer) == rank && left[lot{uint32(i), o.Tag}] > 0 {
				return s.refuse(i, uint32(n), "%v: rank %d does not receive %d of the messages that are sent to it; "+
					"next: add the receive, or take this send out", o, rank, count)
			}
		}
	}
	return fmt.Errorf("%w: rank %d does not receive %d messages", ErrSchedule, rank, count)
}
