package sm

import (
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/policy"
)

// rig is a manager at the first host of a world, driven step by step.
type rig struct {
	t    testing.TB
	w    *world
	m    *Manager
	now  ib.Time
	from topo.PortRef
	log  []string
	// lose, if there, decides whether a datagram is lost: before its node sees it, or (true, true) its answer.
	lose func(node int, v mad.View) (request, answer bool)
	// edit, if there, changes answers.
	edit func(node int, v mad.View)
	sets int // Set requests that were answered
}

func newRig(t testing.TB, w *world, cfg Config) *rig {
	t.Helper()
	h := w.g.Hosts()[0]
	r := &rig{t: t, w: w, m: New(cfg), from: topo.PortRef{Node: h.Index, Port: firstPort(h)}}
	r.m.Start(0)
	return r
}

// settle drives the manager until it has nothing to do and its subnet is up.
func (r *rig) settle() {
	r.t.Helper()
	r.run()
	if r.m.Subnet() == nil || r.m.State() != mad.SMMaster {
		r.t.Fatalf("the subnet is not up:\n%s", strings.Join(r.log, "\n"))
	}
}

// run drives the manager until it has nothing to do at the present time.
func (r *rig) run() {
	r.t.Helper()
	var send Send
	var resp [mad.Size]byte
	for step := 0; ; step++ {
		if step > 50_000_000 {
			r.t.Fatal("the manager does not come to rest")
		}
		if r.now >= r.m.NextDeadline() {
			r.m.HandleTimer(r.now)
		}
		if !r.m.PollSend(r.now, &send) {
			if len(r.m.out) > 0 {
				r.t.Fatal("PollSend reports that there is nothing to send, and there is: its driver would sleep")
			}
			j, ok := r.m.PollJob()
			if !ok {
				break
			}
			j.Run()
			r.m.HandleJob(r.now, j)
			continue
		}
		if send.Timeout == 0 {
			continue
		}
		if r.carry(&send, &resp) {
			r.m.HandleReply(r.now, send.Cookie, resp[:])
		} else {
			r.m.HandleReply(r.now, send.Cookie, nil)
		}
	}
	for e, ok := r.m.PollEvent(); ok; e, ok = r.m.PollEvent() {
		r.log = append(r.log, e.String())
	}
}

// pass lets time go by, deadline after deadline.
func (r *rig) pass(d ib.Time) {
	r.t.Helper()
	for end := r.now + d; ; {
		next := r.m.NextDeadline()
		if next > end {
			r.now = end
			r.run()
			return
		}
		r.now = max(r.now, next)
		r.run()
	}
}

func (r *rig) carry(send *Send, resp *[mad.Size]byte) bool {
	lost := false
	meet := func(node int, in ib.PortNum, req []byte) bool {
		request := false
		if r.lose != nil {
			request, lost = r.lose(node, mad.View(req))
		}
		if request || node == r.w.mute {
			return false
		}
		r.w.mads++
		_, ok := r.w.agents[node].HandleMAD(r.now, in, req, resp[:])
		if ok && mad.View(req).Method() == mad.MethodSet {
			r.sets++
		}
		if ok && r.edit != nil {
			r.edit(node, mad.View(resp[:]))
		}
		return ok
	}
	if send.Env.LID == ib.LIDPermissive {
		ok := walk(r.w.g, fabricFunc(func(node int, in ib.PortNum, req,
			_ *[mad.Size]byte) bool {
			return meet(node, in, req[:])
		}), r.from, send.Data, resp)
		return ok && !lost
	}
	node, port, ok := r.w.byLID(send.Env.LID)
	return ok && meet(node, port, send.Data) && !lost
}

type fabricFunc func(node int, in ib.PortNum, req, resp *[mad.Size]byte) bool

func (f fabricFunc) SMP(node int, in ib.PortNum, req, resp *[mad.Size]byte) bool {
	return f(node, in, req, resp)
}

// byLID finds the port that has an address.
func (w *world) byLID(l ib.LID) (int, ib.PortNum, bool) {
	for i := range w.g.Nodes {
		if s := w.switches[i]; s != nil {
			if lid, _ := s.LID(); lid == l {
				return i, 0, true
			}
			continue
		}
		for p := 1; p < len(w.links[i]); p++ {
			if w.hcas[i].Port(ib.PortNum(p)).LID == l {
				return i, ib.PortNum(p), true
			}
		}
	}
	return 0, 0, false
}

// logged reports whether a line of the log has all of some words.
func (r *rig) logged(words ...string) bool {
	for _, line := range r.log {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return true
		}
	}
	return false
}

// get asks the agent of a node.
func (r *rig) get(class mad.Class, node int, in ib.PortNum, attr mad.AttrID, mod uint32, key uint64) mad.View {
	r.t.Helper()
	var req, resp [mad.Size]byte
	h := mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: class, ClassVersion: class.Info().Version,
		Method: mad.MethodGet, AttributeID: attr, AttributeModifier: mod}
	h.Append(req[:0])
	if class != mad.ClassCC {
		mad.View(req[:]).SetMKey(key)
	}
	if _, ok := r.w.agents[node].HandleMAD(r.now, in, req[:], resp[:]); !ok {
		r.t.Fatalf("%s: no answer to %s", r.w.g.Nodes[node].Name, mad.AttrName(class, attr))
	}
	if v := mad.View(resp[:]); v.Status() != mad.StatusOK {
		r.t.Fatalf("%s: %s: %v", r.w.g.Nodes[node].Name, mad.AttrName(class, attr), v.Status())
	}
	return mad.View(resp[:])
}

func parts(t testing.TB, text string) policy.Partitions {
	t.Helper()
	p, _, err := policy.ParsePartitions("partitions.conf", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}
