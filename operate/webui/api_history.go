package webui

import (
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"softib/operate/manager/history"
	"softib/proto/ib"
	"softib/proto/topo"
)

// historyShown is the past of a port, or of all ports of a node: values of every metric at the same times. Where
// nothing was watched, both are null.
type historyShown struct {
	Port   string                 `json:"port,omitempty"`
	Node   string                 `json:"node,omitempty"`
	Step   float64                `json:"step_ms"`
	Times  []int64                `json:"times"`
	Series map[string]seriesShown `json:"series"`
}

// seriesShown has a mean and a peak for each time: of a node, the sum of its ports and the busiest of them, where a
// share of the time is meant their mean and the worst.
type seriesShown struct {
	Unit string     `json:"unit"`
	What string     `json:"what"`
	Avg  []*float64 `json:"avg"`
	Max  []*float64 `json:"max"`
}

// span is a stretch of time to look at.
type span struct {
	from, to time.Time
	points   int
}

// span reads what stretch of time is asked for: the last seconds, or from and to.
func (s *Server) span(r *http.Request) (span, error) {
	seconds, err := number(r, "seconds", 600, 10, 400*86400)
	if err != nil {
		return span{}, err
	}
	points, err := number(r, "points", 300, 10, 5000)
	if err != nil {
		return span{}, err
	}
	x := span{to: time.Now(), points: points}
	if x.to, err = moment(r, "to", x.to); err != nil {
		return span{}, err
	}
	if x.from, err = moment(r, "from", x.to.Add(-time.Duration(seconds)*time.Second)); err != nil {
		return span{}, err
	}
	if !x.from.Before(x.to) {
		return span{}, badField("from", "from is the earlier one", "from is %s, and to is %s",
			x.from.Format(time.RFC3339), x.to.Format(time.RFC3339))
	}
	return x, nil
}

// moment reads a time that may be left out.
func moment(r *http.Request, name string, without time.Time) (time.Time, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return without, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, badField(name, "such as 2026-11-18T09:30:00Z", "%s is %q: want a time as RFC 3339 has it", name, text)
	}
	return t, nil
}

// history answers with counters over time, as rates; waiting as a share of the time.
func (s *Server) history(r *http.Request) (any, error) {
	x, err := s.span(r)
	if err != nil {
		return nil, err
	}
	if name := r.URL.Query().Get("node"); name != "" {
		n, err := s.m.Node(name)
		if err != nil {
			return nil, unknown("node", err)
		}
		var refs []topo.PortRef
		for p := 1; p <= n.NumPorts(); p++ {
			if n.Ports[p].Connected() {
				refs = append(refs, topo.PortRef{Node: n.Index, Port: ib.PortNum(p)})
			}
		}
		show, err := s.past(refs, x)
		show.Node = n.Name
		return show, err
	}
	ref, err := s.m.Port(r.URL.Query().Get("port"))
	if err != nil {
		return nil, unknown("port", err)
	}
	show, err := s.past([]topo.PortRef{ref}, x)
	show.Port = s.m.Graph().PortName(ref)
	return show, err
}

// past is what some ports have counted.
func (s *Server) past(refs []topo.PortRef, x span) (historyShown, error) {
	show := historyShown{Times: []int64{}, Series: map[string]seriesShown{}}
	all := make([][history.NumMetric]history.Series, len(refs))
	for i, ref := range refs {
		for m := range history.NumMetric {
			var err error
			if all[i][m], err = s.m.PortHistory(ref, m, x.from, x.to, x.points); err != nil {
				return show, err
			}
			show.Step = max(show.Step, millis(all[i][m].Step))
			for _, p := range all[i][m].Points {
				show.Times = append(show.Times, p.At.UnixMilli())
			}
		}
		slices.Sort(show.Times) // now and then, so that it does not grow with the ports
		show.Times = slices.Compact(show.Times)
	}
	show.Times = withGaps(show.Times, int64(show.Step))
	for m := range history.NumMetric {
		sum := seriesShown{Unit: m.Unit(), What: m.What()}
		for i, ref := range refs {
			scale, limit := 1.0, math.Inf(1)
			if full := float64(s.m.Graph().LinkRate(ref).Mbps()) * 1e6 / 8; m == history.XmitWait && full > 0 {
				// Ticks of a wait are counted when it is over, so that a sample may have more of them than time.
				scale, limit, sum.Unit = 1/full, 1, "of the time"
			}
			sum.add(fillSeries(show.Times, all[i][m].Points, scale, limit), len(refs) > 1)
		}
		if sum.Unit == "of the time" {
			for _, v := range sum.Avg {
				if v != nil {
					*v /= float64(len(refs))
				}
			}
		}
		show.Series[m.String()] = sum
	}
	return show, nil
}

// add takes another port in. Of several ports the highest is the mean of the busiest.
func (s *seriesShown) add(o seriesShown, several bool) {
	if several {
		o.Max = slices.Clone(o.Avg)
		for i, v := range o.Max {
			if v != nil {
				w := *v
				o.Max[i] = &w
			}
		}
	}
	if s.Avg == nil {
		s.Avg, s.Max = o.Avg, o.Max
		return
	}
	for i, v := range o.Avg {
		switch {
		case v == nil:
		case s.Avg[i] == nil:
			s.Avg[i], s.Max[i] = v, o.Max[i]
		default:
			*s.Avg[i] += *v
			*s.Max[i] = max(*s.Max[i], *o.Max[i])
		}
	}
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

func fillSeries(times []int64, points []history.Point, scale, limit float64) seriesShown {
	show := seriesShown{Avg: make([]*float64, len(times)), Max: make([]*float64, len(times))}
	for _, p := range points {
		i, ok := slices.BinarySearch(times, p.At.UnixMilli())
		if !ok || math.IsNaN(p.Avg) || math.IsNaN(p.Max) {
			continue
		}
		avg, top := min(p.Avg*scale, limit), min(p.Max*scale, limit)
		show.Avg[i], show.Max[i] = &avg, &top
	}
	return show
}

// historyCSV answers with the same as a table, for spreadsheets.
func (s *Server) historyCSV(w http.ResponseWriter, r *http.Request) {
	v, err := s.history(r)
	if err != nil {
		e, ok := errors.AsType[*apiError](err)
		if !ok {
			e = &apiError{Status: http.StatusInternalServerError, Text: err.Error(), Next: "try again"}
		}
		fail(w, e)
		return
	}
	show := v.(historyShown)
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	name := show.Port + show.Node
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", fileName(name)+".csv"))
	out := csv.NewWriter(w)
	head := []string{"time"}
	for m := range history.NumMetric {
		unit := show.Series[m.String()].Unit
		head = append(head, fmt.Sprintf("%v (%s)", m, unit), fmt.Sprintf("%v highest (%s)", m, unit))
	}
	out.Write(head)
	for i, t := range show.Times {
		row := []string{time.UnixMilli(t).UTC().Format("2006-01-02T15:04:05.000Z")}
		for m := range history.NumMetric {
			x := show.Series[m.String()]
			row = append(row, cell(x.Avg, i), cell(x.Max, i))
		}
		out.Write(row)
	}
	out.Flush()
}

// cell is a number of a table; empty where there is none.
func cell(list []*float64, i int) string {
	if i >= len(list) || list[i] == nil {
		return ""
	}
	return strconv.FormatFloat(*list[i], 'g', 6, 64)
}

// fileName is a name that every file system takes.
func fileName(name string) string {
	b := []byte(name)
	for i, c := range b {
		if c != '-' && c != '.' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			b[i] = '-'
		}
	}
	return string(b)
}
