package endpoint

import "softib/node/hca"

// Enter gives exclusive use of the engine until Leave.
func (e *Endpoint) Enter() *hca.HCA {
	e.mu.Lock()
	e.settleSends()
	e.takeStaged()
	return e.eng
}

// EnterToSend is Enter for a caller who only posts to send queues of connected queue pairs: receives that C code has
// staged are posted once the packets are on their way.
func (e *Endpoint) EnterToSend() *hca.HCA {
	e.mu.Lock()
	e.settleSends()
	return e.eng
}

// Leave sends what was posted and gives the engine back.
func (e *Endpoint) Leave() {
	e.owed = false
	e.send()
	e.takeStaged()
	e.finish()
	e.mu.Unlock()
}

// LeaveQuiet gives the engine back; what is due waits for who comes next.
func (e *Endpoint) LeaveQuiet() {
	if e.eng.HasEvent() || e.eng.HasWithdrawn() {
		e.finish()
	}
	e.hand()
	e.mu.Unlock()
}
