package rdmacm

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"

	"softib/driver/roce"
	"softib/proto/ib"
	"softib/proto/mad"
)

// What differs where a port is at Ethernet: addresses are GIDs, nobody has to be asked for a path, and groups are IP's.

// networkGID is an IP address as a GID.
func (a *sockaddr) networkGID() (g ib.GID) {
	switch {
	case a.family == afIB:
		return a.gid
	case a.ip.IsValid():
		return a.ip.As16()
	}
	return g
}

// setNetwork makes it the IP address that a GID is.
func (a *sockaddr) setNetwork(g ib.GID) {
	if a.family == afIB {
		a.gid = g
	} else {
		a.ip = netip.AddrFrom16(g)
		if a.family == afInet {
			a.ip = a.ip.Unmap()
		}
	}
}

// reachNetwork finds the address that an ID's packets leave from.
func (d *ident) reachNetwork(ad *Adapter, mine *Port) syscall.Errno {
	to := d.dst.networkGID()
	from := d.gid // of an ID that is bound to an address
	switch {
	case d.dst.isAny():
		// This machine, at the address that the ID has.
		if d.port == nil {
			from = mine.firstGID(d.dst.family)
		}
		to = from
	case d.port == nil:
		if mine, from = ad.towards(to, uint32(d.dst.scope)); mine == nil {
			return syscall.EHOSTUNREACH
		}
	}
	if from.IsZero() {
		return syscall.EADDRNOTAVAIL
	}
	if err := d.acquire(mine, from); err != nil {
		return errnoOf(err)
	}
	d.dgid = to
	if d.src.isAny() {
		d.src.setNetwork(from)
	}
	return 0
}

// towards is the port at which the machine's way to an address begins, nil if it is none of these, and the address that
// packets have there.
func (a *Adapter) towards(to ib.GID, scope uint32) (*Port, ib.GID) {
	for i := range a.Ports {
		if from, ok := a.Ports[i].Ethernet.Source(to, scope); ok {
			return &a.Ports[i], from
		}
	}
	return nil, ib.GID{}
}

// firstGID is the first address of a family, zero if there is none.
func (p *Port) firstGID(family uint16) (g ib.GID) {
	for _, x := range p.GIDs {
		if x.IsZero() {
			continue // the interface has lost it
		}
		if family == afIB || netip.AddrFrom16(x).Is4In6() == (family == afInet) {
			return x
		}
	}
	return g
}

// Of paths on Ethernet: what IP's packets may pass, and 4.096 us * 2^n, in which one arrives: 34 ms.
const (
	networkHops = 64
	networkLife = 13
	networkRate = 3 // 10 Gb/s, as good as any: nobody slows down for its sake
)

// networkPath is an ID's path.
func (d *ident) networkPath(mine *Port) mad.PathRecord {
	r := mad.PathRecord{DGID: d.dgid, SGID: d.gid, PKey: d.key, NumbPath: 1, Reversible: true, HopLimit: networkHops,
		ServiceID: serviceID(d.space, &d.dst), MTUSelector: mad.SelectExactly, MTU: mine.MTU,
		RateSelector: mad.SelectExactly, Rate: networkRate, PacketLifeTimeSelector: mad.SelectExactly,
		PacketLifeTime: networkLife}
	switch {
	case d.tosSet:
		r.TClass = d.tos
	case d.src.family == afInet6:
		r.TClass = uint8(d.src.flow >> 20)
	}
	return r
}

// gidIndex is where the port has the ID's GID.
func (d *ident) gidIndex() uint8 {
	if ad, err := d.ch.adapter(); err == nil {
		if info := ad.port(d.port.num); info != nil {
			return info.gidIndex(d.gid)
		}
	}
	return 0
}

// enterNetwork has the interface join the group, about which there is nobody else to ask.
func (g *group) enterNetwork() error {
	if g.want.MGID.IsZero() {
		return syscall.EADDRNOTAVAIL // nobody makes up groups
	}
	if err := g.ethernet.Join(g.want.MGID); err != nil {
		return err
	}
	g.rec = g.want
	g.rec.HopLimit, g.rec.Rate = networkHops, networkRate
	g.state = groupIn // as who has just come finds it
	return nil
}

func (g *group) exitNetwork() {
	g.ethernet.Leave(g.rec.MGID)
	g.state = groupOut
	_ = g.step()
}

// OnEthernet is this machine as the server of programs sees it, with the interfaces whose port is held: a host whose
// ports they are. A program names those that it sees, with commas between them.
func OnEthernet(x *roce.Interfaces) Ports { return network{x} }

type network struct{ *roce.Interfaces }

// thisMachine is the one host.
const thisMachine = ""

func (n network) View(name string) (string, []ib.PortNum, error) {
	var ports []ib.PortNum
	for one := range strings.SplitSeq(name, ",") {
		s, number := n.Server(one)
		if s == nil {
			return "", nil, fmt.Errorf("%w: %s; next: softib exec --roce %[2]s", ErrNoHost, one)
		}
		ports = append(ports, number)
	}
	return thisMachine, ports, nil
}

func (n network) Adapter(string) (a Adapter, err error) {
	n.All(func(number ib.PortNum, s *roce.Server) {
		info := s.PortInfo()
		p := Port{Num: number, NodeGUID: s.GUID(), Shown: 1, Ethernet: s, Active: info.PortState == ib.PortActive,
			MTU: info.NeighborMTU, PKeys: []ib.PKey{ib.PKeyDefault}, GIDs: s.GIDs()}
		p.GID = p.firstGID(afIB)
		a.Ports = append(a.Ports, p)
	})
	return a, nil
}

func (n network) ByIP(netip.Addr) (string, bool) { return "", false }

func (n network) ByGID(ib.GID) (string, bool) { return "", false }

func (n network) Open(_ string, port ib.PortNum) (session Session, err error) {
	err = ErrNoHost
	n.All(func(number ib.PortNum, s *roce.Server) {
		if number == port {
			session, err = s.OpenMgmt()
		}
	})
	return session, err
}
