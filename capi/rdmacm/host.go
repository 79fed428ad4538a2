package rdmacm

import (
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"

	"softib/proto/ib"
)

// host is one host of the fabric as rdma_cm knows it: its ports, what is bound to its addresses, and the channels of
// its programs.
type host struct {
	s    *Server
	name string

	// mu guards everything of the host: its ports with their engines, all IDs, channels and events. Nothing is waited
	// for while it is held.
	mu     sync.Mutex
	ports  []*endPort
	spaces map[portSpace]map[uint16]*binding
	last   uint16 // the ephemeral port that was given out last
}

// binding is one port number of a port space, and who has it.
type binding struct {
	space  portSpace
	port   uint16
	owners []*ident
}

// Ephemeral ports, as Linux has them unless told otherwise.
const (
	ephemeralFirst = 32768
	ephemeralLast  = 60999
)

// openHost opens the management services of all ports of a host.
func openHost(s *Server, name string) (*host, error) {
	a, err := s.ports.Adapter(name)
	if err != nil {
		return nil, err
	}
	h := &host{s: s, name: name, spaces: map[portSpace]map[uint16]*binding{}}
	if err := h.openPorts(&a); err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// openPorts opens those ports of an adapter that are not open.
func (h *host) openPorts(a *Adapter) error {
	for i := range a.Ports {
		at := slices.IndexFunc(h.ports, func(p *endPort) bool { return p.num == a.Ports[i].Num })
		if at >= 0 && !h.ports[at].dead {
			continue
		}
		p, err := openPort(h, &a.Ports[i])
		switch {
		case err != nil:
			return err
		case at >= 0:
			h.ports[at] = p
		default:
			h.ports = append(h.ports, p)
		}
	}
	return nil
}

func (h *host) close() {
	for _, p := range h.ports {
		p.close()
	}
}

// reopen opens the ports that the host has got since it was opened.
func (h *host) reopen() error {
	a, err := h.adapter()
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.openPorts(&a)
}

// adapter is the host's adapter as it is now.
func (h *host) adapter() (Adapter, error) { return h.s.ports.Adapter(h.name) }

// port is the open port of a number.
func (h *host) port(n ib.PortNum) *endPort {
	for _, p := range h.ports {
		if p.num == n {
			return p
		}
	}
	return nil
}

// closeChannel ends all that a program had through a channel.
func (h *host) closeChannel(c *channel) {
	c.ended = true
	c.queue, c.sent = nil, nil
	for _, d := range sortedIDs(c.ids) {
		if c.ids[d.number] == d { // not gone with its listener meanwhile
			d.destroy()
		}
	}
	c.detach()
}

// sortedIDs are a channel's IDs in the order in which they were made.
func sortedIDs(m map[uint32]*ident) []*ident {
	out := make([]*ident, 0, len(m))
	for _, d := range m {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b *ident) int { return int(a.number) - int(b.number) })
	return out
}

// bindPort gives an ID its port: the one that its address asks for, or a free one.
func (h *host) bindPort(d *ident) error {
	space := d.space
	if d.src.family == afIB {
		if space = spaceOfServiceID(d.space, &d.src); space == 0 {
			return syscall.EPROTONOSUPPORT
		}
	}
	if p := d.src.portNum(); p != 0 {
		return h.usePort(space, d, p)
	}
	const n = ephemeralLast - ephemeralFirst + 1
	start := rand.IntN(n)
	for i := range n {
		p := uint16(ephemeralFirst + (start+i)%n)
		if p == h.last {
			continue // not the same again at once: somebody may still mean the former owner
		}
		if b := h.spaces[space][p]; b == nil || b.unique(d) {
			h.last = p
			h.take(space, d, p)
			return nil
		}
	}
	return syscall.EADDRNOTAVAIL
}

func (h *host) usePort(space portSpace, d *ident, p uint16) error {
	if b := h.spaces[space][p]; b != nil {
		if err := b.check(d, d.reuse); err != nil {
			return err
		}
	}
	h.take(space, d, p)
	return nil
}

func (h *host) take(space portSpace, d *ident, p uint16) {
	if h.spaces[space] == nil {
		h.spaces[space] = map[uint16]*binding{}
	}
	b := h.spaces[space][p]
	if b == nil {
		b = &binding{space: space, port: p}
		h.spaces[space][p] = b
	}
	b.owners = append(b.owners, d)
	d.bound = b
	d.src.setPort(p)
}

func (h *host) release(d *ident) {
	b := d.bound
	if b == nil {
		return
	}
	d.bound = nil
	b.owners = slices.DeleteFunc(b.owners, func(o *ident) bool { return o == d })
	if len(b.owners) == 0 {
		delete(h.spaces[b.space], b.port)
	}
}

// unique reports whether an ID may share an ephemeral port, because no two connections can be mistaken for each other.
func (b *binding) unique(d *ident) bool {
	for _, o := range b.owners {
		if o == d || !o.ch.meets(d.ch) {
			continue
		}
		if o.dst.portNum() != 0 && o.dst.portNum() != d.dst.portNum() {
			continue
		}
		if !d.src.isAny() && !o.src.isAny() && !d.src.sameHost(&o.src) {
			continue
		}
		if !o.dst.isAny() && !d.dst.sameHost(&o.dst) {
			continue
		}
		return false
	}
	return true
}

// check reports whether an ID may have a port that others have, or listen on it.
func (b *binding) check(d *ident, reuse bool) error {
	for _, o := range b.owners {
		switch {
		case o == d, !o.ch.meets(d.ch):
		case o.state != stListen && reuse && o.reuse:
		case d.afOnly && o.afOnly && d.src.family != o.src.family:
		case d.src.isAny() || o.src.isAny():
			return syscall.EADDRNOTAVAIL
		case d.src.sameHost(&o.src):
			return syscall.EADDRINUSE
		}
	}
	return nil
}

// listener finds who listens for a request that came to a port: private data begin with addresses unless they are of
// the IB family.
func (p *endPort) listener(sid uint64, private []byte, gid ib.GID, qpType uint8) (d *ident, src, dst sockaddr,
	head bool) {
	space, port := portSpace(sid>>16), uint16(sid)
	if sid>>32 != 0 {
		return nil, src, dst, false
	}
	b := p.h.spaces[space][port]
	if b == nil {
		return nil, src, dst, false
	}
	src, dst, head = parseIPHead(private)
	for _, o := range b.owners {
		if o.state != stListen || o.qpType != 0 && o.qpType != qpType || !o.ch.sees(p.num) {
			continue
		}
		if o.src.family == afIB {
			if o.src.isAny() || o.src.gid == gid {
				return o, src, dst, false
			}
			continue
		}
		switch {
		case !head:
		case o.src.isAny() && (!o.afOnly || o.src.family == dst.family):
			return o, src, dst, true
		case o.src.sameHost(&dst):
			return o, src, dst, true
		}
	}
	return nil, src, dst, head
}
