package subnet

import "softib/proto/ib"

// Keys are the M_Keys of a guarded subnet (IBA 14.2.4), for those who read its nodes beside its manager.
type Keys struct {
	// ByGUID are the keys of end ports.
	ByGUID map[ib.GUID]uint64
	// Subnet says who is where: a guarded node does not say who it is to those who come without its key.
	Subnet *Subnet
}

// Of is the key of an end port; 0 where it has none or is not known.
func (k *Keys) Of(g ib.GUID) uint64 {
	if k == nil {
		return 0
	}
	return k.ByGUID[g]
}

// Port is the key of the end port that answers for a port of a node; 0 where it is not known.
func (k *Keys) Port(node ib.GUID, port ib.PortNum) uint64 {
	if n := k.Subnet.at(node, port); n != nil {
		return k.ByGUID[n.Ports[n.EndPort(port)].GUID]
	}
	return 0
}

// Behind is the key of what is at the other end of a port's cable; 0 where that is not known.
func (k *Keys) Behind(node ib.GUID, port ib.PortNum) uint64 {
	g, _ := k.Subnet.Behind(node, port)
	return k.ByGUID[g]
}
