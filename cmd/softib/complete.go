package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"softib/operate/control"
	"softib/proto/ib"
	"softib/proto/topo"
)

// What a shell offers when Tab is pressed: nodes of the running fabric, fabrics by name, topologies.

const (
	// completionMost is how many names are offered: more than anybody reads.
	completionMost = 200
	// completionPatience is how long a shell waits for a fabric that does not answer.
	completionPatience = 500 * time.Millisecond
)

// namesRequest asks for names of nodes that begin with something.
type namesRequest struct {
	Prefix string `json:"prefix"`
	Hosts  bool   `json:"hosts,omitempty"` // and no switches
}

// names answers a client.
func (s *server) names(_ context.Context, q namesRequest, r *control.Reply[[]string]) error {
	var list []string
	for _, n := range s.f.Graph().Nodes {
		if strings.HasPrefix(n.Name, q.Prefix) && !(q.Hosts && n.Type != ib.NodeCA) {
			list = append(list, n.Name)
		}
	}
	slices.SortStableFunc(list, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	return r.Say(list[:min(len(list), completionMost)])
}

// completer is what cobra asks for the words that may come next.
type completer = func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective)

// completeNodes offers nodes of the fabric that --name says, for at most so many arguments (0: any number).
func completeNodes(hosts bool, most int) completer {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return nodesLike(cmd, prefix, hosts), cobra.ShellCompDirectiveNoFileComp
	}
}

func nodesLike(cmd *cobra.Command, prefix string, hosts bool) (list []string) {
	name := defaultName
	if f := cmd.Flags().Lookup("name"); f != nil {
		name = f.Value.String()
	}
	p, err := newPlace(name)
	if err != nil || !p.isRunning() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
	defer cancel()
	_ = askFabric(ctx, p, opNames, namesRequest{Prefix: prefix, Hosts: hosts}, func(names []string) error {
		list = names
		return nil
	})
	return list
}

// completeFault offers the ends of a link, then what may be wrong with it.
func completeFault(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	words := []string{"down", "up", "ber=", "drop=", "rate=", "delay="}
	switch len(args) {
	case 0:
		return nodesLike(cmd, prefix, false), cobra.ShellCompDirectiveNoFileComp
	case 1:
		return append(words, nodesLike(cmd, prefix, false)...),
			cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeFaultNode offers a node, then the nodes whose GUID it may be given.
func completeFaultNode(cmd *cobra.Command, args []string, prefix string) (list []string, _ cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		list = nodesLike(cmd, prefix, false)
	case 1:
		for _, n := range nodesLike(cmd, strings.TrimPrefix(prefix, "guid="), false) {
			list = append(list, "guid="+n)
		}
		list = append(list, "up")
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}

// completeTopology offers generators, and files besides.
func completeTopology(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var list []string
	for _, g := range topo.Generators() {
		list = append(list, g.Name+":")
	}
	return list, cobra.ShellCompDirectiveDefault | cobra.ShellCompDirectiveNoSpace
}

// completeWiring offers what completeTopology does, and the fabric that runs, for at most so many arguments.
func completeWiring(most int) completer {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list, how := completeTopology(cmd, nil, prefix)
		return append(list, liveWord), how
	}
}

// completeFabric offers the fabrics that run.
func completeFabric(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	p, err := newPlace(defaultName)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return p.running(), cobra.ShellCompDirectiveNoFileComp
}

// complete gives the command line its completions.
func complete(root *cobra.Command) {
	of := map[string]completer{
		"exec": completeNodes(false, 1), "top": completeNodes(false, 0), "capture": completeNodes(false, 2),
		"fault link": completeFault, "fault clear": completeNodes(false, 2), "fault node": completeFaultNode,
		"route trace": completeNodes(false, 2), "route show": completeNodes(false, 1), "up": completeTopology,
		"topo gen": completeTopology, "topo check": completeWiring(1), "topo diff": completeWiring(2),
		"topo bom": completeWiring(1),
	}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		if f := of[strings.TrimPrefix(c.CommandPath(), root.Name()+" ")]; f != nil && c.ValidArgsFunction == nil {
			c.ValidArgsFunction = f
		}
		if c.Flags().Lookup("by") != nil {
			_ = c.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(topOrders,
				cobra.ShellCompDirectiveNoFileComp))
		}
		if c.Flags().Lookup("name") != nil {
			_ = c.RegisterFlagCompletionFunc("name", completeFabric)
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
}
