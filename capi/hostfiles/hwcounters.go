package hostfiles

import "softib/node/hca"

// hwCounters are what programs of a host have counted, by the names that mlx5's driver has for them in hw_counters,
// where the tools of this field look. They are the adapter's: where it has several ports each shows the same.
var hwCounters = []struct {
	name  string
	value func(s *hca.Stats) uint64
}{
	{"rx_write_requests", func(s *hca.Stats) uint64 { return s.WritesRcvd }},
	{"rx_read_requests", func(s *hca.Stats) uint64 { return s.ReadsRcvd }},
	{"rx_atomic_requests", func(s *hca.Stats) uint64 { return s.AtomicsRcvd }},
	{"out_of_buffer", func(s *hca.Stats) uint64 { return s.Drops[hca.DropNoRecv] }},
	{"out_of_sequence", func(s *hca.Stats) uint64 { return s.OutOfSequence }},
	{"duplicate_request", func(s *hca.Stats) uint64 { return s.Duplicates + s.Drops[hca.DropDuplicate] }},
	{"rnr_nak_retry_err", func(s *hca.Stats) uint64 { return s.RNRNAKs }},
	{"packet_seq_err", func(s *hca.Stats) uint64 { return s.SeqNAKsRcvd }},
	{"implied_nak_seq_err", func(s *hca.Stats) uint64 { return s.ImpliedNAKs }},
	{"local_ack_timeout_err", func(s *hca.Stats) uint64 { return s.Timeouts }},
	{"resp_local_length_error", func(s *hca.Stats) uint64 { return s.RecvErrors[hca.WCLocLenErr] }},
	{"resp_cqe_error", func(s *hca.Stats) uint64 { return total(&s.RecvErrors) }},
	{"req_cqe_error", func(s *hca.Stats) uint64 { return total(&s.SendErrors) }},
	{"req_remote_invalid_request", func(s *hca.Stats) uint64 { return s.SendErrors[hca.WCRemInvReqErr] }},
	{"req_remote_access_errors", func(s *hca.Stats) uint64 { return s.SendErrors[hca.WCRemAccessErr] }},
	{"resp_remote_access_errors", func(s *hca.Stats) uint64 { return s.AccessNAKsSent }},
	{"resp_cqe_flush_error", func(s *hca.Stats) uint64 { return s.RecvErrors[hca.WCWRFlushErr] }},
	{"req_cqe_flush_error", func(s *hca.Stats) uint64 { return s.SendErrors[hca.WCWRFlushErr] }},
	{"req_transport_retries_exceeded", func(s *hca.Stats) uint64 { return s.SendErrors[hca.WCRetryExcErr] }},
	{"req_rnr_retries_exceeded", func(s *hca.Stats) uint64 { return s.SendErrors[hca.WCRNRRetryExcErr] }},
}

// total is all errors, flushes included, as mlx5 counts them.
func total(errors *[hca.NumWCStatus]uint64) (n uint64) {
	for _, k := range errors {
		n += k
	}
	return n
}

// setStats writes what the host's programs have counted, where that has changed.
func (t *tree) setStats(s *hca.Stats) {
	if t.stats != nil && *t.stats == *s {
		return
	}
	for _, dir := range t.dirs {
		for _, c := range hwCounters {
			t.put(dir+"/hw_counters/"+c.name, counterText(c.value(s), 64))
		}
	}
	if t.err == nil {
		now := *s
		t.stats = &now
	}
}
