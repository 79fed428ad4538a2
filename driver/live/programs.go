package live

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"softib/driver/endpoint"
	"softib/node/hca"
	"softib/node/inspect"
	"softib/proto/ib"
)

// What adapters know and ports do not. Each attached program writes it to its ledger (endpoint.Ledger), which is read
// here when somebody asks and when the program ends. What was read is the host's from then on, so that a host's
// counters outlive its programs and never go backwards. A program that is killed takes with it what it has counted in
// its last millisecond.

// pathsMax bounds how many pairs of hosts have a histogram.
const pathsMax = 4096

type hostPair struct{ from, to *Host }

type pathTimes struct {
	times endpoint.Histogram
	last  time.Time
}

// program is what the fabric knows of a process's program.
type program struct {
	Caller
	name  string
	since time.Time

	// Guarded by the fabric's lock: what was read of the ledger, which is in the host's total by now.
	counted hca.Stats
	told    endpoint.Seen
	paths   endpoint.PathReader
	ends    map[ib.LID]*Host // where its ways end
	burst   uint64           // how many of its bursts were read
}

func newProgram(c Caller) program {
	p := program{Caller: c, since: time.Now(), ends: map[ib.LID]*Host{}}
	p.Library = printable(c.Library)
	switch {
	case c.unlisted:
	case c.PID == daemon:
		p.name = ownName()
	default:
		p.name = processName(c.PID)
	}
	return p
}

var ownName = sync.OnceValue(func() string { return processName(daemon) })

// processName is what the kernel calls a process; nothing if there is none.
func processName(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return printable(strings.TrimSuffix(string(b), "\n"))
}

// printable is what can be shown of a text that a program has chosen: it ends up on terminals and in labels.
func printable(s string) string {
	const most = 64
	s = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if r := []rune(s); len(r) > most {
		s = string(r[:most])
	}
	return s
}

// fold reads the process's ledger. The fabric's lock is held.
func (p *Process) fold() {
	if p.unlisted {
		return
	}
	before := p.counted
	p.share.Ledger.Counted(&p.counted)
	endpoint.AddStats(&p.host.totals.Stats, &p.counted, &before)
	p.share.Ledger.Told(&p.told, p.host.eng.AddTold)
	now := time.Now()
	looked := false
	p.share.Ledger.Times(&p.paths, func(lid ib.LID, h *endpoint.Histogram) {
		if !looked {
			looked = true
			p.findEnds()
		}
		if to := p.ends[lid]; to != nil {
			p.f.addTimes(hostPair{p.host, to}, h, now)
		}
	})
}

// findEnds looks where the process's ways end. What ends nowhere now is remembered as it was.
func (p *Process) findEnds() {
	for k, pr := range p.routes {
		switch {
		case pr.rt == nil || k.DLID.IsMulticast():
		case len(pr.rt.hops) > 0:
			if h := pr.rt.end(); h != nil && len(pr.rt.losses) == 0 {
				p.ends[k.DLID] = h
			}
		case len(pr.chans) > 0:
			p.ends[k.DLID] = p.host // within the adapter
		}
	}
}

// addTimes counts times of a path. Where there are too many, the one that nothing was counted in for the longest is
// forgotten.
func (f *Fabric) addTimes(k hostPair, h *endpoint.Histogram, now time.Time) {
	t := f.paths[k]
	if t == nil {
		if len(f.paths) >= pathsMax {
			f.forgetPaths()
		}
		t = &pathTimes{}
		f.paths[k] = t
	}
	t.times.Merge(h)
	t.last = now
}

// forgetPaths makes room: an eighth goes at once, since finding out which is work.
func (f *Fabric) forgetPaths() {
	all := slices.Collect(maps.Keys(f.paths))
	slices.SortFunc(all, func(a, b hostPair) int { return f.paths[a].last.Compare(f.paths[b].last) })
	for _, k := range all[:pathsMax/8] {
		delete(f.paths, k)
	}
}

func (f *Fabric) foldAll() {
	for _, p := range f.procs {
		p.fold()
	}
}

// Programs are those that are attached, by host and by when they came.
func (f *Fabric) Programs() []inspect.ProgramStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.foldAll()
	procs := slices.DeleteFunc(slices.Clone(f.procs), func(p *Process) bool { return p.unlisted })
	slices.SortStableFunc(procs, func(a, b *Process) int { return cmp.Compare(a.host.index, b.host.index) })
	all := make([]inspect.ProgramStats, len(procs))
	for i, p := range procs {
		all[i] = inspect.ProgramStats{
			Host: p.host.Name(), PID: p.PID, Name: p.name, Library: p.Library, Since: p.since, Stats: p.counted,
			QPs: p.share.Ledger.QPs(),
		}
	}
	return all
}

// HostStats are the hosts that programs are on, or were, in the graph's order.
func (f *Fabric) HostStats() (all []inspect.HostStats) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.foldAll()
	for _, h := range f.hosts {
		if h.attached {
			all = append(all, h.stats())
		}
	}
	return all
}

// StatsAt is what the programs of the host have counted that is a node of the graph; false if that is no host.
func (f *Fabric) StatsAt(node int) (inspect.HostStats, bool) {
	if n := f.node(node); n != nil && n.host != nil {
		return n.host.Stats(), true
	}
	return inspect.HostStats{}, false
}

// Stats is what the host's programs have counted.
func (h *Host) Stats() inspect.HostStats {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	h.foldPrograms()
	return h.stats()
}

// foldPrograms reads the ledgers of the host's programs. The fabric's lock is held.
func (h *Host) foldPrograms() {
	for _, p := range h.procs {
		p.fold()
	}
}

func (h *Host) stats() inspect.HostStats {
	s := h.totals
	s.Host, s.Node = h.Name(), h.topo.Index
	for _, p := range h.procs {
		if p.unlisted {
			continue
		}
		s.Programs++
		qps := p.share.Ledger.QPs()
		for t := range qps {
			for st, n := range qps[t] {
				s.QPs[t][st] += n
			}
		}
	}
	return s
}

// PathLatencies are the pairs of hosts between which times were taken, by name of the first, then the second. There are
// so many at most; those that were used most recently are kept.
func (f *Fabric) PathLatencies() []inspect.PathLatency {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.foldAll()
	keys := slices.SortedFunc(maps.Keys(f.paths), func(a, b hostPair) int {
		return cmp.Or(cmp.Compare(a.from.index, b.from.index), cmp.Compare(a.to.index, b.to.index))
	})
	all := make([]inspect.PathLatency, len(keys))
	for i, k := range keys {
		t := *f.paths[k]
		all[i] = inspect.PathLatency{From: k.from.Name(), To: k.to.Name(), Times: &t.times, Last: t.last}
	}
	return all
}
