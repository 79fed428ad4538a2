package rdmacm

import (
	"context"
	"fmt"
	"slices"
	"syscall"

	"softib/node/ipoib"
	"softib/proto/ib"
	"softib/proto/mad"
)

// outsider is a member that is no ID of librdmacm's.
type outsider struct{ told chan syscall.Errno }

// joined is called once, for which there is room.
func (o *outsider) joined(errno syscall.Errno) { o.told <- errno }

// Join makes a port a member of a multicast group on behalf of a program that has no librdmacm, and returns the
// group as the administrator has it. Such programs and librdmacm's share the port's membership: it ends with the last
// of them, and each calls leave once. Of what is wanted the MGID, the partition, the Q_Key and the join state count:
// the administrator makes up an MGID where it is zero, the keys have rdma_cm's defaults, and the join state is full
// membership. Groups of IP over InfiniBand have all their parameters from their broadcast group.
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
	if want.JoinState == 0 {
		want.JoinState = mad.JoinFull
	}
	want = mad.MCMemberRecord{MGID: want.MGID, PortGID: info.GID, PKey: want.PKey, QKey: want.QKey,
		JoinState: want.JoinState}
	key := groupKey{mgid: want.MGID, as: want.JoinState}
	if key.mgid.IsZero() {
		key.number = h.s.newID()
	}
	g := p.groups[key]
	if g == nil {
		g = &group{p: p, key: key, want: want, ipoib: ipoib.IsGroup(want.MGID)}
	}
	if err := g.take(o); err != nil {
		return nil, err
	}
	if g.state == groupIn {
		o.joined(0)
	}
	return g, nil
}

// Paths that programs without librdmacm ask for: how long each try waits, and how many more there are.
const (
	pathTimeout = ib.Second
	pathRetries = 4
)

// Path asks the administrator for a path from a port. Of what is wanted the DGID, the partition and the service count.
func (s *Server) Path(ctx context.Context, host string, port ib.PortNum, want mad.PathRecord) (mad.PathRecord, error) {
	none := mad.PathRecord{}
	h, err := s.host(host)
	if err != nil {
		return none, err
	}
	told := make(chan answer, 1)
	h.mu.Lock()
	number, p, err := h.askPath(port, want, func(a answer) {
		a.record = slices.Clone(a.record) // it is the session's
		told <- a
	})
	h.mu.Unlock()
	if err != nil {
		return none, err
	}
	select {
	case a := <-told:
		var got mad.PathRecord
		if a.errno == 0 {
			if _, err := got.Parse(a.record); err == nil && got.DLID.IsUnicast() {
				return got, nil
			}
			a.errno = syscall.EINVAL
		}
		return none, fmt.Errorf("rdmacm: the path to %v: %w", want.DGID, a.errno)
	case <-ctx.Done():
		h.mu.Lock()
		p.forget(number)
		h.mu.Unlock()
		return none, ctx.Err()
	}
}

// askPath sends the question. The host's lock is held.
func (h *host) askPath(port ib.PortNum, want mad.PathRecord, done func(answer)) (uint32, *endPort, error) {
	a, err := h.adapter()
	if err != nil {
		return 0, nil, err
	}
	p, info := h.port(port), a.port(port)
	if p == nil || info == nil || p.dead {
		return 0, nil, fmt.Errorf("rdmacm: port %d of %s: %w", port, h.name, syscall.ENODEV)
	}
	want = mad.PathRecord{DGID: want.DGID, SGID: info.GID, PKey: want.PKey, ServiceID: want.ServiceID, NumbPath: 1,
		Reversible: true}
	mask := pathMask
	if want.ServiceID == 0 {
		mask &^= pathService
	}
	n, err := p.ask(info, question{mad.MethodGet, mad.AttrPathRecord, mask, want.Append(nil), pathTimeout, pathRetries},
		done)
	return n, p, err
}
