package survey

import (
	"fmt"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet"
)

// Config says what to read and how patiently. Zero values mean the defaults.
type Config struct {
	Parts Parts
	// Window is how many questions may be under way: 256 by default.
	Window int
	// Timeout is how long to wait for an answer, each time: 200 ms by default; Retries is how often to ask again: 2 by
	// default, none if negative.
	Timeout ib.Time
	Retries int
	// MKey is the management key that goes with each question, unless Keys has those of single ports.
	MKey uint64
	Keys *subnet.Keys
	// LanesMax is up to how many questions lanes may take, 200,000 by default, and LevelsMax up to how many ways the
	// administrator is asked for, 200,000 by default. What would take more is not read at all.
	LanesMax, LevelsMax int
}

func (c *Config) fill() {
	or := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	or(&c.Window, 256)
	or(&c.Retries, 2)
	or(&c.LanesMax, 200_000)
	or(&c.LevelsMax, 200_000)
	c.Window, c.Retries = max(c.Window, 1), max(c.Retries, 0)
	if c.Timeout <= 0 {
		c.Timeout = 200 * ib.Millisecond
	}
}

// Send is a datagram that the engine wants to be sent. Its Data is valid until the next call to the engine.
type Send = madrpc.Message

// Stage is how far a survey is.
type Stage uint8

// Stages, in their order.
const (
	StageDiscover Stage = iota
	StageManagers
	StageClasses
	StageCounters
	StagePartitions
	StageTables
	StageLanes
	StageLevels
	StageDone
	NumStage
)

var stageNames = [NumStage]string{
	"discovering", "asking managers", "asking for performance management", "reading counters", "reading partitions",
	"reading forwarding tables",
	"reading lanes", "asking for service levels", "done",
}

func (s Stage) String() string {
	if s < NumStage {
		return stageNames[s]
	}
	return fmt.Sprintf("Stage(%d)", uint8(s))
}

// Progress is how far a survey is: of its present stage Done of Total questions, as far as the total is known.
type Progress struct {
	Stage       Stage
	Done, Total int
}

// task is one question.
type task struct {
	what ask
	port ib.PortNum
	node int32
	mod  uint32
}

// ask tells questions apart.
type ask uint8

const (
	askSelf ask = iota
	askNode     // who is behind a port
	askDesc
	askSwitch
	askPort
	askMlnx
	askOwnKeys
	askManager
	askClass // what performance management a node has
	askNarrow
	askWide
	askKeys
	askLFT
	askSLtoVL
	askVLArb
	askLevels
	numAsk
)

// attrs is what each question asks for.
var attrs = [numAsk]struct {
	class mad.Class
	id    mad.AttrID
}{
	askSelf: {mad.ClassSMDirect, mad.AttrNodeInfo}, askNode: {mad.ClassSMDirect, mad.AttrNodeInfo},
	askDesc: {mad.ClassSMDirect, mad.AttrNodeDescription}, askSwitch: {mad.ClassSMDirect, mad.AttrSwitchInfo},
	askMlnx: {mad.ClassSMDirect, mad.AttrMlnxExtPortInfo},
	askPort: {mad.ClassSMDirect, mad.AttrPortInfo}, askOwnKeys: {mad.ClassSMDirect, mad.AttrPKeyTable},
	askManager: {mad.ClassSMDirect, mad.AttrSMInfo},
	askClass:   {mad.ClassPerf, mad.AttrClassPortInfo}, askNarrow: {mad.ClassPerf, mad.AttrPortCounters},
	askWide: {mad.ClassPerf, mad.AttrPortCountersExtended},
	askKeys: {mad.ClassSMDirect, mad.AttrPKeyTable}, askLFT: {mad.ClassSMDirect, mad.AttrLFT},
	askSLtoVL: {mad.ClassSMDirect, mad.AttrSLtoVL}, askVLArb: {mad.ClassSMDirect, mad.AttrVLArb},
	askLevels: {mad.ClassSA, mad.AttrPathRecord},
}

// Engine makes a survey. It is driven by one caller at a time.
type Engine struct {
	cfg   Config
	s     *Survey
	stage Stage

	tasks    []task // of the stage
	at       int    // those before are sent
	asked    madrpc.Asked[task]
	answered int // in this stage
	buf      [mad.Size]byte

	nodes []memory // by node
	found discovery
	perf  perfState
}

// memory is what the engine knows of a node beside the survey.
type memory struct {
	own     bool // the node is this engine's to change
	asked   bool // description and ports
	strikes uint8
	// behind is what answers behind each port, of switches and of the asker's own node.
	behind []behind
	perf   perfCaps
}

// strikesMax is after how many questions in succession without an answer a node is asked no more in a stage: a node
// that is dead for one class would make everybody wait for each of its blocks.
const strikesMax = 3

