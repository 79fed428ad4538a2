package metrics

import (
	"fmt"
	"strings"
	"time"

	"softib/node/hca"
	"softib/node/inspect"
	"softib/operate/manager"
)

// hostCounters are those of a host's programs that are plain numbers.
var hostCounters = [...]struct {
	name, help string
	of         func(*hca.Stats) uint64
}{
	{"softib_host_completions_total", "Completions, good and bad.", func(s *hca.Stats) uint64 { return s.Completions }},
	{"softib_host_completion_errors_total",
		"Completions with an error, but for requests that were only flushed after another had failed.", failed},
	{"softib_host_retransmitted_packets_total", "Packets that were sent again.",
		func(s *hca.Stats) uint64 { return s.Retransmits }},
	{"softib_host_timeouts_total", "Acknowledgements that did not come in time.",
		func(s *hca.Stats) uint64 { return s.Timeouts }},
	{"softib_host_rnr_naks_received_total", "Times that a peer had no receive posted.",
		func(s *hca.Stats) uint64 { return s.RNRNAKs }},
	{"softib_host_rnr_naks_sent_total", "Times that a program had no receive posted.",
		func(s *hca.Stats) uint64 { return s.RNRsSent }},
	{"softib_host_sequence_naks_received_total", "Times that a peer missed packets.",
		func(s *hca.Stats) uint64 { return s.SeqNAKsRcvd }},
	{"softib_host_sequence_naks_sent_total", "Times that packets were missed.",
		func(s *hca.Stats) uint64 { return s.SeqNAKsSent }},
	{"softib_host_out_of_sequence_total", "Requests that came behind a gap.",
		func(s *hca.Stats) uint64 { return s.OutOfSequence }},
	{"softib_host_duplicate_requests_total", "Requests that came twice.",
		func(s *hca.Stats) uint64 { return s.Duplicates }},
	{"softib_host_access_naks_sent_total", "Requests refused because of a key, an address or a right.",
		func(s *hca.Stats) uint64 { return s.AccessNAKsSent }},
	{"softib_host_path_migrations_total", "Connections that moved to their alternate path.",
		func(s *hca.Stats) uint64 { return s.PathMigrations }},
}

// failed counts completions with an error that is not another's consequence.
func failed(s *hca.Stats) (n uint64) {
	for st := range hca.NumWCStatus {
		if st != hca.WCWRFlushErr {
			n += s.SendErrors[st] + s.RecvErrors[st]
		}
	}
	return n
}

// programSheet is what programs do and how they fare.
func programSheet(t *sheet, m *manager.Manager) {
	f := m.Fabric()
	const start = "softib_program_start_time_seconds"
	t.family(start, "When a program was attached, in seconds since 1970, and the release of softib's library in it.",
		gauge)
	type program struct {
		host, name, library string
		pid                 int
	}
	seen := map[program]bool{}
	for _, p := range f.Programs() { // one may have opened its device twice
		if k := (program{p.Host, p.Name, p.Library, p.PID}); !seen[k] {
			seen[k] = true
			t.add(start, float64(p.Since.UnixNano())/1e9, "host", p.Host, "pid", fmt.Sprint(p.PID), "program", p.Name,
				"library", p.Library)
		}
	}
	hosts := f.HostStats()
	hostSheet(t, hosts)
	t.family("softib_host_queue_pairs",
		"Queue pairs of programs that are attached; types and states that there are none of are left out.", gauge)
	for i := range hosts {
		h := &hosts[i]
		for ty := range hca.NumQPType {
			for st := range hca.NumState {
				if n := h.QPs[ty][st]; n > 0 {
					t.add("softib_host_queue_pairs", float64(n), "host", h.Host, "type", ty.String(), "state",
						st.String())
				}
			}
		}
	}
	latencySheet(t, f.PathLatencies())
	peakSheet(t, m, f.Peaks(peakSpan))
}

// hostSheet is counters by host.
func hostSheet(t *sheet, hosts []inspect.HostStats) {
	t.family("softib_host_programs", "Programs that are attached.", gauge)
	for i := range hosts {
		t.add("softib_host_programs", float64(hosts[i].Programs), "host", hosts[i].Host)
	}
	t.family("softib_host_programs_ended_total", "Programs that were attached and have ended.", counter)
	for i := range hosts {
		t.add("softib_host_programs_ended_total", float64(hosts[i].Ended), "host", hosts[i].Host)
	}
	for _, c := range hostCounters {
		t.family(c.name, c.help, counter)
		for i := range hosts {
			t.add(c.name, float64(c.of(&hosts[i].Stats)), "host", hosts[i].Host)
		}
	}
	for _, c := range []struct {
		name, help string
		of         func(*hca.Stats) (tx, rx, ipTx, ipRx uint64)
	}{
		{"softib_host_bytes_total", "Payload that programs have sent and received, natively and as IP over InfiniBand.",
			func(s *hca.Stats) (tx, rx, ipTx, ipRx uint64) {
				return s.TxBytes, s.RxBytes, s.IPoIBTxBytes, s.IPoIBRxBytes
			}},
		{"softib_host_packets_total",
			"Packets that programs have sent and received, natively and as IP over InfiniBand.",
			func(s *hca.Stats) (tx, rx, ipTx, ipRx uint64) {
				return s.TxPackets, s.RxPackets, s.IPoIBTxPackets, s.IPoIBRxPackets
			}},
	} {
		t.family(c.name, c.help, counter)
		for i := range hosts {
			tx, rx, ipTx, ipRx := c.of(&hosts[i].Stats)
			t.add(c.name, float64(tx-min(tx, ipTx)), "host", hosts[i].Host, "kind", "native", "direction", "transmit")
			t.add(c.name, float64(rx-min(rx, ipRx)), "host", hosts[i].Host, "kind", "native", "direction", "receive")
			t.add(c.name, float64(ipTx), "host", hosts[i].Host, "kind", "ipoib", "direction", "transmit")
			t.add(c.name, float64(ipRx), "host", hosts[i].Host, "kind", "ipoib", "direction", "receive")
		}
	}
	t.family("softib_host_completion_errors_by_status_total",
		"Completions with an error, by status; those that there were none of are left out.", counter)
	for i := range hosts {
		s := &hosts[i].Stats
		for st := range hca.NumWCStatus {
			for _, q := range [...]struct {
				queue string
				n     uint64
			}{{"send", s.SendErrors[st]}, {"recv", s.RecvErrors[st]}} {
				if q.n > 0 {
					t.add("softib_host_completion_errors_by_status_total", float64(q.n), "host", hosts[i].Host, "queue",
						q.queue, "status", st.String())
				}
			}
		}
	}
	t.family("softib_host_dropped_packets_total",
		"Packets that adapters did not take, by reason; reasons that there were none of are left out.", counter)
	for i := range hosts {
		for d := range hca.NumDrop {
			if n := hosts[i].Stats.Drops[d]; n > 0 {
				t.add("softib_host_dropped_packets_total", float64(n), "host", hosts[i].Host, "reason", d.String())
			}
		}
	}
}

