package rdmacm

import (
	"net/netip"
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
		var ok bool
		if from, ok = ad.Ethernet.Source(to); !ok {
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

// firstGID is the first address of a family, zero if there is none.
func (p *Port) firstGID(family uint16) (g ib.GID) {
	for _, x := range p.GIDs {
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
	if ad, err := d.ch.host.adapter(); err == nil {
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

// OnEthernet is an interface of this machine as the server of programs sees it: a host of its name.
func OnEthernet(s *roce.Server) Ports { return network{s} }

type network struct{ s *roce.Server }

func (n network) Adapter(name string) (Adapter, error) {
	c := n.s.Config()
	if name != c.Name {
		return Adapter{}, ErrNoHost
	}
	gids := n.s.GIDs()
	p := Port{Num: 1, Active: true, MTU: n.s.MTU(), PKeys: []ib.PKey{ib.PKeyDefault}, GIDs: gids, GID: gids[0]}
	return Adapter{NodeGUID: n.s.GUID(), Ports: []Port{p}, Ethernet: n.s}, nil
}

func (n network) ByIP(netip.Addr) (string, bool) { return "", false }

func (n network) ByGID(ib.GID) (string, bool) { return "", false }

func (n network) Open(string, ib.PortNum) (Session, error) {
	x, err := n.s.OpenMgmt()
	if err != nil {
		return nil, err
	}
	return x, nil
}
