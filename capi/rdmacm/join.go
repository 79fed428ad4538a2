package rdmacm

import (
	"context"
	"fmt"
	"syscall"

	"softib/proto/ib"
	"softib/proto/mad"
)

// outsider is a member that is no ID of librdmacm's.
type outsider struct{ told chan syscall.Errno }

// joined is called once, for which there is room.
func (o *outsider) joined(errno syscall.Errno) { o.told <- errno }

// Join makes a port a full member of a multicast group on behalf of a program that has no librdmacm, and returns the
// group as the administrator has it. Such programs and librdmacm's share the port's membership: it ends with the last
// of them, and each calls leave once. Of what is wanted the MGID, the partition and the Q_Key count; the
// administrator makes up an MGID where it is zero, and the others have rdma_cm's defaults.
func (s *Server) Join(ctx context.Context, host string, port ib.PortNum, want mad.MCMemberRecord) (
	got mad.MCMemberRecord, leave func(), err error) {
	h, err := s.host(host)
	if err != nil {
		return got, nil, err
	}
	o := &outsider{make(chan syscall.Errno, 1)}
	h.mu.Lock()
	g, err := h.joinFor(o, port, want)
	h.mu.Unlock()
	if err != nil {
		return got, nil, err
	}
	leave = func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		g.drop(o)
	}
	select {
	case errno := <-o.told:
		if errno != 0 {
			return got, nil, fmt.Errorf("rdmacm: joining %v: %w", want.MGID, errno)
		}
	case <-ctx.Done():
		leave()
		return got, nil, ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return g.rec, leave, nil
}

// joinFor finds or makes the group and adds the outsider to it. The host's lock is held.
func (h *host) joinFor(o *outsider, port ib.PortNum, want mad.MCMemberRecord) (*group, error) {
	p := h.port(port)
	a, err := h.adapter()
	if err != nil {
		return nil, err
	}
	info := a.port(port)
	if p == nil || info == nil {
		return nil, fmt.Errorf("rdmacm: port %d of %s: %w", port, h.name, syscall.ENODEV)
	}
	if want.PKey == 0 {
		want.PKey = info.homeKey()
	}
	if want.QKey == 0 {
		want.QKey = udpQKey
	}
	want = mad.MCMemberRecord{MGID: want.MGID, PortGID: info.GID, PKey: want.PKey, QKey: want.QKey,
		JoinState: mad.JoinFull}
	key := groupKey{mgid: want.MGID, as: mad.JoinFull}
	if key.mgid.IsZero() {
		key.number = h.s.newID()
	}
	g := p.groups[key]
	if g == nil {
		g = &group{p: p, key: key, want: want}
	}
	if err := g.take(o); err != nil {
		return nil, err
	}
	if g.state == groupIn {
		o.joined(0)
	}
	return g, nil
}
