package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"softib/node/madrpc"
	"softib/proto/ib"
)

var (
	// ErrNoHost is a host that the fabric does not have.
	ErrNoHost = errors.New("no such host")
	// ErrClosed is a session whose fabric has gone.
	ErrClosed = errors.New("session closed")
)

// Ports is the fabric as the server needs it. Its methods are called from many goroutines.
type Ports interface {
	// View is the host that a program sees by a name, and which of its ports: all if nil. ErrNoHost if there is none.
	View(name string) (host string, ports []ib.PortNum, err error)
	// Adapter is the adapter of a host as it is now; ErrNoHost if there is none.
	Adapter(host string) (Adapter, error)
	// ByIP finds the host of a fabric that has an address.
	ByIP(netip.Addr) (host string, ok bool)
	// ByGID finds the host that has a port with an address.
	ByGID(ib.GID) (host string, ok bool)
	// Open begins a session on a host's port.
	Open(host string, port ib.PortNum) (Session, error)
}

// Session is one use of a port's management service. Its methods are called from many goroutines.
type Session interface {
	Register(madrpc.Registration) (madrpc.AgentID, error)
	// Send takes a datagram; it copies Data and does not wait.
	Send(madrpc.AgentID, madrpc.Message) error
	// Recv waits for what comes for any agent of the session. The delivery's Data are the caller's
	// until the next Recv. Its error ends the session.
	Recv(context.Context) (madrpc.Delivery, error)
	// Now is the fabric's time.
	Now() ib.Time
	Close() error
}

// Adapter is a host's channel adapter. A machine at Ethernet has one for each interface, and all of them are one here.
type Adapter struct {
	// IP and IP6 are the host's addresses, in a fabric.
	IP, IP6 netip.Addr
	// Ports are in order, from number 1.
	Ports []Port
}

// Port is a port of an adapter.
type Port struct {
	Num ib.PortNum
	// NodeGUID is that of the adapter which programs see it at, and Shown its number there.
	NodeGUID ib.GUID
	Shown    ib.PortNum
	// Ethernet is what it is at, if it is not in a fabric.
	Ethernet Ethernet

	GID    ib.GID // the first of its table
	GIDs   []ib.GID
	LID    ib.LID
	LMC    uint8
	SMLID  ib.LID
	SMSL   ib.SL
	Active bool
	MTU    ib.MTU // of its link
	PKeys  []ib.PKey
}

// Ethernet is a real network: there is no administrator, GIDs are IP addresses, and the machine's routes say where to
// go.
type Ethernet interface {
	// Source is the address that packets to another leave from; it is not ok if there is no way that begins at this
	// interface. Scope is the index of the one that a link-local address is meant at, or 0.
	Source(to ib.GID, scope uint32) (from ib.GID, ok bool)
	// Join makes the interface a member of a group until Leave is called as often.
	Join(ib.GID) error
	Leave(ib.GID)
}

// port is the port of that number, nil if there is none.
func (a *Adapter) port(n ib.PortNum) *Port {
	for i := range a.Ports {
		if a.Ports[i].Num == n {
			return &a.Ports[i]
		}
	}
	return nil
}

// seen are the ports of some numbers; all if nil.
func (a Adapter) seen(ports []ib.PortNum) Adapter {
	if ports == nil {
		return a
	}
	some := make([]Port, 0, len(ports))
	for _, n := range ports {
		if p := a.port(n); p != nil {
			some = append(some, *p)
		}
	}
	a.Ports = some
	return a
}

// main is the port that the host's IP addresses are at: the first that is active, or the first.
func (a *Adapter) main() *Port {
	for i := range a.Ports {
		if a.Ports[i].Active {
			return &a.Ports[i]
		}
	}
	if len(a.Ports) == 0 {
		return nil
	}
	return &a.Ports[0]
}

// byGID is the port that has an address, nil if none has.
func (a *Adapter) byGID(g ib.GID) *Port {
	for i := range a.Ports {
		if p := &a.Ports[i]; p.GID == g || slices.Contains(p.GIDs, g) {
			return p
		}
	}
	return nil
}

// gidIndex is where a port has a GID; the first of all if it does not say.
func (p *Port) gidIndex(g ib.GID) uint8 { return uint8(max(slices.Index(p.GIDs, g), 0)) }

// keyIndex is where a port has a partition: the very key if it is there, or else one of the same partition.
func (p *Port) keyIndex(key ib.PKey) (uint16, bool) {
	found, ok := 0, false
	for i, k := range p.PKeys {
		if k == key {
			return uint16(i), true
		}
		if !ok && k.IsValid() && k.Base() == key.Base() {
			found, ok = i, true
		}
	}
	return uint16(found), ok
}

// homeKey is the partition of what a port does without a partner: its first key with full membership, or its first.
func (p *Port) homeKey() ib.PKey {
	for _, k := range p.PKeys {
		if k.IsValid() && k.IsFull() {
			return k
		}
	}
	if len(p.PKeys) > 0 {
		return p.PKeys[0]
	}
	return ib.PKeyDefault
}

// sharedKey is the first partition of a port in which it may speak to another. If there is none it is the first of all,
// and the administrator will say no.
func (p *Port) sharedKey(o *Port) ib.PKey {
	for _, k := range p.PKeys {
		for _, far := range o.PKeys {
			if k.Matches(far) {
				return k
			}
		}
	}
	return p.homeKey()
}
