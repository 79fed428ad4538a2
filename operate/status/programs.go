package status

import (
	"time"

	"softib/node/hca"
	"softib/node/inspect"
)

// Program is a program that is attached to a host.
type Program struct {
	Host string `json:"host"`
	PID  int    `json:"pid"`
	Name string `json:"name"`
	// Library is the release of softib's library in it.
	Library string    `json:"library"`
	Since   time.Time `json:"since"`
	QPs     []QPCount `json:"qps"`
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

// QPCount is how many queue pairs are of a type and in a state.
type QPCount struct {
	Type  string `json:"type"`
	State string `json:"state"`
	Count int    `json:"count"`
}

// ProgramOf is what is said of a program.
func ProgramOf(p *inspect.ProgramStats) Program {
	s := Program{
		Host: p.Host, PID: p.PID, Name: p.Name, Library: p.Library, Since: p.Since, QPs: []QPCount{},
		Errors:    map[string]uint64{},
		TxPackets: p.Stats.TxPackets, RxPackets: p.Stats.RxPackets, TxBytes: p.Stats.TxBytes, RxBytes: p.Stats.RxBytes,
		IPoIBTxBytes: p.Stats.IPoIBTxBytes, IPoIBRxBytes: p.Stats.IPoIBRxBytes,
		Timeouts: p.Stats.Timeouts, SeqNAKs: p.Stats.SeqNAKsRcvd, RNRNAKs: p.Stats.RNRNAKs,
		RNRNAKsSent: p.Stats.RNRsSent,
	}
	for t := range p.QPs {
		for st, n := range p.QPs[t] {
			if n > 0 {
				s.QPs = append(s.QPs, QPCount{hca.QPType(t).String(), hca.State(st).String(), int(n)})
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
