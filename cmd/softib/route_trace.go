package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"softib/operate/control"
	"softib/operate/forwarding"
	"softib/operate/manager"
	"softib/proto/ib"
	"softib/proto/topo"
)

func newRouteTrace() *cobra.Command {
	var name, sl, pkey string
	var asJSON bool
	var r routeRequest
	cmd := &cobra.Command{
		Use:   "trace FROM TO",
		Short: "Follow a packet from one port to another, hop by hop",
		Long: `Follows a packet through the switches' own tables: the port by which it leaves
each node, the virtual lane, rate and MTU of each link. Where it does not arrive,
the last line says where it ends and why, and the exit status is 1.

FROM and TO are hosts (h1), ports (h1[2]), switches (leaf1, for management
packets), LIDs or port GUIDs. The service level and the partition are those that
the subnet administrator names for the way, as programs would ask for them.`,
		Example: `  softib route trace h1 h32
  softib route trace h1 h32 --both
  softib route trace h1 0x2a --sl 3
  softib route trace spine1 h7 --json`,
		Args: arguments(2, 2, "FROM and TO"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.From, r.To = args[0], args[1]
			if sl != "" {
				v, err := strconv.ParseUint(sl, 0, 8)
				if err != nil || v >= ib.NumSL {
					return usage(cmd, fmt.Errorf("--sl %s: want a service level, 0 to %d", sl, ib.NumSL-1))
				}
				r.SL = new(ib.SL(v))
			}
			if pkey != "" {
				v, err := strconv.ParseUint(pkey, 0, 16)
				if err != nil {
					return usage(cmd, fmt.Errorf("--pkey %s: want a partition key such as 0xffff", pkey))
				}
				r.PKey = new(ib.PKey(v))
			}
			p, err := newPlace(name)
			if err != nil {
				return err
			}
			list := []traced{}
			err = askFabric(cmd.Context(), p, opTrace, r, func(t traced) error {
				list = append(list, t)
				return nil
			})
			if err != nil {
				return err
			}
			if asJSON {
				if err := printJSON(cmd.OutOrStdout(), list); err != nil {
					return err
				}
			} else {
				t := newTerminal(cmd.OutOrStdout())
				for i := range list {
					if i > 0 {
						t.say("")
					}
					list[i].print(t)
				}
			}
			for _, w := range list {
				if !w.Arrives {
					return next(fmt.Errorf("packets of %s do not reach %s: %s", w.From, w.To, w.Why), "%s", w.Next)
				}
			}
			return nil
		},
	}
	nameFlag(cmd, &name)
	f := cmd.Flags()
	f.StringVar(&sl, "sl", "", "take service level `SL` instead of the administrator's")
	f.StringVar(&pkey, "pkey", "", "take partition `P_KEY` instead of the administrator's")
	f.BoolVar(&r.Both, "both", false, "also trace the way back, which may be another")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// traced is the way of a packet for people and programs.
type traced struct {
	From string `json:"from"`
	To   string `json:"to"`
	SLID ib.LID `json:"slid"`
	DLID ib.LID `json:"dlid"`
	SL   ib.SL  `json:"sl"`
	PKey string `json:"pkey"`
	// Told says where SL and partition come from.
	Told string     `json:"told"`
	Hops []hopShown `json:"hops"`
	// Routers are how many the way leads over.
	Routers int `json:"routers,omitempty"`
	// Arrives, or Why not, and what to do Next.
	Arrives bool   `json:"arrives"`
	Why     string `json:"why,omitempty"`
	Next    string `json:"next,omitempty"`
	// MTU and Rate are the least on the way.
	MTU  int     `json:"mtu,omitempty"`
	Rate string  `json:"rate,omitempty"`
	Gbps float64 `json:"gbps,omitempty"`
}

type hopShown struct {
	Out  string `json:"out"`
	In   string `json:"in"`
	VL   ib.VL  `json:"vl"`
	Rate string `json:"rate"`
	MTU  int    `json:"mtu"`
}

// trace answers with the way there and, if it is wanted, the way back.
func (s *server) trace(ctx context.Context, q routeRequest, r *control.Reply[traced]) error {
	book := forwarding.NewBook(s.f.Fabric)
	a, err := book.Find(q.From)
	if err != nil {
		return asUsage(err)
	}
	b, err := book.Find(q.To)
	if err != nil {
		return asUsage(err)
	}
	if !a.Has {
		return next(&usageError{fmt.Errorf("nobody has LID %d: a way starts at a port", a.LID)},
			"softib route show lists who has which")
	}
	ways := [][2]manager.Destination{{a, b}}
	if q.Both {
		if !b.Has {
			return next(&usageError{fmt.Errorf("nobody has LID %d: there is no way back from it", b.LID)},
				"leave --both out")
		}
		ways = append(ways, [2]manager.Destination{b, a})
	}
	for _, w := range ways {
		route, err := manager.Follow(ctx, s.f.Fabric, w[0].Port, w[1], manager.RouteOptions{SL: q.SL, PKey: q.PKey})
		if err != nil {
			return err
		}
		if err := r.Say(showRoute(s.f.Graph(), w[0].LID, &route)); err != nil {
			return err
		}
	}
	return nil
}

// asUsage is the error of a name that fits nothing: the command line is to blame.
func asUsage(err error) error {
	if errors.Is(err, manager.ErrUnknown) {
		return &usageError{err}
	}
	return err
}

// showRoute is a route in words.
func showRoute(g *topo.Graph, slid ib.LID, x *manager.Route) traced {
	w := traced{From: manager.EndName(g, x.From), SLID: slid, DLID: x.To.LID, To: fmt.Sprintf("LID %d", x.To.LID),
		SL: x.SL, Told: x.Told, Hops: []hopShown{}, Arrives: x.Arrives, Why: x.Why, Next: x.Next}
	if x.To.Has {
		w.To = manager.EndName(g, x.To.Port)
	}
	if x.PKey != 0 {
		w.PKey = x.PKey.String()
	}
	var least ib.LinkRate
	for i, h := range x.Hops {
		if i+1 < len(x.Hops) && g.Nodes[h.In.Node].Type == ib.NodeRouter {
			w.Routers++
		}
		w.Hops = append(w.Hops, hopShown{Out: g.PortName(h.Out), In: g.PortName(h.In), VL: h.VL, Rate: h.Rate.String(),
			MTU: h.MTU.Bytes()})
		if i == 0 || h.Rate.Mbps() < least.Mbps() {
			least = h.Rate
		}
		if i == 0 || h.MTU.Bytes() < w.MTU {
			w.MTU = h.MTU.Bytes()
		}
	}
	if len(x.Hops) > 0 {
		w.Rate, w.Gbps = least.String(), float64(least.Mbps())/1000
	}
	return w
}

func (w *traced) print(t *terminal) {
	t.say("%s, LID %d, to %s, LID %d", t.bold(w.From), w.SLID, t.bold(w.To), w.DLID)
	if w.PKey != "" {
		t.say("service level %d, partition %s (%s)", w.SL, w.PKey, w.Told)
	} else if w.Told != "" {
		t.say("%s", w.Told)
	}
	if len(w.Hops) > 0 {
		out, in := len("out"), len("in")
		for _, h := range w.Hops {
			out, in = max(out, len(h.Out)), max(in, len(h.In))
		}
		t.say("  %3s  %-*s    %-*s  %2s  %-8s  %s", "hop", out, "out", in, "in", "VL", "rate", "MTU")
		for i, h := range w.Hops {
			t.say("  %3d  %-*s -> %-*s  %2d  %-8s  %d", i+1, out, h.Out, in, h.In, h.VL, h.Rate, h.MTU)
		}
	}
	if !w.Arrives {
		t.say("%s %s", t.red("ends:"), strings.TrimSpace(w.Why))
		return
	}
	if n := len(w.Hops); n > 0 {
		by := numbered(n-1-w.Routers, "switch", "switches")
		if w.Routers > 0 {
			by += " and " + numbered(w.Routers, "router", "routers")
		}
		t.say("%s over %s and %s: at most %s (%g Gb/s), MTU %d", t.green("arrives"), numbered(n, "link", "links"), by,
			w.Rate, w.Gbps, w.MTU)
	}
}
