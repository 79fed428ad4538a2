package webui

import (
	"encoding/json"
	"io"

	"softib/proto/topo"
)

// Report is a simulated run as the page can show it on a map of its fabric.
type Report struct {
	Command string  `json:"command"` // that repeats the run
	Load    string  `json:"load"`
	End     float64 `json:"end_s"`
	// Use is what part of the time a port sent, over the whole run and in its busiest interval.
	Use func(topo.PortRef) (mean, peak float64) `json:"-"`
}

// WriteMap writes a run on a fabric to a file that the page opens (its view "Report").
func WriteMap(w io.Writer, topology string, g *topo.Graph, r Report) error {
	cables := g.Cables()
	m := struct {
		Report
		Topology json.RawMessage `json:"topology"`
		// By cable and direction, in thousandths: what end A sends, then what end B does.
		Mean []uint16 `json:"mean"`
		Peak []uint16 `json:"peak"`
	}{Report: r, Topology: appendTopology(nil, shape{topology: topology, graph: g, cables: cables})}
	for _, c := range cables {
		for _, end := range []topo.PortRef{c.A, c.B} {
			mean, peak := r.Use(end)
			m.Mean, m.Peak = append(m.Mean, thousandths(mean)), append(m.Peak, thousandths(peak))
		}
	}
	return json.NewEncoder(w).Encode(m)
}
