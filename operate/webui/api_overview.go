package webui

import (
	"cmp"
	"math"
	"net/http"
	"slices"

	"softib/operate/manager"
	"softib/operate/manager/history"
)

// overview is the whole fabric at a glance.
type overview struct {
	Traffic historyShown  `json:"traffic"`
	Talkers []talker      `json:"talkers"`
	Cables  []rankedCable `json:"cables"`
	Alarmed int           `json:"alarmed"`
	Alarms  []alarmShown  `json:"alarms"`
}

// talker is a host by what it sends and receives.
type talker struct {
	Host     string  `json:"host"`
	Sent     float64 `json:"sent_Bps"`
	Received float64 `json:"received_Bps"`
	Mbps     int64   `json:"mbps"` // of all its links
}

// overviewMax is how many of each an overview has.
const overviewMax = 10

func (s *Server) overview(r *http.Request) (any, error) {
	span, err := s.span(r)
	if err != nil {
		return nil, err
	}
	open := s.m.OpenAlarms()
	o := overview{Talkers: topTalkers(s.m, overviewMax), Cables: s.worst(overviewMax), Alarmed: alarmed(open),
		Alarms: showAlarms(open[:min(len(open), overviewMax)])}
	series, err := s.m.FabricHistory(manager.SeriesTraffic, span.from, span.to, span.points)
	if err != nil {
		return nil, err
	}
	down, err := s.m.FabricHistory(manager.SeriesDown, span.from, span.to, span.points)
	if err != nil {
		return nil, err
	}
	o.Traffic = historyShown{Step: max(millis(series.Step), millis(down.Step)), Times: []int64{},
		Series: map[string]seriesShown{}}
	for _, p := range series.Points {
		o.Traffic.Times = append(o.Traffic.Times, p.At.UnixMilli())
	}
	for _, p := range down.Points {
		o.Traffic.Times = append(o.Traffic.Times, p.At.UnixMilli())
	}
	slices.Sort(o.Traffic.Times)
	o.Traffic.Times = withGaps(slices.Compact(o.Traffic.Times), int64(o.Traffic.Step))
	for name, x := range map[string]struct {
		points     []history.Point
		unit, what string
	}{manager.SeriesTraffic: {series.Points, "B/s", "bytes that hosts send, all together"},
		manager.SeriesDown: {down.Points, "", "links that are down"}} {
		show := fillSeries(o.Traffic.Times, x.points, 1, math.Inf(1))
		show.Unit, show.What = x.unit, x.what
		o.Traffic.Series[name] = show
	}
	return o, nil
}

// topTalkers are the hosts that send and receive most.
func topTalkers(m *manager.Manager, most int) []talker {
	all, s := []talker{}, m.Sample()
	for i, ref := range m.Ports() {
		n, p := m.Graph().Nodes[ref.Node], &s.Ports[i]
		if n.IsSwitch() {
			continue
		}
		if ref.Port == 1 {
			all = append(all, talker{Host: n.Name})
		}
		t := &all[len(all)-1]
		t.Sent += float64(p.XmitBytes)
		t.Received += float64(p.RcvBytes)
		t.Mbps += p.Rate.Mbps()
	}
	all = slices.DeleteFunc(all, func(t talker) bool { return t.Sent+t.Received == 0 })
	slices.SortStableFunc(all, func(a, b talker) int { return cmp.Compare(b.Sent+b.Received, a.Sent+a.Received) })
	return all[:min(len(all), most)]
}
