package endpoint

import (
	"time"

	"softib/node/hca"
	"softib/proto/ib"
)

// Machine is what an endpoint uses of the computer it runs on, besides memory. An endpoint without one runs on ours; in
// virtual time somebody else is the computer, so that the same code can be stopped between any two of its steps.
type Machine interface {
	// Now is the time.
	Now() ib.Time
	// Employ is asked once for an attendant: from now on AttendOnce wants to be called, whenever the page was woken and
	// when the sleep that it returned is over. Who is Woken before it sleeps does not.
	Employ()
	// Later has something done soon, in its turn, as a goroutine of its own would do it: no lock is held.
	Later(func())
	// Meanwhile is called where another process may do something in the midst of a step of this one.
	Meanwhile()
}

// Woken reports whether somebody has woken the attendant since it decided to sleep.
func (e *Endpoint) Woken() bool { return e.page.bell() != e.bell }

func (e *Endpoint) meanwhile() {
	if e.machine != nil {
		e.machine.Meanwhile()
	}
}

// Now is the endpoint's time.
func (e *Endpoint) Now() ib.Time {
	if e.machine != nil {
		return e.machine.Now()
	}
	return ib.Time(time.Since(e.start)) * ib.Nanosecond
}

// Engine is the adapter itself, for who has the machine to himself: nobody else may be in it.
func (e *Endpoint) Engine() *hca.HCA { return e.eng }

// PutOff is how long deadlines were put off so far because peers had not looked.
func (e *Endpoint) PutOff() ib.Time { return e.putOff }