// latencySheet is how long acknowledgements took: of each path what its tail is, of all together a histogram, which
// rates can be made of.
func latencySheet(t *sheet, paths []inspect.PathLatency) {
	const name = "softib_path_latency_seconds"
	t.family(name, "From when a packet was sent until its acknowledgement was taken in, of a sample of them, "+
		"since the fabric began.", summary)
	for i := range paths {
		p := &paths[i]
		for _, q := range [...]struct {
			share float64
			text  string
		}{{0.5, "0.5"}, {0.99, "0.99"}, {0.999, "0.999"}} {
			t.add(name, p.Times.Quantile(q.share).Seconds(), "from", p.From, "to", p.To, "quantile", q.text)
		}
		t.add(name+"_sum", p.Times.Sum().Seconds(), "from", p.From, "to", p.To)
		t.add(name+"_count", float64(p.Times.Count()), "from", p.From, "to", p.To)
	}
	t.family("softib_latency_seconds", "The same of all paths together.", histogram)
	// Below 256 ns and above a second nothing is worth a bucket of its own.
	for end := 256 * time.Nanosecond; end <= 2*time.Second; end *= 2 {
		t.add("softib_latency_seconds_bucket", total(paths, func(p inspect.Times) uint64 { return p.Below(end) }), "le",
			number(end.Seconds()))
	}
	count := total(paths, inspect.Times.Count)
	t.add("softib_latency_seconds_bucket", count, "le", "+Inf")
	t.add("softib_latency_seconds_sum", total(paths, inspect.Times.Sum)/float64(time.Second))
	t.add("softib_latency_seconds_count", count)
}

// total adds up a number of all paths.
func total[N uint64 | time.Duration](paths []inspect.PathLatency, of func(inspect.Times) N) float64 {
	var sum N
	for i := range paths {
		sum += of(paths[i].Times)
	}
	return float64(sum)
}

// peakSpan is how far back peaks are looked for: a scrape's interval, as most people have it.
const peakSpan = 15 * time.Second

// peakSheet is what ports carried in their busiest moments.
func peakSheet(t *sheet, m *manager.Manager, peaks []inspect.PortPeak) {
	const name = "softib_port_peak_bytes_per_second"
	t.family(name, fmt.Sprintf("The most that a port has carried in any %s of the last %s; ports that were "+
		"idle are left out.", plain(inspect.BurstWindow), plain(peakSpan)), gauge)
	scale := float64(time.Second / inspect.BurstWindow)
	for _, p := range peaks {
		n := m.Graph().Nodes[p.Port.Node]
		guid, port := guidText(n.GUID), fmt.Sprint(p.Port.Port)
		t.add(name, float64(p.Xmit)*scale, "guid", guid, "port", port, "node", n.Name, "direction", "transmit")
		t.add(name, float64(p.Rcv)*scale, "guid", guid, "port", port, "node", n.Name, "direction", "receive")
	}
}

// plain is a duration in words.
func plain(d time.Duration) string {
	return strings.NewReplacer("ms", " ms", "s", " s").Replace(d.String())
}

// adminSheet is how the subnet administrator answers the manager's own queries.
func adminSheet(t *sheet, m *manager.Manager) {
	l := m.AdminLatency()
	const name = "softib_sa_latency_seconds"
	t.family(name, "How long the subnet administrator took to answer a query for a path, asked from a host "+
		"now and then.", histogram)
	var sum uint64
	for i, b := range manager.AdminBounds {
		sum += l.Buckets[i]
		t.add(name+"_bucket", float64(sum), "le", number(b.Seconds()))
	}
	t.add(name+"_bucket", float64(l.Count), "le", "+Inf")
	t.add(name+"_sum", l.Sum.Seconds())
	t.add(name+"_count", float64(l.Count))
	t.one("softib_sa_failures_total", "Such queries that got no answer, or no path.", counter, float64(l.Failed))
}
