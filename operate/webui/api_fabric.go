package webui

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"softib/operate/manager"
	"softib/proto/ib"
	"softib/subnet/sm"
)

// smShown is the subnet manager with its last sweeps.
type smShown struct {
	manager.SubnetState
	Sweeps []sweepShown `json:"sweeps"`
}

type sweepShown struct {
	Why      string       `json:"why"`
	Full     bool         `json:"full"`
	At       time.Time    `json:"at"`
	Took     float64      `json:"took_ms"`
	Phases   []phaseShown `json:"phases"`
	Nodes    int          `json:"nodes"`
	Links    int          `json:"links"`
	Degraded int          `json:"degraded"`
	MADs     int          `json:"mads"`
	Engine   string       `json:"engine"`
	Refused  []string     `json:"refused,omitempty"`
	Blocks   int          `json:"blocks"`
	Problems int          `json:"problems"`
}

type phaseShown struct {
	Name string  `json:"name"`
	Took float64 `json:"took_ms"`
	MADs int     `json:"mads"`
}

// fabricClock is what tells when the fabric's own time began; a *live.Fabric does.
type fabricClock interface{ Start() time.Time }

func (s *Server) subnet(*http.Request) (any, error) {
	show := smShown{SubnetState: s.m.Subnet(), Sweeps: []sweepShown{}}
	var start time.Time
	if c, ok := s.m.Fabric().(fabricClock); ok {
		start = c.Start()
	}
	for _, r := range s.m.Sweeps() {
		show.Sweeps = append(show.Sweeps, showSweep(&r, start))
	}
	return show, nil
}

func showSweep(r *sm.SweepReport, start time.Time) sweepShown {
	show := sweepShown{
		Why: r.Why, Full: r.Full, Took: picoMillis(r.Took), Nodes: r.Nodes, Links: r.Links, Degraded: r.Degraded,
		MADs: r.MADs, Engine: r.Engine,
		Refused: r.Refused, Blocks: r.Blocks, Problems: r.Problems, Phases: []phaseShown{},
	}
	if !start.IsZero() {
		show.At = start.Add(time.Duration(r.Began / ib.Nanosecond))
	}
	for _, p := range r.Phases {
		show.Phases = append(show.Phases, phaseShown{Name: p.Name, Took: picoMillis(p.Took), MADs: p.MADs})
	}
	return show
}

func picoMillis(t ib.Time) float64 { return float64(t) / float64(ib.Millisecond) }

func (s *Server) events(r *http.Request) (any, error) {
	limit, err := number(r, "max", 500, 1, 5000)
	if err != nil {
		return nil, err
	}
	after, err := number(r, "after", 0, 0, 1<<53)
	if err != nil {
		return nil, err
	}
	list := s.m.Journal().After(uint64(after), limit)
	if list == nil {
		list = []manager.Event{}
	}
	return list, nil
}

// rankedCable is a cable that something is wrong with.
type rankedCable struct {
	Rank     int      `json:"rank"`
	Link     string   `json:"link"`
	Index    int      `json:"index"`
	Severity string   `json:"severity"`
	Score    float64  `json:"score"`
	BER      float64  `json:"ber"`
	Suspect  string   `json:"suspect,omitempty"`
	Why      []string `json:"why"`
	Fault    string   `json:"fault,omitempty"`
}

func (s *Server) cables(r *http.Request) (any, error) {
	limit, err := number(r, "max", 200, 1, 100000)
	if err != nil {
		return nil, err
	}
	return map[string]any{"total": len(s.m.Worst()), "alarmed": alarmed(s.m.OpenAlarms()),
		"cables": s.worst(limit)}, nil
}

// worst are the cables that something is wrong with, worst first.
func (s *Server) worst(limit int) []rankedCable {
	g, faults := s.m.Graph(), s.faultTexts()
	worst := s.m.Worst()
	list := []rankedCable{}
	for i := range worst[:min(limit, len(worst))] {
		v := &worst[i]
		c := rankedCable{Rank: i + 1, Link: s.m.LinkName(v.Cable), Index: v.Cable, Severity: v.Severity.String(),
			Score: v.Score, BER: v.BER, Fault: faults[v.Cable]}
		for k := range v.Reasons {
			c.Why = append(c.Why, v.Reasons[k].Text(g))
		}
		list = append(list, c)
	}
	return list
}

// faultShown is a fault that is set.
type faultShown struct {
	Link      string    `json:"link"`
	Fault     string    `json:"fault"`
	Since     time.Time `json:"since"`
	Dropped   uint64    `json:"dropped"`
	Corrupted uint64    `json:"corrupted"`
}

func (s *Server) shownFaults() []faultShown {
	list := []faultShown{}
	for _, f := range s.m.Faults() {
		list = append(list, faultShown{Link: f.Link, Fault: f.String(), Since: f.Since, Dropped: f.Dropped,
			Corrupted: f.Corrupted})
	}
	return list
}

func (s *Server) faults(*http.Request) (any, error) { return s.shownFaults(), nil }

// setFault makes a cable a bad one.
func (s *Server) setFault(r *http.Request) (any, error) {
	var body struct {
		Link  string `json:"link"`
		Fault string `json:"fault"`
	}
	if err := readBody(r, &body); err != nil {
		return nil, err
	}
	ref, err := s.linkNamed("link", body.Link)
	if err != nil {
		return nil, err
	}
	spec, err := manager.ParseFault(strings.Fields(body.Fault))
	if err != nil {
		return nil, badField("fault", "such as: down, or ber=1e-6 rate=10G delay=5us", "%v", err)
	}
	if err := s.m.SetFault(ref, spec, who(r)); err != nil {
		if errors.Is(err, manager.ErrFault) {
			return nil, badField("fault", "such as: down, or ber=1e-6 rate=10G delay=5us", "%v", err)
		}
		return nil, err
	}
	return s.shownFaults(), nil
}

// liftFaults makes one cable, or all, good again.
func (s *Server) liftFaults(r *http.Request) (any, error) {
	name := r.URL.Query().Get("link")
	if err := s.m.LiftFaults(who(r), strings.Fields(name)...); err != nil {
		if _, e := s.linkNamed("link", name); name != "" && e != nil {
			return nil, e
		}
		return nil, err
	}
	return s.shownFaults(), nil
}
