package control

import "errors"

// What a refusal is about, at either end of a connection.
var (
	// ErrUsage is what cannot be asked like that: the command line is to blame.
	ErrUsage = errors.New("wrong usage")
	// ErrRequest is a request that cannot be understood.
	ErrRequest = errors.New("no such request")
	// ErrVersion is a client of another version than the fabric.
	ErrVersion = errors.New("another version of the protocol")
	// ErrHungUp is a fabric that ended, or a connection that did, before the answer was whole.
	ErrHungUp = errors.New("it hung up before it had answered")
)

// kinds are those that travel, by what they are called on the way.
var kinds = []struct {
	name string
	err  error
}{{"usage", ErrUsage}, {"request", ErrRequest}, {"version", ErrVersion}}

// Refusal is an error that came from the other end. It matches what that was about.
type Refusal struct {
	Text   string `json:"error,omitempty"`
	Advice string `json:"next,omitempty"`
	Kind   string `json:"kind,omitempty"`
}

func (r *Refusal) Error() string { return r.Text }

// Next is what to do next; empty if nobody knows.
func (r *Refusal) Next() string { return r.Advice }

// Is matches what the refusal is about.
func (r *Refusal) Is(target error) bool {
	for _, k := range kinds {
		if k.err == target {
			return k.name == r.Kind
		}
	}
	return false
}

// refusalOf is an error for the other end.
func refusalOf(err error) Refusal {
	r := Refusal{Text: err.Error(), Advice: NextOf(err)}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			r.Kind = k.name
			break
		}
	}
	return r
}

// NextOf is what an error says to do next: that of the first in its chain that has a Next; empty if none has.
func NextOf(err error) string {
	if n, ok := errors.AsType[interface {
		error
		Next() string
	}](err); ok {
		return n.Next()
	}
	return ""
}

// refused is an error about something, with what to do next.
type refused struct {
	error
	about error
	next  string
}

func (r *refused) Unwrap() error { return r.about }
func (r *refused) Next() string  { return r.next }
