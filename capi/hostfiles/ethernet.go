package hostfiles

import (
	"os"
	"strconv"
	"strings"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// Ethernet is the files of a program that sees adapters at Ethernet interfaces.
type Ethernet struct{ tree }

// Interface is what such a file is about.
type Interface struct {
	Name string
	GUID ib.GUID // of the adapter
	Info mad.PortInfo
	GIDs []ib.GID
}

// NewEthernet writes the files to a folder, anew. The adapters' names are numbered from that of the configuration on:
// softib0, softib1.
func NewEthernet(root string, c Config, all []Interface) (*Ethernet, error) {
	if err := os.RemoveAll(root); err != nil {
		return nil, err
	}
	e := &Ethernet{tree{root: root, text: map[string]string{}, ports: make([]*port, len(all))}}
	name := strings.TrimRight(c.Device, "0123456789")
	for i := range all {
		x := &all[i]
		c.Device, c.Interface, c.Place = name+strconv.Itoa(i), x.Name, i
		n := &topo.Node{Name: x.Name, Desc: x.Name, Type: ib.NodeCA, GUID: x.GUID, SystemGUID: x.GUID,
			Ports: make([]topo.Port, 2)}
		device(c, n, cpus(), e.put, e.link)
		e.dirs = append(e.dirs, portDir(c, 1))
	}
	return e, e.Update(all)
}

// Update writes what has changed of the same interfaces.
func (e *Ethernet) Update(all []Interface) error {
	for i := range all {
		x := &all[i]
		gids := make([]ib.GID, max(int(x.Info.GUIDCap), len(x.GIDs))) // the rest of the table is empty
		copy(gids, x.GIDs)
		e.setState(i, port{num: 1, info: x.Info, gids: gids, pkeys: []ib.PKey{ib.PKeyDefault}, iface: x.Name})
	}
	return e.take()
}