// New makes an engine that looks at everything.
func New(cfg Config) *Engine {
	cfg.fill()
	e := &Engine{cfg: cfg, s: &Survey{From: topo.PortRef{Node: None}, Parts: cfg.Parts}}
	e.found.begin()
	e.push(task{what: askSelf, node: None})
	return e
}

// Again makes an engine that reads parts of a survey anew and leaves the rest as it was. The survey that it gives
// shares with the old one what was not read; gaps and questions of both are in it.
func Again(s *Survey, cfg Config) *Engine {
	cfg.fill()
	c := *s
	c.Parts |= cfg.Parts
	c.Nodes = append([]*Node(nil), s.Nodes...)
	c.Gaps = append([]Gap(nil), s.Gaps...)
	e := &Engine{cfg: cfg, s: &c, nodes: make([]memory, len(c.Nodes))}
	for i, p := range s.perf {
		if p.known {
			e.nodes[i].perf = p
		}
	}
	e.perf.pkeyIndex = defaultKeyAt(c.Nodes, c.From)
	if len(c.Nodes) == 0 {
		e.stage = StageDone
		return e
	}
	e.advance()
	return e
}

// Done reports whether all has been read.
func (e *Engine) Done() bool { return e.stage == StageDone }

// Survey is what was found; complete once Done.
func (e *Engine) Survey() *Survey { return e.s }

// Progress is how far the engine is.
func (e *Engine) Progress() Progress {
	return Progress{e.stage, e.answered, max(len(e.tasks), e.answered)}
}

func (e *Engine) push(t task) { e.tasks = append(e.tasks, t) }

// PollSend fills in the next question, if there is one and it may be sent now.
func (e *Engine) PollSend(now ib.Time, out *Send) bool {
	e.clock(now)
	for e.stage != StageDone {
		if e.asked.Len() >= e.cfg.Window {
			return false
		}
		if e.at == len(e.tasks) {
			if e.asked.Len() > 0 {
				return false
			}
			e.quiet()
			continue
		}
		t := e.tasks[e.at]
		e.at++
		if t.node >= 0 && e.nodes[t.node].strikes >= strikesMax && e.stage != StageDiscover {
			e.answered++
			e.gap(t, mad.StatusOK, "")
			e.skipped(t)
			continue
		}
		if !e.write(t, out) {
			e.answered++
			continue
		}
		e.s.Asked++
		return true
	}
	return false
}

func (e *Engine) clock(now ib.Time) {
	if e.s.Began == 0 {
		e.s.Began = now
	}
	e.s.Ended = max(e.s.Ended, now)
}

// write makes the datagram of a task; false if there is none to send.
func (e *Engine) write(t task, out *Send) bool {
	a := attrs[t.what]
	*out = Send{Timeout: e.cfg.Timeout, Retries: e.cfg.Retries}
	clear(e.buf[:])
	switch a.class {
	case mad.ClassSMDirect:
		route, ok := e.route(t)
		if !ok {
			return false
		}
		out.Env = mad.Envelope{LID: ib.LIDPermissive, QPN: ib.QPNSMI}
		b, err := (&mad.SMP{Method: mad.MethodGet, Attr: a.id, Modifier: t.mod, MKey: e.key(t), Directed: true,
			Path: route}).Append(e.buf[:0])
		if err != nil {
			return false
		}
		out.Data = b
	case mad.ClassPerf:
		out.Data = e.perfRequest(t, &out.Env)
	case mad.ClassSA:
		out.Data = e.levelsRequest(t, &out.Env)
		out.Timeout *= 10 // a table takes a while to make
	}
	out.Cookie = e.asked.Put(t)
	mad.View(out.Data).SetTID(madrpc.TransactionOf(out.Cookie))
	return true
}

// key is the M_Key for a question.
func (e *Engine) key(t task) uint64 {
	switch {
	case e.cfg.Keys == nil:
		return e.cfg.MKey
	case t.what == askSelf:
		s := e.cfg.Keys.Subnet
		return e.cfg.Keys.Of(s.Port(s.Self).GUID)
	case t.what == askNode:
		return e.cfg.Keys.Behind(e.s.Nodes[t.node].Info.NodeGUID, t.port)
	}
	n := e.s.Nodes[t.node]
	port := t.port
	if !n.IsSwitch() && port == 0 {
		port = n.Info.LocalPortNum // it is asked by the port that it was found at
	}
	return e.cfg.Keys.Port(n.Info.NodeGUID, port)
}

