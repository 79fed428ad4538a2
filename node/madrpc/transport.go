package madrpc

import "softib/proto/ib"

// Transport is a port that management datagrams go through, with the services of this package: requests are
// repeated, matched with their answers and given up, long messages are cut and joined. While a manager runs, Queue and
// Poll are called by one goroutine, and Now by another too.
//
// tidy: calls out, no engine uses it: it is what drivers of managers and surveys agree on
type Transport interface {
	// Now is the time that deadlines are counted in.
	Now() ib.Time
	Register(Registration) (AgentID, error)
	// Queue takes a message. It may leave only with the next Poll.
	Queue(now ib.Time, id AgentID, m Message) error
	// Poll sends what is queued and hands over what has come, without waiting. It reports whether there was anything.
	Poll(take func(Delivery)) bool
	// Bell is sent to when something has come.
	Bell() <-chan struct{}
	// SetIsSM says that a manager runs at the port, or does not any more.
	SetIsSM(on bool)
	Close() error
}
