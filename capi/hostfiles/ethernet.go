package hostfiles

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"softib/node/hca"
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
	Counted
}

// Counted is what has been counted at an interface.
type Counted struct {
	Port   ib.Counters
	Engine hca.Stats // of all programs' queue pairs
}

// rxeCounters are those that Linux's software adapter (rdma_rxe) has in hw_counters, by its names; beside them are
// mlx5's. Of rxe's only rdma_sends and rdma_recvs are missing.
var rxeCounters = []struct {
	name  string
	value func(c *Counted) uint64
}{
	{"sent_pkts", func(c *Counted) uint64 { return c.Port[ib.PortXmitPkts] }},
	{"rcvd_pkts", func(c *Counted) uint64 { return c.Port[ib.PortRcvPkts] }},
	{"duplicate_request", func(c *Counted) uint64 { return c.Engine.Duplicates + c.Engine.Drops[hca.DropDuplicate] }},
	{"out_of_seq_request", func(c *Counted) uint64 { return c.Engine.OutOfSequence }},
	{"rcvd_rnr_err", func(c *Counted) uint64 { return c.Engine.RNRNAKs }},
	{"send_rnr_err", func(c *Counted) uint64 { return c.Engine.RNRsSent }},
	{"rcvd_seq_err", func(c *Counted) uint64 { return c.Engine.SeqNAKsRcvd }},
	// rxe leaves some acknowledgements to another thread. Here who receives one handles it, always.
	{"ack_deferred", func(*Counted) uint64 { return 0 }},
	{"retry_exceeded_err", func(c *Counted) uint64 { return c.Engine.SendErrors[hca.WCRetryExcErr] }},
	{"retry_rnr_exceeded_err", func(c *Counted) uint64 { return c.Engine.SendErrors[hca.WCRNRRetryExcErr] }},
	{"completer_retry_err", func(c *Counted) uint64 {
		return c.Engine.Timeouts + c.Engine.SeqNAKsRcvd + c.Engine.ImpliedNAKs
	}},
	{"send_err", func(c *Counted) uint64 { return c.Port[ib.PortXmitDiscards] }},
	{"link_downed", func(c *Counted) uint64 { return c.Port[ib.LinkDownedCounter] }},
	{"np_cnp_sent", func(c *Counted) uint64 { return c.Engine.CNPsSent }}, // and these two are mlx5's on Ethernet
	{"rp_cnp_handled", func(c *Counted) uint64 { return c.Engine.BECNs }},
}

// NewEthernet writes the files to a folder, anew. The adapters' names are numbered from that of the configuration on:
// softib0, softib1.
func NewEthernet(root string, c Config, all []Interface) (*Ethernet, error) {
	if err := os.RemoveAll(root); err != nil {
		return nil, err
	}
	e := &Ethernet{tree{root: root, text: map[string]string{}, ports: make([]*port, len(all))}}
	name, m := strings.TrimRight(c.Device, "0123456789"), lookAround(sysDir)
	c.Domain = freeDomain(sysDir)
	for i := range all {
		x := &all[i]
		c.Device, c.Interface, c.Place = name+strconv.Itoa(i), x.Name, i
		n := &topo.Node{Name: x.Name, Desc: x.Name, Type: ib.NodeCA, GUID: x.GUID, SystemGUID: x.GUID,
			Ports: make([]topo.Port, 2)}
		device(c, n, m, e.put, e.link)
		e.dirs = append(e.dirs, portDir(c, 1))
		e.put(portDir(c, 1)+"/hw_counters/"+lifespanFile, fmt.Sprintf("%d\n", lifespanMs))
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
		e.setCounted(e.dirs[i], &x.Counted)
	}
	return e.take()
}

// setCounted writes counters of a port that have changed.
func (e *Ethernet) setCounted(dir string, c *Counted) {
	for _, f := range counterFiles {
		if strings.HasPrefix(f.name, "counters/") {
			e.put(dir+"/"+f.name, counterText(c.Port[f.counter], f.bits))
		}
	}
	for _, f := range hwCounters {
		e.put(dir+"/hw_counters/"+f.name, counterText(f.value(&c.Engine), 64))
	}
	for _, f := range rxeCounters {
		e.put(dir+"/hw_counters/"+f.name, counterText(f.value(c), 64))
	}
}
