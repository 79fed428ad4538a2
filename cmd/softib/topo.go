package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"softib/operate/forwarding"
	"softib/proto/topo"
)

func newTopo() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topo",
		Short: "Make, check, compare and price topologies",
	}
	return family(cmd, newTopoGen(), newTopoCheck(), newTopoDiff(), newTopoBOM())
}

func newTopoGen() *cobra.Command {
	var out string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "gen SPEC",
		Short: "Write a generated topology in ibnetdiscover's format",
		Long: `Writes a topology in ibnetdiscover's format, to change it by hand or to give it
to other tools. softib up FILE starts it.

` + topologyHelp(),
		Example: `  softib topo gen fat-tree:radix=8,levels=2 -o lab.topo
  softib up lab.topo`,
		Args: arguments(1, 1, "one SPEC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			g, err := loadTopology(newTerminal(cmd.ErrOrStderr()), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), shapeOf(g))
			}
			if out == "" || out == "-" {
				return topo.Write(cmd.OutOrStdout(), g)
			}
			if err := os.WriteFile(out, topo.Append(nil, g), 0o666); err != nil {
				return next(err, "choose another file with -o")
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", out, topo.Describe(g))
			return err
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "`FILE` to write instead of standard output")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// shape is a topology for programs.
type shape struct {
	Nodes  []shapeNode  `json:"nodes"`
	Cables []shapeCable `json:"cables"`
}

type shapeNode struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	GUID  string `json:"guid"`
	Ports int    `json:"ports"`
}

type shapeCable struct {
	A        string `json:"a"`
	APort    int    `json:"a_port"`
	B        string `json:"b"`
	BPort    int    `json:"b_port"`
	Rate     string `json:"rate"`
	LengthMM int32  `json:"length_mm"`
}

func shapeOf(g *topo.Graph) shape {
	s := shape{Nodes: []shapeNode{}, Cables: []shapeCable{}}
	for _, n := range g.Nodes {
		s.Nodes = append(s.Nodes, shapeNode{n.Name, n.Type.String(), n.GUID.String(), n.NumPorts()})
	}
	for _, c := range g.Cables() {
		s.Cables = append(s.Cables, shapeCable{g.Nodes[c.A.Node].Name, int(c.A.Port), g.Nodes[c.B.Node].Name,
			int(c.B.Port), g.LinkRate(c.A).String(), g.Port(c.A).LengthMM})
	}
	return s
}

// liveWord stands for the running fabric where a topology is wanted.
const liveWord = "live"

// liveHelp follows topologyHelp where a running fabric will do too.
const liveHelp = `
The word live is the running fabric, as its links are now: one that is down is not
there. --name tells which fabric.
`

// loaded is a topology that a user named, with the tables in force if it is a running fabric.
type loaded struct {
	*topo.Graph
	title string
	held  *forwarding.Held
}

// loadOrLive reads a topology, or asks the running fabric for its own.
func loadOrLive(ctx context.Context, out *reporter, arg, name string) (*loaded, error) {
	if arg != liveWord {
		g, err := loadTopology(out, arg)
		return &loaded{Graph: g, title: arg}, err
	}
	p, err := newPlace(name)
	if err != nil {
		return nil, err
	}
	l := &loaded{title: "fabric " + name}
	err = out.during("reading the fabric", func() (err error) {
		if l.held, err = p.heldTables(ctx, routeRequest{Topology: true}); err != nil {
			return err
		}
		if n := l.held.Network; n.Sweeping {
			waited := ""
			if n.Waited != "" { // an older softib does not say
				waited = fmt.Sprintf(" (waited for %s)", n.Waited)
			}
			out.say("note: fabric %s is being swept%s: what is said of its routes may be of before; look again", name,
				waited)
		}
		if l.held.Network.Topology == "" {
			return next(fmt.Errorf("fabric %s does not say how it is cabled: it is of an older softib", name),
				"softib down%s, then softib up -d", p.flag())
		}
		l.Graph, err = topo.Parse(l.title, []byte(l.held.Network.Topology))
		return err
	})
	return l, err
}
