package webui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"softib/operate/doctor"
	"softib/operate/manager"
	"softib/operate/wiring"
	"softib/proto/ib"
	"softib/proto/topo"
)

const (
	// surveyWindow is how many questions the fabric's own nodes are asked at once.
	surveyWindow = 256
	// reportAge is how old a report may be that somebody else has asked for: one look at a fabric is enough for all who
	// press the button together.
	reportAge = 2 * time.Second
)

// recent makes something once for all who want it at the same time.
type recent[T any] struct {
	mu   sync.Mutex
	at   time.Time
	last T
	what string
}

// get is what was made a moment ago, if it was the same that was asked for, or what make makes now.
func (x *recent[T]) get(what string, make func() (T, error)) (T, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if what == x.what && time.Since(x.at) < reportAge {
		return x.last, nil
	}
	v, err := make()
	if err == nil {
		x.last, x.at, x.what = v, time.Now(), what
	}
	return v, err
}

// intervalMax is how long a request may watch counters.
const intervalMax = time.Minute

// doctor looks at the whole fabric by datagrams and says what is wrong with it, as the command does.
func (s *Server) doctor(r *http.Request) (any, error) {
	interval, text := doctor.Interval, r.URL.Query().Get("interval")
	if text != "" {
		var err error
		if interval, err = time.ParseDuration(text); err != nil || interval < 0 || interval > intervalMax {
			return nil, badField("interval", fmt.Sprintf("0 to %v, such as 10s", intervalMax), "%q is none", text)
		}
	}
	rep, err := s.reports.doctor.get(interval.String(), func() (*doctor.Report, error) {
		return examine(r.Context(), s.m, interval)
	})
	if errors.Is(err, manager.ErrNoPort) {
		return nil, &apiError{Status: http.StatusConflict, Text: err.Error(), Next: "see the cables: /api/v1/cables"}
	}
	return rep, err
}

func examine(ctx context.Context, m *manager.Manager, interval time.Duration) (*doctor.Report, error) {
	from, keys, err := m.AskFrom()
	if err != nil {
		return nil, err
	}
	session, err := m.OpenMgmt(from)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	seen, err := doctor.Run(ctx, session, doctor.RunOptions{Interval: interval, Window: surveyWindow, Keys: keys})
	if err != nil {
		return nil, fmt.Errorf("the fabric could not be looked at: %w", err)
	}
	known := doctor.Known(m)
	known.Routes = seen.Routes
	seen = seen.Named(known.Plan)
	return doctor.Judge(seen.Before, seen.After, known), nil
}

// wiring says whether the links that are up make the tree that they should.
func (s *Server) wiring(*http.Request) (any, error) {
	return s.reports.wiring.get("", func() (*wiring.Report, error) {
		g, sample := s.m.Graph().Clone(), s.m.Fresh()
		for _, c := range s.m.Cables() {
			if i, ok := s.m.PortIndex(c.A); ok && sample.Ports[i].State <= ib.PortDown {
				if err := g.Disconnect(c.A.Node, c.A.Port); err != nil {
					return nil, err
				}
			}
		}
		return wiring.Check(g, wiring.Options{Plan: s.m.Graph()}), nil
	})
}

// inventoryShown is what a fabric is made of.
type inventoryShown struct {
	Nodes []nodeLine   `json:"nodes"`
	Bill  *wiring.Bill `json:"bill"`
}

type nodeLine struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"`
	GUID     string `json:"guid"`
	System   string `json:"system_guid"`
	Desc     string `json:"description"`
	LID      uint16 `json:"lid"`
	VendorID string `json:"vendor_id"`
	DeviceID uint16 `json:"device_id"`
	Ports    int    `json:"ports"`
	Cables   int    `json:"cables"`
	Active   int    `json:"active"`
}

// inventory lists every node, and what one would have to buy.
func (s *Server) inventory(*http.Request) (any, error) {
	g, sample := s.m.Graph(), s.m.Sample()
	show := inventoryShown{Nodes: make([]nodeLine, 0, len(g.Nodes))}
	for _, n := range g.Nodes {
		line := nodeLine{Name: n.Name, Kind: kindOf(n), GUID: "0x" + guidText(n.GUID),
			System: "0x" + guidText(n.SystemGUID), Desc: n.Desc, Ports: n.NumPorts(),
			VendorID: fmt.Sprintf("0x%06x", n.VendorID), DeviceID: n.DeviceID}
		for p := 1; p <= n.NumPorts(); p++ {
			ref := topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}
			if !n.Ports[p].Connected() {
				continue
			}
			line.Cables++
			if i, ok := s.m.PortIndex(ref); ok && sample.Ports[i].State == ib.PortActive {
				line.Active++
			}
		}
		if n.NumPorts() > 0 {
			line.LID = uint16(s.m.LID(topo.PortRef{Node: n.Index, Port: 1}))
		}
		show.Nodes = append(show.Nodes, line)
	}
	bill, err := wiring.EstimateBill(g, wiring.DefaultPrices())
	show.Bill = bill
	return show, err
}
