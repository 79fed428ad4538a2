package webui

import (
	"net/http"
	"slices"
	"time"

	"softib/node/hca"
	"softib/node/inspect"
)

// programShown is a program that is attached, and programs of a host that have ended add to hostTotals.
type programShown struct {
	Host     string    `json:"host"`
	PID      int       `json:"pid"`
	Name     string    `json:"name"`
	Library  string    `json:"library"`
	Since    time.Time `json:"since"`
	QPs      []qpShown `json:"qps"`
	QPTotal  int       `json:"qp_total"`
	Sent     uint64    `json:"sent_bytes"`
	Received uint64    `json:"received_bytes"`
	Retries  uint64    `json:"retransmits"`
	Timeouts uint64    `json:"timeouts"`
	RNR      uint64    `json:"rnr_naks"`
	SeqNAKs  uint64    `json:"sequence_naks"`
	Errors   uint64    `json:"completion_errors"`
	// Statuses are the completion errors by status.
	Statuses []statusCount `json:"statuses,omitempty"`
	IPoIB    uint64        `json:"ipoib_bytes"`
}

type qpShown struct {
	Type  string `json:"type"`
	State string `json:"state"`
	Count uint32 `json:"count"`
}

type statusCount struct {
	Status string `json:"status"`
	Count  uint64 `json:"count"`
}

// pathShown is how long requests between two hosts take.
type pathShown struct {
	From   string    `json:"from"`
	To     string    `json:"to"`
	Count  uint64    `json:"count"`
	P50    float64   `json:"p50_ms"`
	P99    float64   `json:"p99_ms"`
	P999   float64   `json:"p999_ms"`
	Latest time.Time `json:"latest"`
}

// pathsMax bounds how many paths are shown: the slowest.
const pathsMax = 200

func (s *Server) programs(r *http.Request) (any, error) {
	host := r.URL.Query().Get("host")
	show := struct {
		Programs []programShown `json:"programs"`
		Paths    []pathShown    `json:"paths"`
		Total    int            `json:"paths_total"`
	}{Programs: []programShown{}, Paths: []pathShown{}}
	for _, p := range s.m.Fabric().Programs() {
		if host == "" || p.Host == host {
			show.Programs = append(show.Programs, showProgram(&p))
		}
	}
	for _, p := range s.m.Fabric().PathLatencies() {
		if host == "" || p.From == host || p.To == host {
			show.Paths = append(show.Paths, pathShown{
				From: p.From, To: p.To, Count: p.Times.Count(), Latest: p.Last,
				P50: millis(p.Times.Quantile(.5)), P99: millis(p.Times.Quantile(.99)),
				P999: millis(p.Times.Quantile(.999)),
			})
		}
	}
	slices.SortStableFunc(show.Paths, func(a, b pathShown) int {
		if a.P99 != b.P99 {
			if a.P99 > b.P99 {
				return -1
			}
			return 1
		}
		return naturalCompare(a.From+" "+a.To, b.From+" "+b.To)
	})
	show.Total = len(show.Paths)
	show.Paths = show.Paths[:min(pathsMax, len(show.Paths))]
	return show, nil
}

func showProgram(p *inspect.ProgramStats) programShown {
	st := &p.Stats
	show := programShown{
		Host: p.Host, PID: p.PID, Name: p.Name, Library: p.Library, Since: p.Since, QPs: []qpShown{},
		QPTotal: p.QPs.Total(), Sent: st.TxBytes, Received: st.RxBytes,
		Retries: st.Retransmits, Timeouts: st.Timeouts, RNR: st.RNRNAKs, SeqNAKs: st.SeqNAKsRcvd,
		Errors: st.CompletionErrors, IPoIB: st.IPoIBTxBytes + st.IPoIBRxBytes,
	}
	for t := range p.QPs {
		for state, n := range p.QPs[t] {
			if n > 0 {
				show.QPs = append(show.QPs, qpShown{Type: hca.QPType(t).String(), State: hca.State(state).String(),
					Count: n})
			}
		}
	}
	for i := range st.SendErrors {
		if n := st.SendErrors[i] + st.RecvErrors[i]; n > 0 {
			show.Statuses = append(show.Statuses, statusCount{Status: hca.WCStatus(i).String(), Count: n})
		}
	}
	return show
}