// HandleReply takes the answer to a question, nil if there was none.
func (e *Engine) HandleReply(now ib.Time, cookie uint64, data []byte) {
	e.clock(now)
	t, ok := e.asked.Take(cookie)
	if !ok {
		return
	}
	e.answered++
	least := mad.Size
	if attrs[t.what].class == mad.ClassSA {
		least = mad.SADataOff // put together from segments
	}
	if len(data) < least {
		if data != nil {
			e.gap(t, mad.StatusOK, fmt.Sprintf("an answer of %d bytes", len(data)))
		} else {
			e.gap(t, mad.StatusOK, "")
		}
		e.strike(t)
		e.failed(t)
		return
	}
	if t.node >= 0 {
		e.nodes[t.node].strikes = 0
	}
	v := mad.View(data)
	if s := v.Status(); s != mad.StatusOK && !(t.what == askLevels && s == mad.StatusSANoRecords) {
		e.gap(t, s, "")
		e.failed(t)
		return
	}
	switch attrs[t.what].class {
	case mad.ClassPerf:
		e.perfReply(now, t, data[mad.PMDataOff:][:mad.PMDataLen])
	case mad.ClassSA:
		e.levelsReply(t, data)
	default:
		e.smpReply(t, data[mad.SMPDataOff:][:mad.SMPDataLen])
	}
}

func (e *Engine) strike(t task) {
	if t.node >= 0 && e.nodes[t.node].strikes < strikesMax && t.what != askNode {
		e.nodes[t.node].strikes++
	}
}

// gap notes a question without a good answer.
func (e *Engine) gap(t task, s mad.Status, nonsense string) {
	if t.what == askMlnx {
		return // nobody has to answer what the standard does not have
	}
	e.s.GapCount++
	if len(e.s.Gaps) < GapsMax {
		a := attrs[t.what]
		e.s.Gaps = append(e.s.Gaps, Gap{At: topo.PortRef{Node: int(t.node), Port: t.port}, Class: a.class, Attr: a.id,
			Status: s, Nonsense: nonsense})
	}
}

// smpReply takes a good answer of subnet management.
func (e *Engine) smpReply(t task, data []byte) {
	switch t.what {
	case askSelf, askNode, askDesc, askSwitch, askPort, askMlnx, askOwnKeys:
		e.discovered(t, data)
	case askManager:
		var info mad.SMInfo
		if _, err := info.Parse(data); err == nil {
			e.edit(t.node).Ports[t.port].Manager = &info
		}
	default:
		e.tableReply(t, data)
	}
}

// failed takes the news that a question has no good answer.
func (e *Engine) failed(t task) {
	switch attrs[t.what].class {
	case mad.ClassPerf:
		e.perfFailed(t)
	case mad.ClassSMDirect:
		if e.stage == StageDiscover {
			e.undiscovered(t)
		} else {
			e.tableFailed(t)
		}
	}
}

// skipped is failed for a question that was not asked.
func (e *Engine) skipped(t task) {
	if attrs[t.what].class == mad.ClassSMDirect {
		e.tableFailed(t)
	}
}

// quiet is called when nothing of the stage is left to send or to wait for.
func (e *Engine) quiet() {
	if e.stage == StageDiscover && e.resolve() {
		return
	}
	if e.stage == StageDiscover && len(e.s.Nodes) == 0 {
		e.stage = StageDone // our own port does not answer: the gap says so
		return
	}
	e.advance()
}

// advance goes on to the next stage that has something to ask.
func (e *Engine) advance() {
	for e.stage != StageDone {
		e.stage++
		e.tasks, e.at, e.answered = e.tasks[:0], 0, 0
		for i := range e.nodes {
			e.nodes[i].strikes = 0
		}
		want := func(p Parts) bool { return e.cfg.Parts&p != 0 }
		switch e.stage {
		case StageManagers:
			if want(Managers) {
				e.listManagers()
			}
		case StageClasses:
			if want(Counters) {
				e.listClasses()
			}
		case StageCounters:
			if want(Counters) {
				e.listCounters()
			}
		case StagePartitions:
			if want(Partitions) {
				e.listPartitions()
			}
		case StageTables:
			if want(Tables) {
				e.listTables()
			}
		case StageLanes:
			if want(Lanes) {
				e.listLanes()
			}
		case StageLevels:
			if want(Levels) {
				e.listLevels()
			}
		}
		if len(e.tasks) > 0 {
			return
		}
	}
	e.finish()
}

// edit is a node that may be changed: a copy, if an earlier survey has it too.
func (e *Engine) edit(i int32) *Node {
	if !e.nodes[i].own {
		n := *e.s.Nodes[i]
		n.Ports = append([]Port(nil), n.Ports...)
		e.s.Nodes[i] = &n
		e.nodes[i].own = true
	}
	return e.s.Nodes[i]
}

// finish tidies up what the tables were read into.
func (e *Engine) finish() {
	e.s.perf = make([]perfCaps, len(e.nodes))
	for i, n := range e.s.Nodes {
		e.s.perf[i] = e.nodes[i].perf
		if !e.nodes[i].own {
			continue
		}
		for p := range n.Ports {
			keys := n.Ports[p].PKeys
			for len(keys) > 0 && !keys[len(keys)-1].IsValid() {
				keys = keys[:len(keys)-1]
			}
			n.Ports[p].PKeys = keys
		}
	}
}

func portName(n *Node, p ib.PortNum) string {
	if p == 0 {
		return n.Name
	}
	return fmt.Sprintf("%s[%d]", n.Name, p)
}
