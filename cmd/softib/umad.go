package main

import (
	"context"
	"fmt"
	"net"

	"softib/capi/umad"
	"softib/ib"
	"softib/live"
	"softib/topo"
)

// umadPorts is a fabric as the server of management programs sees it.
type umadPorts struct{ f *live.Fabric }

// model is what adapters call themselves.
const model = "softib virtual HCA"

func (u umadPorts) host(name string) (*topo.Node, error) {
	n := u.f.Graph().ByName(name)
	if n == nil {
		return nil, fmt.Errorf("%w: %q", umad.ErrNoHost, name)
	}
	return n, nil
}

func (u umadPorts) CA(host string) (umad.CA, error) {
	n, err := u.host(host)
	if err != nil {
		return umad.CA{}, err
	}
	ca := umad.CA{
		NodeType: n.Type, NodeGUID: n.GUID, SystemGUID: n.SystemGUID, Firmware: version, Hardware: "0", Type: model,
	}
	first, last := 1, n.NumPorts()
	if n.IsSwitch() {
		first, last = 0, 0
	}
	for p := first; p <= last; p++ {
		ref := topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}
		pi, ok := u.f.PortInfo(ref)
		if !ok {
			continue
		}
		ca.Ports = append(ca.Ports, umad.Port{
			Num: ref.Port, GUID: n.PortGUID(ref.Port), GIDPrefix: pi.GidPrefix, LID: pi.LID, LMC: pi.LMC, SMLID: pi.MasterSMLID, SMSL: pi.MasterSMSL,
			State: pi.PortState, Phys: pi.PortPhysicalState, Rate: pi.Rate(), Capabilities: pi.CapabilityMask, PKeys: u.f.PKeys(ref),
		})
	}
	return ca, nil
}

func (u umadPorts) Open(host string, port ib.PortNum) (umad.Session, error) {
	n, err := u.host(host)
	if err != nil {
		return nil, err
	}
	if int(port) > n.NumPorts() || (port == 0) != n.IsSwitch() {
		return nil, fmt.Errorf("%w: %d of %s", umad.ErrNoPort, port, host)
	}
	return u.f.OpenMgmt(topo.PortRef{Node: n.Index, Port: port})
}

func (u umadPorts) SetIsSM(host string, port ib.PortNum, on bool) error {
	n, err := u.host(host)
	if err != nil {
		return err
	}
	u.f.SetIsSM(topo.PortRef{Node: n.Index, Port: port}, on)
	return nil
}

// serveUMAD lets management programs use the fabric until ctx ends.
func serveUMAD(ctx context.Context, p place, f *live.Fabric) (*net.UnixListener, <-chan error, error) {
	l, err := umad.Listen(p.umad())
	if err != nil {
		return nil, nil, err
	}
	done := make(chan error, 1)
	go func() { done <- umad.Serve(ctx, l, umadPorts{f}) }()
	return l, done, nil
}
