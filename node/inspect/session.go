package inspect

import (
	"context"

	"softib/node/madrpc"
)

// Session is a use of a port's management service: some agents, and one queue of what has come for them.
type Session interface {
	madrpc.Transport
	Send(madrpc.AgentID, madrpc.Message) error
	// Recv waits for the next delivery. Its data is the caller's.
	Recv(context.Context) (madrpc.Delivery, error)
}
