package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

func newRoute() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "route",
		Short: "Show, trace and judge the ways that packets take",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
	cmd.AddCommand(newRouteShow(), newRouteTrace(), newRouteCheck())
	return cmd
}

// routeRequest asks a running fabric about its tables.
type routeRequest struct {
	// Switch and To are what to show.
	Switch string `json:"switch,omitempty"`
	To     string `json:"to,omitempty"`
	// Brief leaves the entries out and counts them.
	Brief bool `json:"brief,omitempty"`
	// From is where a trace starts, to To. SL and PKey are what the administrator says unless they are given.
	From string   `json:"from,omitempty"`
	SL   *ib.SL   `json:"sl,omitempty"`
	PKey *ib.PKey `json:"pkey,omitempty"`
	Both bool     `json:"both,omitempty"`
	// Topology asks for the wiring itself beside the tables.
	Topology bool `json:"topology,omitempty"`
}

// target is an end port that somebody named, or only an address.
type target struct {
	ref topo.PortRef
	has bool // ref is one
	lid ib.LID
}

// addressBook knows who has which LID, as the ports themselves say.
type addressBook struct {
	f     *fabric
	owner []topo.PortRef          // by LID; Node is -1 where nobody has it
	of    map[topo.PortRef]ib.LID // base LIDs
	// managers are the LIDs of ports where a manager runs.
	managers []ib.LID
}

func (f *fabric) addresses() *addressBook {
	b := &addressBook{f: f, of: map[topo.PortRef]ib.LID{}}
	for _, ref := range f.Graph().EndPorts() {
		pi, ok := f.PortInfo(ref)
		if !ok || !pi.LID.IsUnicast() {
			continue
		}
		b.of[ref] = pi.LID
		if pi.CapabilityMask&mad.CapIsSM != 0 {
			b.managers = append(b.managers, pi.LID)
		}
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
func (b *addressBook) name(l ib.LID) string {
	ref, ok := b.who(l)
	if !ok {
		return ""
	}
	return b.f.endName(ref)
}

// who has a LID.
func (b *addressBook) who(l ib.LID) (topo.PortRef, bool) {
	if int(l) >= len(b.owner) || b.owner[l].Node < 0 {
		return topo.PortRef{}, false
	}
	return b.owner[l], true
}

// endName writes an end port: a switch by its name alone, since its port 0 is the switch itself.
func (f *fabric) endName(ref topo.PortRef) string {
	if ref.Port == 0 {
		return f.Graph().Nodes[ref.Node].Name
	}
	return f.Graph().PortName(ref)
}

// find takes a node's name, a port such as h1[2], a LID, or a port's GUID.
func (b *addressBook) find(word string) (target, error) {
	g := b.f.Graph()
	if n := g.ByName(word); n != nil {
		ref := topo.PortRef{Node: n.Index}
		if !n.IsSwitch() {
			ref.Port = cabledPort(n)
		}
		return target{ref, true, b.of[ref]}, nil
	}
	if name, rest, ok := strings.Cut(word, "["); ok && strings.HasSuffix(rest, "]") {
		num, err := strconv.ParseUint(strings.TrimSuffix(rest, "]"), 10, 8)
		n := g.ByName(name)
		if err == nil && n != nil && !n.IsSwitch() && int(num) < len(n.Ports) && num > 0 {
			ref := topo.PortRef{Node: n.Index, Port: ib.PortNum(num)}
			return target{ref, true, b.of[ref]}, nil
		}
	}
	if v, err := strconv.ParseUint(word, 0, 64); err == nil {
		if v <= uint64(ib.LIDUnicastMax) && v > 0 {
			ref, has := b.who(ib.LID(v))
			return target{ref, has, ib.LID(v)}, nil
		}
		if ref, ok := g.ByPortGUID(ib.GUID(v)); ok {
			return target{ref, true, b.of[ref]}, nil
		}
		if ib.LID(v).IsMulticast() && v <= 0xFFFF {
			return target{}, next(&usageError{fmt.Errorf("%s is a multicast LID: want a host, a switch, or a unicast LID", word)}, "softib route show SWITCH lists multicast entries")
		}
	}
	hosts := g.Hosts()
	return target{}, next(&usageError{fmt.Errorf("fabric %s has no %q: want a host, a switch, a port such as %s[1], a LID or a port GUID", b.f.name, word, hosts[0].Name)},
		"its hosts are %s to %s", hosts[0].Name, hosts[len(hosts)-1].Name)
}

// findSwitch takes a switch's name, or what find takes if it is a switch's.
func (b *addressBook) findSwitch(word string) (*topo.Node, error) {
	t, err := b.find(word)
	if err != nil {
		return nil, err
	}
	if n := b.f.Graph().Nodes[t.ref.Node]; t.has && n.IsSwitch() {
		return n, nil
	}
	sw := b.f.Graph().Switches()
	err = &usageError{fmt.Errorf("%q is no switch", word)}
	if len(sw) == 0 {
		return nil, next(err, "fabric %s has none", b.f.name)
	}
	return nil, next(err, "its switches are %s to %s", sw[0].Name, sw[len(sw)-1].Name)
}
