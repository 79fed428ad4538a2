package rdmacm

import (
	"fmt"
	"net/netip"

	"softib/driver/live"
	"softib/proto/ib"
	"softib/proto/topo"
)

// OnFabric is a fabric of this process as the server of programs sees it.
func OnFabric(f *live.Fabric) Ports {
	u := fabricPorts{f: f, byGUID: map[ib.GUID]string{}}
	for _, h := range f.Hosts() {
		for p := 1; p <= h.Node().NumPorts(); p++ {
			u.byGUID[h.Node().PortGUID(ib.PortNum(p))] = h.Name()
		}
	}
	return u
}

type fabricPorts struct {
	f      *live.Fabric
	byGUID map[ib.GUID]string
}

func (u fabricPorts) host(name string) (*live.Host, error) {
	h, err := u.f.Host(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoHost, err)
	}
	return h, nil
}

func (u fabricPorts) Adapter(name string) (Adapter, error) {
	h, err := u.host(name)
	if err != nil {
		return Adapter{}, err
	}
	n := h.Node()
	a := Adapter{NodeGUID: n.GUID, IP: h.IP(), IP6: h.IP6()}
	for p := 1; p <= n.NumPorts(); p++ {
		ref := topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}
		pi, ok := u.f.PortInfo(ref)
		if !ok {
			continue
		}
		a.Ports = append(a.Ports, Port{
			Num: ref.Port, GID: ib.MakeGID(pi.GidPrefix, n.PortGUID(ref.Port)), LID: pi.LID, LMC: pi.LMC,
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
