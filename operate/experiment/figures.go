package experiment

import (
	"cmp"
	"fmt"
	"slices"

	"softib/driver/jobs"
	"softib/job"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
)

// seconds of virtual time.
func seconds(t ib.Time) float64 { return float64(t) / float64(ib.Second) }

// describe says what is to be run.
func (r *Report) describe(s *Spec, f *jobs.Fabric, sched *job.Schedule) {
	g := s.Graph
	r.Fabric = Fabric{Topology: s.Topology, Text: topo.Describe(g), Hosts: len(g.Hosts()), Switches: len(g.Switches()),
		Cables: g.NumCables(), Routing: f.Engine}
	r.Fabric.Lost, r.Fabric.Congestion = s.Lost, s.Options.Congestion.On
	if _, servers := g.Servers(); servers > 0 {
		r.Fabric.Servers = servers
		r.Fabric.NVLink = s.Options.NVLink.Rate * float64(ib.Second)
	}
	if s.Options.Adaptive != route.NoChoice {
		r.Fabric.Routing += ", adaptive by " + s.Options.Adaptive.String()
	}
	if s.Options.Hash {
		r.Fabric.Routing += ", ways by hash"
	}
	if s.isEthernet() {
		r.Fabric.Routing += ", " + s.Options.Ethernet.Kind
	}
	if len(s.Options.Place) > 0 {
		r.Fabric.Rate = fmt.Sprintf("%d Gb/s", g.LinkRate(s.Options.Place[0]).Mbps()/1000)
	}
	ops, messages, bytes := sched.Count()
	r.Load = Load{Name: s.Load, Ranks: len(sched.Ranks), Operations: ops, Messages: messages, Bytes: bytes}
}

// class is messages of up to so many bytes.
type class struct {
	name string
	most uint64
}

var classes = []class{{"up to 4 KiB", 4 << 10}, {"4 to 64 KiB", 64 << 10}, {"64 KiB to 1 MiB", 1 << 20},
	{"over 1 MiB", ^uint64(0)}}

// figures works out what people ask.
func (r *Report) figures(f *jobs.Fabric, res *jobs.Result, look *sampler) {
	r.End = seconds(res.End)
	ranks := make([]float64, len(res.Ranks))
	for i, t := range res.Ranks {
		ranks[i] = seconds(t)
	}
	r.Ranks = spread(ranks)

	rates := f.Ways.Rates()
	took := make([][]float64, len(classes)+1)
	bytes := make([]uint64, len(classes)+1)
	var speeds []float64
	sum, squares := 0.0, 0.0
	for i := range res.Messages {
		m := &res.Messages[i]
		if m.Arrived == ib.Never {
			continue
		}
		t := seconds(m.Arrived - m.Start)
		k := 1 + slices.IndexFunc(classes, func(c class) bool { return m.Size <= c.most })
		for _, c := range []int{0, k} {
			took[c] = append(took[c], t)
			bytes[c] += m.Size
		}
		if f.InServer(m.From, m.To) {
			r.Load.InServers += m.Size
		} else if t > 0 && m.Size > 0 {
			rate := rates[f.Ways.Link(f.Place(m.From))] * float64(ib.Second)
			speed := float64(m.Size) / t / rate
			speeds = append(speeds, speed)
			sum += speed
			squares += speed * speed
		}
	}
	for c := range took {
		name := "all"
		if c > 0 {
			name = classes[c-1].name
		}
		if c == 0 || len(took[c]) > 0 && len(took[c]) < len(took[0]) {
			r.Messages = append(r.Messages, Class{Name: name, Bytes: bytes[c], Took: spread(took[c])})
		}
	}
	r.Speed = spread(speeds)
	if squares > 0 {
		r.Fairness = sum * sum / (float64(len(speeds)) * squares)
	}
	r.overTime(f, look)
}

// busiest is how many links are named.
const busiest = 100

// overTime takes what the sampler has.
func (r *Report) overTime(f *jobs.Fabric, look *sampler) {
	for i, t := range look.times {
		r.Times = append(r.Times, seconds(t))
		r.Sent = append(r.Sent, look.sent[i]*float64(ib.Second))
	}
	r.uses = map[topo.PortRef]use{}
	uses := make([][]float64, len(look.tiers))
	end := max(float64(look.last), 1)
	for i := range look.links {
		l := &look.links[i]
		busy := l.carried / end / l.rate
		uses[l.tier] = append(uses[l.tier], busy)
		ref := f.Ways.Port(l.link)
		port := f.Graph.Port(ref)
		if busy > 0 {
			r.uses[ref] = use{busy, l.peak}
			r.Links = append(r.Links, Link{Name: f.Graph.PortName(ref) + " → " +
				f.Graph.PortName(topo.PortRef{Node: port.Peer, Port: port.PeerPort}), Tier: look.tiers[l.tier],
				Use: busy, Peak: l.peak, Bytes: l.carried})
		}
	}
	slices.SortStableFunc(r.Links, func(a, b Link) int { return cmp.Compare(b.Use, a.Use) })
	r.Links = r.Links[:min(len(r.Links), busiest)]
	for t, name := range look.tiers {
		r.Tiers = append(r.Tiers, Tier{Name: name, Links: len(uses[t]), Mean: look.mean[t], Max: look.most[t],
			Use: spread(uses[t])})
	}
	r.Heat = look.rows
}

// maxCurve is how many points a curve has at most.
const maxCurve = 256

// spread sums values up; it sorts them.
func spread(v []float64) Spread {
	if len(v) == 0 {
		return Spread{}
	}
	slices.Sort(v)
	at := func(p float64) float64 { return v[min(int(p*float64(len(v))), len(v)-1)] }
	s := Spread{Count: len(v), Min: v[0], P1: at(0.01), P10: at(0.1), P50: at(0.5), P90: at(0.9), P99: at(0.99),
		P999: at(0.999), Max: v[len(v)-1]}
	for _, x := range v {
		s.Mean += x / float64(len(v))
	}
	points := min(len(v), maxCurve)
	for k := 1; k <= points; k++ {
		i := k*len(v)/points - 1
		s.Curve = append(s.Curve, [2]float64{v[i], float64(i+1) / float64(len(v))})
	}
	return s
}
