package attach

import (
	"slices"

	"softib/driver/endpoint"
	"softib/driver/line"
	"softib/node/tunnel"
	"softib/proto/ib"
	"softib/proto/wire"
	"softib/verbs/attach/proto"
)

// lines are the process's ways to processes on other machines.
type lines struct {
	*line.Set
	watcher *endpoint.Watcher
	plugged bool // the endpoint has them
}

// takeLine takes in one end of a tunnel, and with the first one the socket of all; it reports whether it has kept that.
func (d *Device) takeLine(m *proto.Line, fds []int) (kept bool) {
	if d.lines == nil { // only who listens to the daemon gets here
		if len(fds) != 1 {
			return false
		}
		w, err := endpoint.NewWatcher(d.page)
		if err != nil {
			return false
		}
		set := line.New(fds[0], func(id uint32) {
			d.member.Later(func() { _ = d.conn.Send(&proto.Message{Dead: id}) })
		})
		w.Watch(set.FD())
		d.mu.Lock()
		d.lines = &lines{Set: set, watcher: w}
		d.mu.Unlock()
		kept = true
	}
	cfg, ok := lineConfig(m)
	if !ok {
		return kept
	}
	x := d.lines
	var l *line.Line
	open := func(now ib.Time) (endpoint.Line, error) {
		if !x.plugged {
			x.plugged = true
			d.member.SetLines(x, x.watcher)
		}
		var err error
		l, err = x.Add(now, cfg)
		return l, err
	}
	free := func() {
		d.member.Do(func(now ib.Time) {
			if l != nil {
				x.End(now, l)
			}
		})
	}
	if m.Sends {
		d.member.OutgoingLine(m.ID, open, free)
	} else {
		d.member.IncomingLine(m.ID, func(now ib.Time) { _, _ = open(now) }, free)
	}
	return kept
}

// lineConfig is a line as the daemon describes it.
func lineConfig(m *proto.Line) (c line.Config, ok bool) {
	if len(m.SendSecret) != tunnel.SecretBytes || len(m.RecvSecret) != tunnel.SecretBytes {
		return c, false
	}
	c = line.Config{ID: m.ID, Peer: m.Peer, MTU: m.MTU, SendIndex: m.SendIndex, RecvIndex: m.RecvIndex, Port: m.Port,
		SendSecret: [tunnel.SecretBytes]byte(m.SendSecret), RecvSecret: [tunnel.SecretBytes]byte(m.RecvSecret)}
	if !m.Sends {
		c.Admits = admits(&m.From)
	}
	return c, true
}

// admits says which packets may come by a line: those that the sender's own adapter could have sent by the way that was
// asked for, and none of anybody else.
func admits(o *proto.Origin) func(*wire.Packet) bool {
	port := endpoint.OriginPort{LID: o.LID, LMC: o.LMC, Keys: []ib.PKey{o.PKey}, GIDs: slices.Clone(o.GIDs)}
	dlid, sl, block := o.DLID, o.SL, o.Block
	return func(p *wire.Packet) bool {
		return p.LRH.LNH >= wire.LNHLocal && p.LRH.DLID == dlid && p.LRH.SL == sl && port.Sends(block, p)
	}
}

// closeLines gives the socket back.
func (d *Device) closeLines() {
	d.mu.Lock()
	x := d.lines
	d.mu.Unlock()
	if x == nil {
		return
	}
	d.member.Settle()
	if x.plugged {
		x.watcher.End()
	}
	x.watcher.Close()
	d.member.Do(func(ib.Time) { x.Close() })
}
