package umad

import (
	"fmt"

	"softib/driver/live"
	"softib/proto/ib"
	"softib/proto/topo"
)

// Model and Hardware are what adapters of a fabric in software say of themselves.
const (
	Model    = "softib virtual HCA"
	Hardware = "0"
)

// OnFabric is a fabric of this process as the server of programs sees it. Firmware is the version that adapters show.
func OnFabric(f *live.Fabric, firmware string) Ports { return fabricPorts{f, firmware} }

type fabricPorts struct {
	f        *live.Fabric
	firmware string
}

func (u fabricPorts) node(name string) (*topo.Node, error) {
	if n := u.f.Graph().ByName(name); n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("%w: %q", ErrNoHost, name)
}

func (u fabricPorts) CA(host string) (CA, error) {
	n, err := u.node(host)
	if err != nil {
		return CA{}, err
	}
	ca := CA{NodeType: n.Type, NodeGUID: n.GUID, SystemGUID: n.SystemGUID, Firmware: u.firmware, Hardware: Hardware,
		Type: Model}
	first, last := 1, n.NumPorts()
	if n.IsSwitch() { // a switch's own port
		first, last = 0, 0
	}
	for p := first; p <= last; p++ {
		ref := topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}
		pi, ok := u.f.PortInfo(ref)
		if !ok {
			continue
		}
		ca.Ports = append(ca.Ports, Port{
			Num: ref.Port, GUID: n.PortGUID(ref.Port), GIDPrefix: pi.GidPrefix, LID: pi.LID, LMC: pi.LMC,
			SMLID: pi.MasterSMLID, SMSL: pi.MasterSMSL,
			State: pi.PortState, Phys: pi.PortPhysicalState, Rate: pi.Rate(), Capabilities: pi.CapabilityMask,
			PKeys: u.f.PKeys(ref),
		})
	}
	return ca, nil
}

func (u fabricPorts) Open(host string, port ib.PortNum) (Session, error) {
	n, err := u.node(host)
	if err != nil {
		return nil, err
	}
	if int(port) > n.NumPorts() || (port == 0) != n.IsSwitch() {
		return nil, fmt.Errorf("%w: %d of %s", ErrNoPort, port, host)
	}
	return u.f.OpenMgmt(topo.PortRef{Node: n.Index, Port: port})
}

func (u fabricPorts) SetIsSM(host string, port ib.PortNum, on bool) error {
	n, err := u.node(host)
	if err != nil {
		return err
	}
	u.f.SetIsSM(topo.PortRef{Node: n.Index, Port: port}, on)
	return nil
}
