package nic

import "fmt"

// Transport is by what processes talk to each other.
type Transport uint8

// Transports.
const (
	// RC is a reliable connection for each pair of processes, with a receive queue of its own.
	RC Transport = iota
	// RCSRQ has one shared receive queue (SRQ) for each process instead.
	RCSRQ
	// XRC is the extended reliable connection (IBA annex A14): a process sends to all of a host by one queue pair.
	XRC
	// DC is dynamically connected: a few initiators that connect when they send, and one target.
	DC
	NumTransport
)

var transportNames = [NumTransport]string{"RC", "RC with SRQ", "XRC", "DC"}

func (t Transport) String() string {
	if t < NumTransport {
		return transportNames[t]
	}
	return fmt.Sprintf("transport %d", uint8(t))
}

// Needs is what an adapter has to keep.
type Needs struct{ Contexts, ReceiveQueues int }

// Needs is what the adapter of a host needs on which so many processes run that each talk to all processes of all other
// hosts. A process has so many initiators with DC.
func (t Transport) Needs(hosts, processes, initiators int) Needs {
	switch others := hosts - 1; t {
	case RCSRQ:
		return Needs{processes * processes * others, processes}
	case XRC:
		// One that sends to each other host, and for each that sends to this one its target.
		return Needs{2 * processes * others, processes}
	case DC:
		return Needs{processes * (initiators + 1), processes}
	default:
		return Needs{processes * processes * others, processes * processes * others}
	}
}
