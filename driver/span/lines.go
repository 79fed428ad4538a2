package span

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"softib/driver/endpoint"
	"softib/driver/live"
	"softib/proto/ib"
	"softib/proto/topo"
)

// Lines from machine to machine. The machine of who sends asks the next one on the way, which looks at its stretch and
// asks the one after it, until one has who receives. So a machine knows of a line from the one that its packets would
// come from, and nobody gets past a machine that does not agree. Then the two at its ends agree upon keys, by the
// connection that they have with each other: those in between carry nothing and could not read it.
//
// Whoever sees that a line does not hold any more lifts it, and tells those before and behind it.

// layAsked asks a machine for its stretch of a line.
type layAsked struct {
	lineName
	Key live.LineKey
	In  topo.PortRef // where it comes in
	VL  ib.VL
}

// lineName is what a line is called: the machine that it begins at, and its number there.
type lineName struct {
	Origin string
	Number uint32
}

// meetAsked is what the machine of who sends tells that of who receives.
type meetAsked struct {
	Number       uint32
	End          live.LineEnd
	Secret, Back []byte
}

// sentTold is what has gone by a line.
type sentTold struct {
	lineName
	Pkts, Words uint64
}

// Questions about lines.
const (
	opLay  op[layAsked, string]        = "line.lay" // the answer is the machine that has its end
	opMeet op[meetAsked, live.LineEnd] = "line.meet"
	opLift op[[]lineName, struct{}]    = "line.lift"
	opSent op[[]sentTold, struct{}]    = "line.sent"
)

func init() {
	answerFrom(opLay, (*Fabric).layStretch)
	answerFrom(opMeet, (*Fabric).meet)
	answerFrom(opLift, func(f *Fabric, _ context.Context, from string, names []lineName) (none struct{}, err error) {
		for _, n := range names {
			f.lines.lift(n, from)
		}
		return none, nil
	})
	answerFrom(opSent, (*Fabric).countSent)
}

// laid is a line as far as this machine has to do with it.
type laid struct {
	lineName
	key      live.LineKey
	up, down string        // the machines before and behind this one; empty at the ends
	stretch  *live.Stretch // nil where it begins
	line     *live.Line    // its end, if that is here
	end      string        // of one that begins here, the machine that has its other end; empty before there is one
	begun    time.Time
	// Of what has gone by it, what the machine behind this one was not told yet.
	pkts, words uint64
}

// lines is all of them.
type lines struct {
	f       *Fabric
	mu      sync.Mutex // taken after the fabric's lock
	by      map[lineName]*laid
	news    chan struct{}  // tables have changed
	laid    map[string]int // that begin here, ever, by the machine of the other end
	lifted  map[string][]lineName
	lifting chan struct{} // somebody is to be told
}

const (
	// layTime is how long other machines may take to agree: a program waits.
	layTime = time.Second
	// sentEvery is how often what has gone by is told.
	sentEvery = 100 * time.Millisecond
	// linesMax bounds the lines through one machine.
	linesMax = 1 << 16
)

func (x *lines) init(f *Fabric) {
	x.f, x.by, x.laid, x.lifted = f, map[lineName]*laid{}, map[string]int{}, map[string][]lineName{}
	x.news, x.lifting = make(chan struct{}, 1), make(chan struct{}, 1)
}

// ring makes sure that somebody looks.
func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// Socket makes the socket of a process.
func (x *lines) Socket() (fd int, at netip.AddrPort, mtu int, err error) {
	return x.f.cfg.Machines.Socket()
}

// Changed says that tables have.
func (x *lines) Changed() { ring(x.news) }

// Lay asks the machines on the way of a line that begins here.
func (x *lines) Lay(l *live.Line) (end live.LineEnd, err error) {
	f := x.f
	n := &laid{lineName: lineName{f.cfg.Here, l.ID}, key: l.LineKey, line: l, down: f.beyond(l.Cable),
		begun: time.Now()}
	if err := x.add(n); err != nil {
		return end, err
	}
	ctx, cancel := context.WithTimeout(f.ctx, layTime)
	defer cancel()
	c := f.at[l.Cable]
	in := c.A
	if f.elsewhere(in.Node) == "" {
		in = c.B
	}
	last, err := askFor(ctx, f, n.down, opLay, layAsked{n.lineName, l.LineKey, in, l.VL})
	if err == nil && !f.cfg.Machines.Passes(ctx, last) {
		err = fmt.Errorf("span: datagrams of programs do not pass to machine %s: %w", last, live.ErrNoLine)
	}
	if err == nil {
		end, err = askFor(ctx, f, last, opMeet, meetAsked{l.ID, l.Near, l.Secret[:], l.Back[:]})
	}
	if err == nil && !x.met(n, last) {
		err = fmt.Errorf("span: it was lifted at once: %w", live.ErrNoLine)
	}
	if err != nil {
		x.lift(n.lineName, "")
	}
	return end, err
}

