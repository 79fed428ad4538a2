package rdmacm

import (
	"fmt"
	"net/netip"

	"softib/driver/live"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// Fabric is one of which this process has all, or a part and knows the rest: driver/live's, driver/span's.
type Fabric interface {
	Graph() *topo.Graph
	Hosts() []*live.Host
	// Host is one that programs can be on, HostByIP any.
	Host(name string) (*live.Host, error)
	HostByIP(netip.Addr) (*live.Host, bool)
	PortInfo(topo.PortRef) (mad.PortInfo, bool)
	PKeys(topo.PortRef) []ib.PKey
	OpenMgmt(topo.PortRef) (*live.Session, error)
}

// OnFabric is a fabric as the server of programs sees it.
func OnFabric(f Fabric) Ports {
	u := fabricPorts{f: f, byName: map[string]*live.Host{}, byGUID: map[ib.GUID]string{}}
	for _, h := range f.Hosts() {
		u.byName[h.Name()] = h
		for p := 1; p <= h.Node().NumPorts(); p++ {
			u.byGUID[h.Node().PortGUID(ib.PortNum(p))] = h.Name()
		}
	}
	return u
}

type fabricPorts struct {
	f      Fabric
	byName map[string]*live.Host
	byGUID map[ib.GUID]string
}

// host finds a host that programs can be on: one that is here.
func (u fabricPorts) host(name string) (*live.Host, error) {
	h, err := u.f.Host(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoHost, err)
	}
	return h, nil
}

func (u fabricPorts) View(name string) (string, []ib.PortNum, error) { return name, nil, nil }

// Adapter is that of any host of the fabric.
func (u fabricPorts) Adapter(name string) (Adapter, error) {
	h := u.byName[name]
	if h == nil {
		_, err := u.host(name)
		return Adapter{}, err
	}
	n := h.Node()
	a := Adapter{IP: h.IP(), IP6: h.IP6()}
	for p := 1; p <= n.NumPorts(); p++ {
		ref := topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}
		pi, ok := u.f.PortInfo(ref)
		if !ok {
			continue
		}
		a.Ports = append(a.Ports, Port{
			Num: ref.Port, NodeGUID: n.GUID, Shown: ref.Port,
			GID: ib.MakeGID(pi.GidPrefix, n.PortGUID(ref.Port)), LID: pi.LID, LMC: pi.LMC,
			SMLID: pi.MasterSMLID, SMSL: pi.MasterSMSL, Active: pi.PortState == ib.PortActive, MTU: pi.NeighborMTU,
			PKeys: u.f.PKeys(ref),
		})
	}
	return a, nil
}

func (u fabricPorts) ByIP(a netip.Addr) (string, bool) {
	h, ok := u.f.HostByIP(a)
	if !ok {
		return "", false
	}
	return h.Name(), true
}

func (u fabricPorts) ByGID(g ib.GID) (string, bool) {
	name, ok := u.byGUID[g.GUID()]
	return name, ok
}

func (u fabricPorts) Open(name string, port ib.PortNum) (Session, error) {
	h, err := u.host(name)
	if err != nil {
		return nil, err
	}
	return u.f.OpenMgmt(topo.PortRef{Node: h.Node().Index, Port: port})
}
