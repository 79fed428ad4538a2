package madrpc

import (
	"fmt"
	"iter"

	"softib/proto/mad"
)

// Asked is what somebody who makes many requests knows of each that is under way, by the cookie that comes back with
// its answer. The zero value is ready.
type Asked[T any] struct {
	list []asked[T]
	free []uint32
	gen  uint32
}

type asked[T any] struct {
	about T
	gen   uint32 // 0 while nothing is under way here
}

// Put notes a request, and returns its cookie: no earlier one has had it. The lower half counts places, which are taken
// again; the upper half is good for a transaction ID (TransactionOf).
func (a *Asked[T]) Put(about T) (cookie uint64) {
	a.gen = max(a.gen+1, 1)
	at := uint32(len(a.list))
	if n := len(a.free); n > 0 {
		at = a.free[n-1]
		a.free = a.free[:n-1]
		a.list[at] = asked[T]{about, a.gen}
	} else {
		a.list = append(a.list, asked[T]{about, a.gen})
	}
	return uint64(a.gen)<<32 | uint64(at)
}

// Take is what the request with a cookie was about, which is over now. False means that there is none.
func (a *Asked[T]) Take(cookie uint64) (about T, ok bool) {
	at := uint32(cookie)
	if int(at) >= len(a.list) || a.list[at].gen != uint32(cookie>>32) || a.list[at].gen == 0 {
		return about, false
	}
	about = a.list[at].about
	a.list[at] = asked[T]{}
	a.free = append(a.free, at)
	return about, true
}

// Len counts the requests under way, and Cap how many there were at most.
func (a *Asked[T]) Len() int { return len(a.list) - len(a.free) }
func (a *Asked[T]) Cap() int { return len(a.list) }

// All is what the requests under way are about, in the order of their places.
func (a *Asked[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for i := range a.list {
			if a.list[i].gen != 0 && !yield(a.list[i].about) {
				return
			}
		}
	}
}

// TransactionOf is a transaction ID that no other request under way has. It fits the lower half, which is the asker's
// own; the upper one is its agent's.
func TransactionOf(cookie uint64) uint64 { return cookie >> 32 }

// Agents are those of one asker at a port, by class.
type Agents [256]AgentID

// RegisterAll makes the agents of one asker at a management service, whose method it is given.
func RegisterAll(list []Registration, with func(Registration) (AgentID, error)) (a Agents, err error) {
	for _, r := range list {
		if a[r.Class], err = with(r); err != nil {
			return a, fmt.Errorf("%s: class %s: %w", r.Name, r.Class, err)
		}
	}
	return a, nil
}

// Of is the agent that sends a message.
func (a *Agents) Of(m *Message) AgentID { return a[mad.View(m.Data).Class()] }