// Lift is for a line one end of which is no more.
func (x *lines) Lift(l *live.Line) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, n := range x.by {
		if n.line == l {
			x.remove(name, "")
			return
		}
	}
}

// Sent is for what has gone by a line that begins here.
func (x *lines) Sent(l *live.Line, pkts, words uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := x.by[lineName{x.f.cfg.Here, l.ID}]; n != nil {
		n.pkts, n.words = n.pkts+pkts, n.words+words
	}
}

func (x *lines) add(n *laid) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.by[n.lineName] != nil || len(x.by) >= linesMax {
		return fmt.Errorf("span: %d lines, or that one is there: %w", len(x.by), live.ErrNoLine)
	}
	x.by[n.lineName] = n
	return nil
}

// met notes which machine has the other end of a line that begins here, and reports whether it is still there.
func (x *lines) met(n *laid, end string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	n.end = end
	x.laid[end]++
	return x.by[n.lineName] == n
}

// remove forgets a line and has the machines before and behind this one told, but for who has said it. The lock is
// held.
func (x *lines) remove(name lineName, said string) (n *laid) {
	if n = x.by[name]; n == nil {
		return nil
	}
	delete(x.by, name)
	for _, m := range [...]string{n.up, n.down} {
		if m != "" && m != said {
			x.lifted[m] = append(x.lifted[m], name)
			ring(x.lifting)
		}
	}
	return n
}

// lift ends a line, which a machine has said; empty is this one. Only who has to do with it can.
func (x *lines) lift(name lineName, said string) {
	x.mu.Lock()
	n := x.by[name]
	if n != nil && said != "" && said != n.up && said != n.down {
		n = nil
	}
	if n != nil {
		x.remove(name, said)
	}
	x.mu.Unlock()
	if n != nil && n.line != nil {
		x.f.LineGone(n.line)
	}
}

// lose lifts all lines that lead to a machine or come from there.
func (x *lines) lose(machine string) {
	for _, n := range x.all() {
		if n.up == machine || n.down == machine || n.Origin == machine {
			x.lift(n.lineName, "")
		}
	}
}

// all are the lines as they are now.
func (x *lines) all() (list []laid) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, n := range x.by {
		list = append(list, *n)
	}
	return list
}

// Lines counts the programs' ways that lead directly to another machine: how many there are, and how many were ever
// laid.
func (f *Fabric) Lines(machine string) (now, laid int) {
	x := &f.lines
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, n := range x.by {
		if n.Origin == f.cfg.Here && n.end == machine {
			now++
		}
	}
	return now, x.laid[machine]
}

// layStretch agrees to a line that comes from a machine, if the way of its packets is as that says.
func (f *Fabric) layStretch(ctx context.Context, from string, q layAsked) (end string, err error) {
	k := &q.Key
	if q.Origin != from && !f.relays[from] || q.Origin == f.cfg.Here || k.From.Node < 0 ||
		k.From.Node >= len(f.cfg.Where) || f.cfg.Where[k.From.Node] != q.Origin ||
		f.cfg.Where[f.cfg.Graph.Peer(q.In).Node] != from || !f.IsHere(q.In.Node) {
		return "", fmt.Errorf("span: machine %s speaks for what it does not have: %w", from, live.ErrNoLine)
	}
	s, err := f.NewStretch(q.In, q.VL, k.Way)
	if err != nil {
		return "", err
	}
	n := &laid{lineName: q.lineName, key: q.Key, up: from, stretch: s, begun: time.Now()}
	in, vl, leaves := s.Leaves()
	if leaves {
		n.down = f.cfg.Where[in.Node]
	}
	if err := f.lines.add(n); err != nil || !leaves {
		return f.cfg.Here, err
	}
	if end, err = askFor(ctx, f, n.down, opLay, layAsked{q.lineName, q.Key, in, vl}); err != nil {
		f.lines.lift(q.lineName, "")
	}
	return end, err
}

