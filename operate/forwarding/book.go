package forwarding

import (
	"fmt"
	"strconv"
	"strings"

	"softib/node/inspect"
	"softib/operate/manager"
	"softib/proto/ib"
	"softib/proto/topo"
)

// Fabric is what is looked at; *live.Fabric is one.
type Fabric interface {
	manager.Fabric
	// Tables are what a switch holds, and Lanes its lanes by port of entry, port of exit and service level.
	Tables(node int) (inspect.SwitchTables, bool)
	Lanes(node int) [][][ib.NumSL]ib.VL
}

// Error says what is wrong with what was asked for, and what to do next. It matches what it is about.
type Error struct {
	Text, Advice string
	About        error // nil, or manager.ErrUnknown
}

func (e *Error) Error() string { return e.Text }
func (e *Error) Unwrap() error { return e.About }

// Next is what to do next.
func (e *Error) Next() string { return e.Advice }

// stateOf is how far a cable is: as the end that is behind.
func stateOf(f Fabric, a, b topo.PortRef) ib.PortState {
	x, _ := f.PortInfo(a)
	y, _ := f.PortInfo(b)
	return min(x.PortState, y.PortState)
}

// Book knows who has which LID, as the ports themselves say.
type Book struct {
	f     Fabric
	g     *topo.Graph
	owner []topo.PortRef          // by LID; Node is -1 where nobody has it
	of    map[topo.PortRef]ib.LID // base LIDs
}

// NewBook asks all end ports.
func NewBook(f Fabric) *Book {
	b := &Book{f: f, g: f.Graph(), of: map[topo.PortRef]ib.LID{}}
	for _, ref := range b.g.EndPorts() {
		pi, ok := f.PortInfo(ref)
		if !ok || !pi.LID.IsUnicast() {
			continue
		}
		b.of[ref] = pi.LID
		for k := range 1 << pi.LMC {
			at := int(pi.LID) + k
			for len(b.owner) <= at {
				b.owner = append(b.owner, topo.PortRef{Node: -1})
			}
			if b.owner[at].Node < 0 {
				b.owner[at] = ref
			}
		}
	}
	return b
}

// name is what people call the port of a LID; empty if nobody has it.
func (b *Book) name(l ib.LID) string {
	ref, ok := b.Who(l)
	if !ok {
		return ""
	}
	return manager.EndName(b.g, ref)
}

// Who has a LID.
func (b *Book) Who(l ib.LID) (topo.PortRef, bool) {
	if int(l) >= len(b.owner) || b.owner[l].Node < 0 {
		return topo.PortRef{}, false
	}
	return b.owner[l], true
}

// Find takes a node's name, a port such as h1[2], a LID, or a port's GUID.
func (b *Book) Find(word string) (manager.Destination, error) {
	g := b.g
	if n := g.ByName(word); n != nil {
		ref := topo.PortRef{Node: n.Index}
		if !n.IsSwitch() {
			ref.Port = CabledPort(n)
		}
		return manager.Destination{LID: b.of[ref], Port: ref, Has: true}, nil
	}
	if name, rest, ok := strings.Cut(word, "["); ok && strings.HasSuffix(rest, "]") {
		num, err := strconv.ParseUint(strings.TrimSuffix(rest, "]"), 10, 8)
		n := g.ByName(name)
		if err == nil && n != nil && !n.IsSwitch() && int(num) < len(n.Ports) && num > 0 {
			ref := topo.PortRef{Node: n.Index, Port: ib.PortNum(num)}
			return manager.Destination{LID: b.of[ref], Port: ref, Has: true}, nil
		}
	}
	if v, err := strconv.ParseUint(word, 0, 64); err == nil {
		if v <= uint64(ib.LIDUnicastMax) && v > 0 {
			ref, has := b.Who(ib.LID(v))
			return manager.Destination{LID: ib.LID(v), Port: ref, Has: has}, nil
		}
		if ref, ok := g.ByPortGUID(ib.GUID(v)); ok {
			return manager.Destination{LID: b.of[ref], Port: ref, Has: true}, nil
		}
		if ib.LID(v).IsMulticast() && v <= 0xFFFF {
			return manager.Destination{}, &Error{
				Text:   fmt.Sprintf("%s is a multicast LID: want a host, a switch, or a unicast LID", word),
				Advice: "softib route show SWITCH lists multicast entries", About: manager.ErrUnknown}
		}
	}
	hosts := g.Hosts()
	return manager.Destination{}, &Error{Text: fmt.Sprintf(
		"the fabric has no %q: want a host, a switch, a port such as %s[1], a LID or a port GUID", word, hosts[0].Name),
		Advice: fmt.Sprintf("its hosts are %s to %s", hosts[0].Name, hosts[len(hosts)-1].Name),
		About:  manager.ErrUnknown}
}

// findSwitch takes a switch's name, or what Find takes if it is a switch's.
func (b *Book) findSwitch(word string) (*topo.Node, error) {
	t, err := b.Find(word)
	if err != nil {
		return nil, err
	}
	if n := b.g.Nodes[t.Port.Node]; t.Has && n.IsSwitch() {
		return n, nil
	}
	e := &Error{Text: fmt.Sprintf("%q is no switch", word), Advice: "the fabric has none", About: manager.ErrUnknown}
	if sw := b.g.Switches(); len(sw) > 0 {
		e.Advice = fmt.Sprintf("its switches are %s to %s", sw[0].Name, sw[len(sw)-1].Name)
	}
	return nil, e
}

// CabledPort is the first port of a host that has a cable, or 1.
func CabledPort(n *topo.Node) ib.PortNum {
	for p := 1; p < len(n.Ports); p++ {
		if n.Ports[p].Connected() {
			return ib.PortNum(p)
		}
	}
	return 1
}
