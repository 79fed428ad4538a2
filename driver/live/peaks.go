package live

import (
	"cmp"
	"slices"
	"time"

	"softib/driver/endpoint"
	"softib/node/inspect"
)

// Peaks. Programs write down how much they have sent by each way in each millisecond (endpoint.BurstWindow) of the
// machine's clock; added up over all programs and ways that is what each port on those ways had to carry in that
// millisecond. It is what was sent into the fabric: a way that is switched over a slow cable takes longer.

// It does not compile where programs write down other moments than operators read.
const _ = -uint64(inspect.BurstWindow ^ endpoint.BurstWindow)

// PeaksKept is how far back peaks are remembered.
const PeaksKept = peakSeconds * time.Second

const (
	peakSeconds = 64
	// burstDelay is how long after its end a window is added up: programs write late when they have no turn.
	burstDelay = 50
	// burstAge is how old a window may be that a program comes with.
	burstAge = 10_000
	// perSecond is how many windows a second has.
	perSecond = int64(time.Second / endpoint.BurstWindow)
	// How often ledgers are looked into while programs send, and while they do not.
	burstsOften, burstsSeldom = 250 * time.Millisecond, 2 * time.Second
)

// portPeaks is what is kept of a port: the peak of each of the last seconds, and the window that is being added up.
type portPeaks struct {
	seconds [peakSeconds]secondPeak
	out, in uint64 // words of the window
}

type secondPeak struct {
	second  int64
	out, in uint64 // words
}

// bursts is what was read from ledgers and is not added up yet, and the ports that have peaks, under the fabric's lock.
type bursts struct {
	pending []sentBurst
	list    []endpoint.Burst
	touched []*portState
	ports   []*portState // that have ever had one
	looking bool
}

type sentBurst struct {
	window int64
	words  uint64
	rt     *route
}

// foldBursts takes what a process has written since the last time, for the ways that it has now. The fabric's lock is
// held.
func (p *Process) foldBursts() int {
	if p.unlisted {
		return 0
	}
	b := &p.f.bursts
	now := endpoint.CurrentWindow()
	if b.list, p.burst, _ = p.share.Ledger.Bursts(b.list[:0], p.burst, now-burstAge, now); len(b.list) == 0 {
		return 0
	}
	ways := map[int]*route{}
	for _, pr := range p.routes {
		if pr.rt != nil {
			ways[pr.slot] = pr.rt
		}
	}
	for _, x := range b.list {
		if rt := ways[x.Slot]; rt != nil {
			b.pending = append(b.pending, sentBurst{x.Window, x.Words, rt})
		}
	}
	return len(b.list)
}

// addBursts adds up the windows that are over. The fabric's lock is held.
func (f *Fabric) addBursts() (some bool) {
	b := &f.bursts
	for _, p := range f.procs {
		some = p.foldBursts() > 0 || some
	}
	if len(b.pending) == 0 {
		return some
	}
	slices.SortFunc(b.pending, func(x, y sentBurst) int { return cmp.Compare(x.window, y.window) })
	over := endpoint.CurrentWindow() - burstDelay
	done := 0
	for done < len(b.pending) && b.pending[done].window <= over {
		w := b.pending[done].window
		for ; done < len(b.pending) && b.pending[done].window == w; done++ {
			f.addBurst(&b.pending[done])
		}
		f.endBurst(w)
	}
	b.pending = slices.Delete(b.pending, 0, done)
	return some
}

// addBurst adds what went by a way in a window to the ports on it.
func (f *Fabric) addBurst(x *sentBurst) {
	b := &f.bursts
	for _, hp := range x.rt.hops {
		k := hp.p.peaks
		if k == nil {
			k = &portPeaks{}
			hp.p.peaks = k
			b.ports = append(b.ports, hp.p)
		}
		if k.out == 0 && k.in == 0 {
			b.touched = append(b.touched, hp.p)
		}
		if hp.out {
			k.out += x.words
		} else {
			k.in += x.words
		}
	}
}

// endBurst makes the sums of a window count.
func (f *Fabric) endBurst(window int64) {
	second := window / perSecond
	for i, p := range f.bursts.touched {
		k := p.peaks
		s := &k.seconds[second%peakSeconds]
		if s.second < second {
			*s = secondPeak{second: second}
		}
		if s.second == second {
			s.out, s.in = max(s.out, k.out), max(s.in, k.in)
		}
		k.out, k.in = 0, 0
		f.bursts.touched[i] = nil
	}
	f.bursts.touched = f.bursts.touched[:0]
}

// Peaks are the ports that have carried something in the last while, of up to PeaksKept, and the most that each has in
// one inspect.BurstWindow, in the order of the graph. Reading takes nothing away from other readers. The last tenth of
// a second may be missing.
func (f *Fabric) Peaks(over time.Duration) (all []inspect.PortPeak) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addBursts()
	now := endpoint.CurrentWindow() / perSecond
	oldest := now - int64(min(max(over, 0), PeaksKept-time.Second)/time.Second)
	for _, p := range f.bursts.ports {
		x := inspect.PortPeak{Port: p.ref()}
		for _, s := range p.peaks.seconds {
			if s.second >= oldest && s.second <= now {
				x.Xmit, x.Rcv = max(x.Xmit, 4*s.out), max(x.Rcv, 4*s.in)
			}
		}
		if x.Xmit > 0 || x.Rcv > 0 {
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(a, b inspect.PortPeak) int {
		return cmp.Or(cmp.Compare(a.Port.Node, b.Port.Node), cmp.Compare(a.Port.Port, b.Port.Port))
	})
	return all
}

// lookAtBursts looks into ledgers, which do not hold more than some seconds. It ends with the last program.
func (f *Fabric) lookAtBursts() {
	timer := time.NewTimer(burstsOften)
	defer timer.Stop()
	for {
		select {
		case <-f.closing:
			return
		case <-timer.C:
		}
		wait := burstsSeldom
		f.mu.Lock()
		if f.addBursts() {
			wait = burstsOften
		}
		more := len(f.procs) > 0
		f.bursts.looking = more
		f.mu.Unlock()
		if !more {
			return
		}
		timer.Reset(wait)
	}
}
