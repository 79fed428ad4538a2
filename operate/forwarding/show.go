package forwarding

import (
	"fmt"

	"softib/node/inspect"
	"softib/operate/manager"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
)

// Switch is a switch's tables for people and programs.
type Switch struct {
	Switch string `json:"switch"`
	GUID   string `json:"guid"`
	LID    ib.LID `json:"lid"`
	// To is the one destination that was asked for, where one was.
	To string `json:"to,omitempty"`
	// Top is the last LID that the switch forwards, Filled counts its entries that name a port, Missing the addresses
	// in use that it has none for.
	Top     ib.LID `json:"top"`
	Filled  int    `json:"filled"`
	Missing int    `json:"missing"`
	// Ports counts the ports with a link that entries lead to; LeastUsed and MostUsed are how many addresses go by one
	// of them.
	Ports     int     `json:"ports"`
	LeastUsed int     `json:"least_used"`
	MostUsed  int     `json:"most_used"`
	Entries   []Entry `json:"entries,omitempty"`
	Groups    []Group `json:"groups,omitempty"`
	NumGroups int     `json:"num_groups"`
}

// Entry is where a switch sends packets to a LID.
type Entry struct {
	LID ib.LID `json:"lid"`
	// Name is who has the LID; empty if nobody has.
	Name string     `json:"name,omitempty"`
	Port ib.PortNum `json:"port"` // 255 drops
	// To is where the port leads, and State the state of its link.
	To    string `json:"to,omitempty"`
	State string `json:"state,omitempty"`
}

// Group is where a switch copies packets of a multicast LID to.
type Group struct {
	MLID  string       `json:"mlid"`
	Ports []ib.PortNum `json:"ports"`
	To    []string     `json:"to"`
}

// Show says what switches hold: all of them, one of them (at), or their entries for a destination (to, or at where that
// is no switch). Brief leaves the entries out and counts them.
func Show(f Fabric, at, to string, brief bool, say func(Switch) error) error {
	book := NewBook(f)
	g := f.Graph()
	switches := g.Switches()
	var dest *manager.Destination
	find := func(word string) error {
		t, err := book.Find(word)
		if err == nil && t.LID == 0 {
			err = &Error{Text: word + " has no LID",
				Advice: "softib status shows whether a manager has brought the subnet up"}
		}
		dest = &t
		return err
	}
	switch {
	case at != "" && to == "":
		// One word is a switch, or a destination at all of them.
		t, err := book.Find(at)
		if err != nil {
			return err
		}
		if t.Has && g.Nodes[t.Port.Node].IsSwitch() && g.ByName(at) != nil {
			switches = []*topo.Node{g.Nodes[t.Port.Node]}
		} else if err := find(at); err != nil {
			return err
		}
	case at != "":
		n, err := book.findSwitch(at)
		if err != nil {
			return err
		}
		switches = []*topo.Node{n}
		if err := find(to); err != nil {
			return err
		}
	}
	for _, n := range switches {
		if err := say(book.show(n, dest, brief)); err != nil {
			return err
		}
	}
	return nil
}

func (b *Book) show(n *topo.Node, to *manager.Destination, brief bool) Switch {
	t, _ := b.f.Tables(n.Index)
	out := Switch{Switch: n.Name, GUID: n.GUID.String(), LID: t.LID, Top: ib.LID(len(t.LFT) - 1),
		NumGroups: len(t.Groups)}
	if to != nil {
		out.To = fmt.Sprintf("LID %d", to.LID)
		if to.Has {
			out.To = fmt.Sprintf("%s, LID %d", manager.EndName(b.g, to.Port), to.LID)
		}
		out.Entries = []Entry{b.entry(n, &t, to.LID)}
		return out
	}
	use := make([]int, len(n.Ports))
	for l := range ib.LID(len(t.LFT)) {
		_, wanted := b.Who(l)
		p := t.LFT[l]
		if int(p) < len(use) {
			out.Filled++
			use[p]++
		} else if wanted {
			out.Missing++
		}
		if !brief && (wanted || int(p) < len(use)) {
			out.Entries = append(out.Entries, b.entry(n, &t, l))
		}
	}
	for l := len(t.LFT); l < len(b.owner); l++ {
		if b.owner[l].Node >= 0 {
			out.Missing++
		}
	}
	for p := 1; p < len(use); p++ {
		if use[p] == 0 {
			continue
		}
		if out.Ports == 0 || use[p] < out.LeastUsed {
			out.LeastUsed = use[p]
		}
		out.MostUsed = max(out.MostUsed, use[p])
		out.Ports++
	}
	if brief {
		return out
	}
	for _, g := range t.Groups {
		x := Group{MLID: fmt.Sprintf("0x%04x", int(g.MLID)), Ports: g.Ports}
		for _, p := range g.Ports {
			to, _ := b.leadsTo(n, p)
			x.To = append(x.To, to)
		}
		out.Groups = append(out.Groups, x)
	}
	return out
}

// entry is one entry of a switch.
func (b *Book) entry(n *topo.Node, t *inspect.SwitchTables, l ib.LID) Entry {
	e := Entry{LID: l, Name: b.name(l), Port: route.NoPort}
	if int(l) < len(t.LFT) {
		e.Port = t.LFT[l]
	}
	e.To, e.State = b.leadsTo(n, e.Port)
	return e
}

// leadsTo is what is at the other end of a switch's port.
func (b *Book) leadsTo(n *topo.Node, p ib.PortNum) (to, state string) {
	switch {
	case p == 0:
		return n.Name, ""
	case p == route.NoPort:
		return "", ""
	case int(p) >= len(n.Ports):
		return "no such port", ""
	}
	x := &n.Ports[p]
	if !x.Connected() {
		return "no cable", inspect.StateName(ib.PortDown)
	}
	far := topo.PortRef{Node: x.Peer, Port: x.PeerPort}
	return b.g.PortName(far), inspect.StateName(stateOf(b.f, topo.PortRef{Node: n.Index, Port: p}, far))
}
