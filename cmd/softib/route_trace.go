package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"softib/driver/live"
	"softib/node/link"
	"softib/operate/control"
	"softib/operate/manager"
	"softib/operate/status"
	"softib/proto/ib"
	"softib/proto/mad"
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
func (s *server) trace(ctx context.Context, r routeRequest, out *control.Reply[traced]) error {
	book := s.f.addresses()
	a, err := book.find(r.From)
	if err != nil {
		return err
	}
	b, err := book.find(r.To)
	if err != nil {
		return err
	}
	if !a.has {
		return next(&usageError{fmt.Errorf("nobody has LID %d: a way starts at a port", a.lid)},
			"softib route show lists who has which")
	}
	ways := [][2]target{{a, b}}
	if r.Both {
		if !b.has {
			return next(&usageError{fmt.Errorf("nobody has LID %d: there is no way back from it", b.lid)},
				"leave --both out")
		}
		ways = append(ways, [2]target{b, a})
	}
	for _, w := range ways {
		t, err := book.trace(ctx, w[0], w[1], &r)
		if err != nil {
			return err
		}
		if err := out.Say(*t); err != nil {
			return err
		}
	}
	return nil
}

func (book *addressBook) trace(ctx context.Context, a, b target, r *routeRequest) (*traced, error) {
	f := book.f
	w := &traced{From: f.endName(a.ref), SLID: a.lid, DLID: b.lid, To: fmt.Sprintf("LID %d", b.lid), Hops: []hopShown{}}
	if b.has {
		w.To = f.endName(b.ref)
	}
	if b.lid == 0 {
		w.Why = fmt.Sprintf("%s has no LID", w.To)
		w.Next = "softib status shows whether a manager has brought the subnet up"
		return w, nil
	}
	if b.has && a.ref == b.ref {
		w.Arrives, w.Told = true, "it is the same port: nothing leaves the adapter"
		return w, nil
	}
	key := book.choose(ctx, w, a, b, r)
	w.PKey = fmt.Sprintf("0x%04x", uint16(key))
	if keys := f.PKeys(a.ref); len(keys) > 0 && !slices.ContainsFunc(keys,
		func(k ib.PKey) bool { return k.Base() == key.Base() }) {
		w.Why, w.Next = fmt.Sprintf("%s is not in partition %s itself", w.From, w.PKey), adviseKeys
		return w, nil
	}
	way, err := f.Way(a.ref, b.lid, w.SL, key)
	if err != nil {
		return nil, err
	}
	g := f.Graph()
	var least ib.LinkRate
	for i, h := range way.Hops {
		w.Hops = append(w.Hops, hopShown{Out: g.PortName(h.Out), In: g.PortName(h.In), VL: h.VL, Rate: h.Rate.String(),
			MTU: h.MTU.Bytes()})
		if i == 0 || h.Rate.Mbps() < least.Mbps() {
			least = h.Rate
		}
		if i == 0 || h.MTU.Bytes() < w.MTU {
			w.MTU = h.MTU.Bytes()
		}
	}
	if len(way.Hops) > 0 {
		w.Rate, w.Gbps = least.String(), float64(least.Mbps())/1000
	}
	if w.Why, w.Next = f.whyLost(&way, b, w, key); w.Why == "" {
		w.Arrives = true
	}
	return w, nil
}

// choose takes the level and the partition that the request names, or that the administrator does.
func (book *addressBook) choose(ctx context.Context, w *traced, a, b target, r *routeRequest) ib.PKey {
	f := book.f
	key := ib.PKeyDefault
	mine := f.PKeys(a.ref)
	if len(mine) > 0 {
		key = mine[0]
	}
	if b.has {
		theirs := f.PKeys(b.ref)
		if i := slices.IndexFunc(mine, func(k ib.PKey) bool { return anyMatches(theirs, k) }); i >= 0 {
			key = mine[i]
		}
	}
	w.Told = "as asked for"
	if r.SL == nil || r.PKey == nil {
		rec, err := book.pathRecord(ctx, a.ref, b.lid)
		switch {
		case err == nil && rec != nil:
			w.SL, key, w.Told = rec.SL, rec.PKey, "the administrator's"
		case err == nil:
			w.Told = "assumed: the administrator knows no path"
		case errors.Is(err, manager.ErrNoAnswer):
			w.Told = "assumed: no administrator answers"
		default:
			w.Told = "assumed: " + err.Error()
		}
	}
	if r.SL != nil {
		w.SL = *r.SL
	}
	if r.PKey != nil {
		key = *r.PKey
	}
	// Packets carry the sender's own key, with its own kind of membership.
	if i := slices.IndexFunc(mine, func(k ib.PKey) bool { return k.Base() == key.Base() }); i >= 0 {
		key = mine[i]
	}
	return key
}

