package webui

import (
	"math"
	"net/http"
	"slices"
	"time"

	"softib/operate/manager/history"
)

// historyShown is a port's past: values of every metric at the same times. Where nothing was watched, both are null.
type historyShown struct {
	Port   string                 `json:"port"`
	Step   float64                `json:"step_ms"`
	Times  []int64                `json:"times"`
	Series map[string]seriesShown `json:"series"`
}

type seriesShown struct {
	Unit string     `json:"unit"`
	What string     `json:"what"`
	Avg  []*float64 `json:"avg"`
	Max  []*float64 `json:"max"`
}

// history answers with a port's counters over time, as rates; waiting as a share of the time.
func (s *Server) history(r *http.Request) (any, error) {
	ref, err := s.m.Port(r.URL.Query().Get("port"))
	if err != nil {
		return nil, unknown("port", err)
	}
	seconds, err := number(r, "seconds", 600, 10, 400*86400)
	if err != nil {
		return nil, err
	}
	points, err := number(r, "points", 300, 10, 5000)
	if err != nil {
		return nil, err
	}
	to := time.Now()
	from := to.Add(-time.Duration(seconds) * time.Second)
	all := make([]history.Series, history.NumMetric)
	show := historyShown{Port: s.m.Graph().PortName(ref), Times: []int64{}, Series: map[string]seriesShown{}}
	for m := range history.NumMetric {
		if all[m], err = s.m.PortHistory(ref, m, from, to, points); err != nil {
			return nil, err
		}
		show.Step = max(show.Step, millis(all[m].Step))
		for _, p := range all[m].Points {
			show.Times = append(show.Times, p.At.UnixMilli())
		}
	}
	slices.Sort(show.Times)
	show.Times = withGaps(slices.Compact(show.Times), int64(show.Step))
	waitFull := float64(s.m.Graph().LinkRate(ref).Mbps()) * 1e6 / 8
	for m := range history.NumMetric {
		scale, unit := 1.0, m.Unit()
		if m == history.XmitWait && waitFull > 0 {
			scale, unit = 1/waitFull, "of the time"
		}
		show.Series[m.String()] = fillSeries(show.Times, all[m].Points, scale, unit, m.What())
	}
	return show, nil
}

// withGaps puts a time into every hole, for which there is no value: a line is not drawn across it.
func withGaps(times []int64, step int64) []int64 {
	list := make([]int64, 0, len(times))
	for i, t := range times {
		if i > 0 && step > 0 && t-times[i-1] > step*5/2 {
			list = append(list, times[i-1]+step)
		}
		list = append(list, t)
	}
	return list
}

func fillSeries(times []int64, points []history.Point, scale float64, unit, what string) seriesShown {
	show := seriesShown{Unit: unit, What: what, Avg: make([]*float64, len(times)), Max: make([]*float64, len(times))}
	for _, p := range points {
		i, ok := slices.BinarySearch(times, p.At.UnixMilli())
		if !ok || math.IsNaN(p.Avg) || math.IsNaN(p.Max) {
			continue
		}
		avg, top := p.Avg*scale, p.Max*scale
		show.Avg[i], show.Max[i] = &avg, &top
	}
	return show
}
