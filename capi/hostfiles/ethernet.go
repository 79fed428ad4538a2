package hostfiles

import (
	"os"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// Ethernet writes the files of an adapter at an Ethernet interface to a folder, anew. Nothing in them changes, and
// there are no counters.
func Ethernet(root string, c Config, guid ib.GUID, gids []ib.GID, info mad.PortInfo) error {
	if err := os.RemoveAll(root); err != nil {
		return err
	}
	x := &tree{root: root, text: map[string]string{}}
	n := &topo.Node{Name: c.Interface, Desc: c.Interface, Type: ib.NodeCA, GUID: guid, SystemGUID: guid,
		Ports: make([]topo.Port, 2)}
	device(c, n, cpus(), x.put, x.link)
	state(portDir(c, 1), &port{num: 1, info: info, gids: gids, pkeys: []ib.PKey{ib.PKeyDefault}, iface: c.Interface},
		x.put)
	return x.take()
}
