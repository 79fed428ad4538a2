package main

import (
	"fmt"
	"strings"
	"time"

	"softib/node/hca"
	"softib/operate/status"
)

func (s *statusText) printPrograms(t *terminal) {
	l := t.under("programs")
	if len(s.Programs) == 0 {
		l.say("none: softib exec HOST -- PROGRAM")
		return
	}
	l.few(len(s.Programs), "programs", func(i int) {
		for _, line := range programLines(&s.Programs[i], t, s.Version) {
			l.say("%s", line)
		}
	})
}

// programLines are what is said of a program: who it is and what it carries, what queue pairs it has, and what is
// wrong.
func programLines(p *status.Program, t *terminal, version string) []string {
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
	for st, n := range p.Errors { // tidy: order-free
		if st != hca.WCWRFlushErr.String() {
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
