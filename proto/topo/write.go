package topo

import (
	"fmt"
	"io"

	"softib/proto/ib"
)

// Append writes g in ibnetdiscover's format, so that Parse gives g back: all but
// the GUIDs of ports without a cable, which follow from the node's.
func Append(dst []byte, g *Graph) []byte {
	dst = append(dst, "#\n# Topology file: written by softib\n#\n"...)
	if g.Kind != "" {
		dst = fmt.Appendf(dst, "%s%s\n", kindComment, cleanDesc(g.Kind))
	}
	if len(g.Nodes) > 0 {
		n := g.Nodes[0]
		dst = fmt.Appendf(dst, "# Initiated from node %016x port %016x\n", uint64(n.GUID), uint64(n.PortGUID(1)))
	}
	names := newNamer()
	for _, n := range g.Nodes {
		dst = appendNode(dst, n, names)
		for p := 1; p <= n.NumPorts(); p++ {
			if n.Ports[p].Connected() {
				dst = appendPort(dst, g, n, p)
			}
		}
	}
	return dst
}

// Write is Append to a writer.
func Write(w io.Writer, g *Graph) error {
	_, err := w.Write(Append(nil, g))
	return err
}

// typeWords are the file's words for each node type.
var typeWords = [ib.NodeRouter + 1]struct{ node, id, guid string }{
	ib.NodeCA:     {"Ca", "H", "caguid"},
	ib.NodeSwitch: {"Switch", "S", "switchguid"},
	ib.NodeRouter: {"Rt", "R", "rtguid"},
}

func appendID(dst []byte, n *Node) []byte {
	return fmt.Appendf(dst, "\"%s-%016x\"", typeWords[n.Type].id, uint64(n.GUID))
}

func appendNode(dst []byte, n *Node, names *namer) []byte {
	w := typeWords[n.Type]
	dst = fmt.Appendf(dst, "\nvendid=0x%x\ndevid=0x%x\nsysimgguid=0x%x\n%s=0x%x", n.VendorID, n.DeviceID,
		uint64(n.SystemGUID), w.guid, uint64(n.GUID))
	if n.IsSwitch() {
		dst = fmt.Appendf(dst, "(%x)", uint64(n.PortGUID(0)))
	}
	dst = fmt.Appendf(dst, "\n%s\t%d ", w.node, n.NumPorts())
	dst = appendID(dst, n)
	desc := cleanDesc(n.Desc)
	dst = fmt.Appendf(dst, "\t\t# \"%s\"", desc)
	if n.IsSwitch() {
		dst = fmt.Appendf(dst, " base port 0 lid %d lmc %d", n.Ports[0].LID, n.Ports[0].LMC)
	}
	if names.derive(n.Type, desc) != n.Name {
		dst = fmt.Appendf(dst, " name %s", n.Name)
	}
	names.take(n.Type, n.Name)
	return append(dst, '\n')
}

func appendPort(dst []byte, g *Graph, n *Node, num int) []byte {
	p := &n.Ports[num]
	peer := g.Nodes[p.Peer]
	dst = fmt.Appendf(dst, "[%d]", num)
	if !n.IsSwitch() && p.GUID != 0 {
		dst = fmt.Appendf(dst, "(%x) ", uint64(p.GUID))
	}
	dst = append(dst, '\t')
	dst = appendID(dst, peer)
	dst = fmt.Appendf(dst, "[%d]", p.PeerPort)
	lid := peer.Ports[0].LID
	if !peer.IsSwitch() {
		lid = peer.Ports[p.PeerPort].LID
		if !n.IsSwitch() {
			dst = append(dst, ' ')
		}
		if guid := peer.PortGUID(p.PeerPort); guid != 0 {
			dst = fmt.Appendf(dst, "(%x) ", uint64(guid))
		}
	}
	dst = append(dst, "\t\t# "...)
	if !n.IsSwitch() {
		dst = fmt.Appendf(dst, "lid %d lmc %d ", p.LID, p.LMC)
	}
	dst = fmt.Appendf(dst, "\"%s\" lid %d %v%v", cleanDesc(peer.Desc), lid, p.Width, p.Speed)
	if p.Could.Mbps() > 0 {
		dst = fmt.Appendf(dst, " could %v%v", p.Could.Width, p.Could.Speed)
	}
	if p.LengthMM != DefaultLengthMM {
		dst = fmt.Appendf(dst, " len %s", formatLength(p.LengthMM))
	}
	return append(dst, '\n')
}