// meet makes the end of a line that was agreed to.
func (f *Fabric) meet(_ context.Context, from string, q meetAsked) (end live.LineEnd, err error) {
	x := &f.lines
	x.mu.Lock()
	n := x.by[lineName{from, q.Number}]
	if n != nil && (n.line != nil || n.stretch == nil || n.down != "") {
		n = nil
	}
	x.mu.Unlock()
	origin, ok := f.originOf(n)
	l := &live.Line{Far: q.End, Origin: origin}
	if n == nil || !ok || len(q.Secret) != len(l.Secret) || len(q.Back) != len(l.Back) {
		return end, fmt.Errorf("span: no line of machine %s ends here: %w", from, live.ErrNoLine)
	}
	l.LineKey, l.Secret, l.Back = n.key, live.LineSecret(q.Back), live.LineSecret(q.Secret)
	if err := n.stretch.Receive(l); err != nil {
		return end, err
	}
	x.mu.Lock()
	gone := x.by[n.lineName] != n
	n.line = l
	x.mu.Unlock()
	if gone {
		f.LineGone(l)
		return end, fmt.Errorf("span: it was lifted: %w", live.ErrNoLine)
	}
	return l.Near, nil
}

// originOf is who sends by a line, as its machine has described the port.
func (f *Fabric) originOf(n *laid) (o endpoint.OriginPort, ok bool) {
	if n == nil {
		return o, false
	}
	p := f.mirror.port(n.key.From)
	if !p.known || !p.info.LID.IsUnicast() {
		return o, false // it will ask again
	}
	return endpoint.OriginPort{LID: p.info.LID, LMC: p.info.LMC, GIDs: slices.Clone(p.gids)}, true
}

// countSent counts what has gone by lines, and has it told on.
func (f *Fabric) countSent(_ context.Context, from string, all []sentTold) (none struct{}, err error) {
	x := &f.lines
	for _, s := range all {
		x.mu.Lock()
		n := x.by[s.lineName]
		if n != nil && n.up == from && n.stretch != nil {
			n.pkts, n.words = n.pkts+s.Pkts, n.words+s.Words
		} else {
			n = nil
		}
		x.mu.Unlock()
		if n != nil {
			n.stretch.Count(s.Pkts, s.Words)
		}
	}
	return none, nil
}

// tend looks after lines until the fabric is closed.
func (x *lines) tend() {
	f := x.f
	tick := time.NewTicker(sentEvery)
	defer tick.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-x.news:
			x.check()
		case <-x.lifting:
			x.tellLifted()
		case <-tick.C:
			f.SettleLines()
			x.tellSent()
		}
	}
}

// check lifts lines that do not hold any more, and those that nobody has come to.
func (x *lines) check() {
	for _, n := range x.all() {
		if n.stretch != nil && !n.stretch.Holds() {
			x.lift(n.lineName, "")
		}
	}
}

// tellLifted tells machines of lines that are no more.
func (x *lines) tellLifted() {
	x.mu.Lock()
	told := x.lifted
	x.lifted = map[string][]lineName{}
	x.mu.Unlock()
	for m, names := range told {
		x.f.wg.Go(func() { _, _ = ask(x.f, m, opLift, names) }) // one that is not reached has lost them all
	}
}

// tellSent tells the next machines what has gone by, and lifts what was begun and never met.
func (x *lines) tellSent() {
	told := map[string][]sentTold{}
	x.mu.Lock()
	for _, n := range x.by {
		if n.down != "" && n.pkts > 0 {
			told[n.down] = append(told[n.down], sentTold{n.lineName, n.pkts, n.words})
			n.pkts, n.words = 0, 0
		}
		if n.line == nil && n.down == "" && time.Since(n.begun) > 10*layTime {
			x.remove(n.lineName, "")
		}
	}
	x.mu.Unlock()
	for m, all := range told {
		x.f.wg.Go(func() { _, _ = ask(x.f, m, opSent, all) })
	}
}