func (book *addressBook) pathRecord(ctx context.Context, from topo.PortRef, to ib.LID) (*mad.PathRecord, error) {
	a, err := manager.NewAsker(book.f.Fabric, from)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	recs, err := a.Paths(ctx, book.managers, []ib.LID{to})
	if err != nil {
		return nil, err
	}
	return recs[0], nil
}

func anyMatches(keys []ib.PKey, k ib.PKey) bool {
	for _, o := range keys {
		if o.Matches(k) {
			return true
		}
	}
	return false
}

// Advice that several ends of a way share.
const (
	adviseTables = "softib route check judges all tables; softib log says what the manager did last"
	adviseLinks  = "softib status names the links that are down"
	adviseKeys   = "softib status lists the partitions; --pkey tries another"
)

// whyLost says in words where a way ends and why; empty if it arrives where it should.
func (f *fabric) whyLost(way *live.Way, b target, w *traced, key ib.PKey) (why, advice string) {
	g := f.Graph()
	lost := g.PortName(way.Lost)
	node := g.Nodes[way.Lost.Node].Name
	switch way.Reason {
	case link.OK:
		return f.whyRefused(way.End(), b, key)
	case link.UnknownDLID:
		if way.Out == 0 {
			return fmt.Sprintf("%s takes LID %d for its own", node, w.DLID), adviseTables
		}
		return fmt.Sprintf("%s has no entry for LID %d", node, w.DLID), adviseTables
	case link.Looping:
		if n := len(w.Hops); n > 1 && w.Hops[n-1].In != w.Hops[0].In && way.Out != way.Lost.Port {
			return fmt.Sprintf("the tables run in a circle: from %s it goes out by %s again", node,
				g.PortName(topo.PortRef{Node: way.Lost.Node, Port: way.Out})), adviseTables
		}
		return fmt.Sprintf("the tables run in a circle: %s sends it back by %s", node, lost), adviseTables
	case link.Inactive:
		at := way.Lost
		if f.PortState(at) == ib.PortActive && g.Nodes[at.Node].IsSwitch() && way.Out != at.Port {
			at.Port = way.Out
		}
		x := g.Port(at)
		if x == nil || !x.Connected() {
			return fmt.Sprintf("%s has no cable", g.PortName(at)), adviseTables
		}
		far := topo.PortRef{Node: x.Peer, Port: x.PeerPort}
		state := min(f.PortState(at), f.PortState(far))
		return fmt.Sprintf("the link from %s to %s is %s", g.PortName(at), g.PortName(far), status.StateName(state)),
			adviseLinks
	case link.BadVLMap:
		return fmt.Sprintf("%s has no lane for service level %d", node, w.SL), "softib route trace --sl tries another"
	case link.PKeyIn:
		return fmt.Sprintf("%s lets nothing of partition 0x%04x in", lost, uint16(key)), adviseKeys
	case link.PKeyOut:
		return fmt.Sprintf("%s lets nothing of partition 0x%04x out", lost, uint16(key)), adviseKeys
	}
	return fmt.Sprintf("%s at %s", way.Reason, lost), adviseTables
}

// whyRefused says why the port where a packet ends will not have it.
func (f *fabric) whyRefused(end topo.PortRef, b target, key ib.PKey) (why, advice string) {
	at := end
	if f.Graph().Nodes[end.Node].IsSwitch() {
		at.Port = 0
	}
	pi, _ := f.PortInfo(at)
	if b.lid < pi.LID || b.lid >= pi.LID+1<<pi.LMC {
		return fmt.Sprintf("it comes to %s, whose LID is %d, not %d", f.endName(at), pi.LID, b.lid), adviseTables
	}
	if keys := f.PKeys(at); len(keys) > 0 && !anyMatches(keys, key) {
		if slices.ContainsFunc(keys, func(k ib.PKey) bool { return k.Base() == key.Base() }) {
			return fmt.Sprintf("both are limited members of partition 0x%04x: they may not talk",
				uint16(key|ib.PKeyFull)), adviseKeys
		}
		return fmt.Sprintf("%s is not in partition 0x%04x", f.endName(at), uint16(key)), adviseKeys
	}
	return "", ""
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
		t.say("%s over %s and %s: at most %s (%g Gb/s), MTU %d", t.green("arrives"), numbered(n, "link", "links"),
			numbered(n-1, "switch", "switches"), w.Rate, w.Gbps, w.MTU)
	}
}
