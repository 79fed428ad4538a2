package main

import (
	"fmt"
	"strings"
	"time"

	"softib/driver/live"
	"softib/node/hca"
)

// programStatus is a program that is attached to a host.
type programStatus struct {
	Host string `json:"host"`
	PID  int    `json:"pid"`
	Name string `json:"name"`
	// Library is the release of softib's library in it.
	Library string    `json:"library"`
	Since   time.Time `json:"since"`
	QPs     []qpCount `json:"qps"`
	// What it has sent and received, without headers, and how much of that was IP over InfiniBand.
	TxPackets    uint64 `json:"tx_packets"`
	RxPackets    uint64 `json:"rx_packets"`
	TxBytes      uint64 `json:"tx_bytes"`
	RxBytes      uint64 `json:"rx_bytes"`
	IPoIBTxBytes uint64 `json:"ipoib_tx_bytes"`
	IPoIBRxBytes uint64 `json:"ipoib_rx_bytes"`
	// Errors are completions that failed, by status, sends and receives together. Flushes follow from an error, or from
	// an end that was meant.
	Errors      map[string]uint64 `json:"completion_errors"`
	Timeouts    uint64            `json:"timeouts"`
	SeqNAKs     uint64            `json:"sequence_naks_received"`
	RNRNAKs     uint64            `json:"rnr_naks_received"`
	RNRNAKsSent uint64            `json:"rnr_naks_sent"`
}

// qpCount is how many queue pairs are of a type and in a state.
type qpCount struct {
	Type  string `json:"type"`
	State string `json:"state"`
	Count int    `json:"count"`
}

// statusOf is what is said of a program.
func statusOf(p *live.ProgramStats) programStatus {
	s := programStatus{
		Host: p.Host, PID: p.PID, Name: p.Name, Library: p.Library, Since: p.Since, QPs: []qpCount{},
		Errors:    map[string]uint64{},
		TxPackets: p.Stats.TxPackets, RxPackets: p.Stats.RxPackets, TxBytes: p.Stats.TxBytes, RxBytes: p.Stats.RxBytes,
		IPoIBTxBytes: p.Stats.IPoIBTxBytes, IPoIBRxBytes: p.Stats.IPoIBRxBytes,
		Timeouts: p.Stats.Timeouts, SeqNAKs: p.Stats.SeqNAKsRcvd, RNRNAKs: p.Stats.RNRNAKs,
		RNRNAKsSent: p.Stats.RNRsSent,
	}
	for t := range p.QPs {
		for st, n := range p.QPs[t] {
			if n > 0 {
				s.QPs = append(s.QPs, qpCount{hca.QPType(t).String(), hca.State(st).String(), int(n)})
			}
		}
	}
	for st := range hca.NumWCStatus {
		if n := p.Stats.SendErrors[st] + p.Stats.RecvErrors[st]; n > 0 {
			s.Errors[st.String()] = n
		}
	}
	return s
}

// programs are those that are attached.
func (f *fabric) programs() []programStatus {
	list := f.Programs()
	all := make([]programStatus, len(list))
	for i := range list {
		all[i] = statusOf(&list[i])
	}
	return all
}

func (s *status) printPrograms(t *terminal) {
	l := t.under("programs")
	if len(s.Programs) == 0 {
		l.say("none: softib exec HOST -- PROGRAM")
		return
	}
	l.few(len(s.Programs), "programs", func(i int) {
		for _, line := range s.Programs[i].lines(t, s.Version) {
			l.say("%s", line)
		}
	})
}

// lines are what is said of a program: who it is and what it carries, what queue pairs it has, and what is wrong.
func (p *programStatus) lines(t *terminal, version string) []string {
	name := p.Name
	if name == "" {
		name = "?"
	}
	lines := []string{fmt.Sprintf("%s %s, process %d, for %s", t.bold(p.Host), name, p.PID,
		uptime(time.Since(p.Since).Seconds()))}
	add := func(text string) { lines = append(lines, "  "+text) }
	add(fmt.Sprintf("sent %s, received %s", bytesOf(p.TxBytes), bytesOf(p.RxBytes)))
	n := 0
	var kinds []string
	for _, q := range p.QPs {
		n += q.Count
		kinds = append(kinds, fmt.Sprintf("%d %s in %s", q.Count, q.Type, q.State))
	}
	qps := numbered(n, "queue pair", "queue pairs")
	if n > 0 {
		qps += ": " + strings.Join(kinds, ", ")
	}
	for i, line := range wrapped(qps, 66) {
		if i > 0 {
			line = "  " + line
		}
		add(line)
	}
	if ip := p.IPoIBTxBytes + p.IPoIBRxBytes; ip > 0 {
		add(bytesOf(ip) + " of what it carries is IP over InfiniBand")
	}
	failed := uint64(0)
	for status, n := range p.Errors { // tidy: order-free
		if status != hca.WCWRFlushErr.String() {
			failed += n
		}
	}
	if failed > 0 {
		add(t.red(numbered(int(failed), "request has failed", "requests have failed")) + ": --json says how")
	}
	if p.Library != version {
		add(t.red(fmt.Sprintf("its library is of release %.20q, not %s", p.Library, version)) + ": start it anew")
	}
	return lines
}
