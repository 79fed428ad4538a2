package roce

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"softib/driver/endpoint"
	"softib/internal/mmsg"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/wire"
)

// link is an endpoint's network: the sockets. But for its watcher it is used with the endpoint's lock held.
type link struct {
	block  uint16
	places []*place  // by index of the GID table
	joined []*socket // of groups
	socks  []*socket // all of both
	// batch is how many datagrams are sent at once, a quarter of what a queue pair has under way: while a peer looks at
	// them the next are made.
	batch int
	tx    *outgoing
	rx    *incoming
	// Of rx, by which socket it came, how many messages it has, how many of them were handed in, and where in the next
	// one to go on.
	source       *socket
	n, taken, at int
	// hot is the socket that something came by last; the others have their turn now and then.
	hot, turn int

	engine *hca.HCA
	warn   func(line string) // of what only a person can mend; it does not wait
	narrow map[ib.GID]bool   // destinations for whose way datagrams are too long, of which was warned
	marks  uint8             // set by tests: bits of traffic classes that a network in trouble would set
	groups uint64            // what the engine's number for its groups was when they were looked at
	*Stats
	watcher *endpoint.Watcher
	closing chan struct{}
	done    sync.WaitGroup
}

// place is an address in the port's table.
type place struct {
	slot
	in  *socket
	out *senders
}

func (p *place) close() {
	unix.Close(p.in.fd)
	p.out.close()
}

// newLink makes the network of an endpoint that is woken by a page.
func newLink(page *endpoint.Page, stats *Stats, block uint16, batch int) (*link, error) {
	w, err := endpoint.NewWatcher(page)
	return &link{block: block, Stats: stats, batch: min(batch, sendMax), tx: new(outgoing), rx: new(incoming),
		warn: func(string) {}, narrow: map[ib.GID]bool{}, watcher: w,
		closing: make(chan struct{})}, err
}

// apply makes the addresses those of a state, and takes over the sockets that come with it. Where the two do not go
// together nothing is changed, and the sockets are closed.
func (l *link) apply(st *state, fds []int) error {
	places, err := l.placesOf(st, fds)
	if err != nil {
		closeFDs(fds)
		return err
	}
	left := l.places
	l.places = places
	for i, p := range places {
		p.slot = st.Table[i]
	}
	l.gather()
	for _, p := range left {
		if !slices.Contains(places, p) {
			p.close()
		}
	}
	return nil
}

// placesOf are the places of a state: those that are there, and new ones for sockets that come.
func (l *link) placesOf(st *state, fds []int) ([]*place, error) {
	if len(fds) != len(st.Bring) {
		return nil, fmt.Errorf("%d sockets came for %d addresses", len(fds), len(st.Bring))
	}
	places := make([]*place, len(st.Table))
	for i := range st.Table {
		if !st.Table[i].Addr.IsValid() {
			return nil, fmt.Errorf("address %d of the table is none", i)
		}
		at := slices.IndexFunc(l.places, func(p *place) bool { return p.Serial == st.Table[i].Serial })
		if at >= 0 && !slices.Contains(places, l.places[at]) {
			places[i] = l.places[at]
		}
	}
	for n, i := range st.Bring {
		if i < 0 || i >= len(places) || places[i] != nil {
			return nil, fmt.Errorf("a socket came for address %d, which has one or is none", i)
		}
		a := st.Table[i].address()
		places[i] = &place{st.Table[i], &socket{fd: fds[n], to: a, isIPv4: st.Table[i].IPv4,
			relayed: st.Table[i].Relayed}, &senders{from: a}}
	}
	if i := slices.Index(places, nil); i >= 0 {
		return nil, fmt.Errorf("no socket came for address %d", i)
	}
	return places, nil
}

// gather makes the list of all sockets, and has them watched.
func (l *link) gather() {
	l.socks = nil
	for _, p := range l.places {
		l.socks = append(l.socks, p.in)
	}
	l.socks = append(l.socks, l.joined...)
	l.hot, l.turn = 0, 0
	if !slices.Contains(l.socks, l.source) {
		l.n, l.taken = 0, 0
	}
	fds := make([]int, len(l.socks))
	for i, s := range l.socks {
		fds[i] = s.fd
	}
	l.watcher.Watch(fds...)
}

// end has those end that listen.
func (l *link) end() {
	close(l.closing)
	l.watcher.End()
}

// close ends all, after end and what that ends. Nobody uses the endpoint any more.
func (l *link) close() {
	for _, p := range l.places {
		p.close()
	}
	closeAll(l.joined)
	l.watcher.Close()
}

// ready waits until a socket has something (POLLIN) or room (POLLOUT), for so long at most.
func ready(fd int, what int16, wait time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: what}}
	n, err := unix.Poll(fds, int(wait/time.Millisecond))
	return err == nil && n == 1
}

// Space is room for a payload of any MTU, where Put wants it.
func (l *link) Space() []byte { return l.tx.data[l.tx.n][wire.RoCEHeadroom:] }

// Put writes a packet as a datagram. Some are sent as soon as there are a few: whoever gets them need not wait for all.
func (l *link) Put(p *wire.Packet) {
	f, ok := l.flowOf(p)
	if !ok || p.LRH.LNH != wire.LNHGlobal {
		l.Unsent.Add(1)
		return
	}
	id := l.tx.place(f, p.RoCESize())
	b := p.PutRoCE(l.tx.data[l.tx.n][:], f.from.port, id)
	if l.tx.add(f, b, id > 0); l.tx.n >= l.batch {
		l.send()
	}
}

// Flush sends what was put.
func (l *link) Flush() {
	if n := l.engine.GroupChanges(); n != l.groups {
		l.groups = n
		l.joinGroups()
	}
	if l.tx.n > 0 {
		l.send()
	}
}

// flowOf is how a packet goes; it is not ok if its source is no address of ours, or there is no socket to be had.
func (l *link) flowOf(p *wire.Packet) (flow, bool) {
	for _, at := range l.places {
		if at.in.to.gid == p.GRH.SGID && !at.Lost {
			from, err := at.out.to(p.BTH.DestQP)
			return flow{from, p.GRH.DGID, blockOf(p.BTH.DestQP), hca.ToNetwork(p) | l.marks}, err == nil
		}
	}
	return flow{}, false
}

// sendPatience is how long a full socket is waited for; then its datagrams are lost, as on a full link.
const sendPatience = 5 * time.Millisecond

// send sends what was gathered: as many messages at once as have one source.
func (l *link) send() {
	o := l.tx
	o.seal()
	for first := 0; first < o.count; {
		s, last := o.flows[first].from, first+1
		for last < o.count && o.flows[last].from == s {
			last++
		}
		sent, err := mmsg.Send(s.fd, o.msgs[first:last])
		l.Calls.Add(1)
		for range sent {
			l.Sent.Add(o.msgs[first].Iovlen)
			l.SentBytes.Add(o.bytes[first])
			if o.flows[first].to[0] == 0xFF || isGroupIPv4(o.flows[first].to) {
				l.GroupSent.Add(o.msgs[first].Iovlen)
			}
			first++
		}
		switch {
		case err == nil:
		case (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS)) && ready(s.fd, unix.POLLOUT, sendPatience):
		default:
			// The first of them; what is wrong with it need not be with the others. Where an interface cannot send what
			// is to be cut, queue pairs send it again, one by one.
			m := &o.msgs[first]
			size := errors.Is(err, unix.EMSGSIZE) || m.Iovlen > 1 && errors.Is(err, unix.EINVAL)
			tooLong := size && l.isTooLong(&o.flows[first], int(m.Iov.Len))
			if m.Iovlen > 1 && !tooLong && (size || errors.Is(err, unix.EIO)) {
				s.cuts = false
			}
			l.Unsent.Add(o.msgs[first].Iovlen)
			first++
		}
	}
	o.n, o.count = 0, 0
}

// othersEvery is how many looks at the socket that something comes by are one at another.
const othersEvery = 8

// Next is the next packet that has come.
func (l *link) Next(p *wire.Packet) bool {
	for l.taken < l.n || l.receive() {
		d, at, next := l.rx.datagram(l.taken, l.at, l.source)
		if l.at = next; next == 0 {
			l.taken++
		}
		if p.ParseRoCE(d, at, &l.rx.from) != nil {
			l.Malformed.Add(1)
			continue
		}
		if !l.source.group.IsZero() && l.isOwn(p) {
			continue // the engine has given it to those of our queue pairs that are members
		}
		hca.FromNetwork(p)
		l.Received.Add(1)
		if !l.source.group.IsZero() {
			l.GroupReceived.Add(1)
		}
		l.watcher.Leaves(l.taken < l.n)
		return true
	}
	l.watcher.Leaves(false)
	return false
}

// isOwn reports whether a multicast was sent by this process.
func (l *link) isOwn(p *wire.Packet) bool {
	return p.BTH.Opcode.Info().Has(wire.ExtDETH) && blockOf(p.DETH.SrcQP) == l.block &&
		slices.ContainsFunc(l.places, func(at *place) bool { return at.in.to.gid == p.GRH.SGID })
}

// joinGroups makes the sockets of groups those that queue pairs are in.
func (l *link) joinGroups() {
	groups := l.engine.Groups()
	var joined, left []*socket
	for _, s := range l.joined {
		if slices.Contains(groups, s.group) {
			joined = append(joined, s)
		} else {
			left = append(left, s)
		}
	}
	var here []*address
	for _, p := range l.places {
		if !p.Lost {
			here = append(here, p.in.to)
		}
	}
	for _, g := range groups {
		if slices.ContainsFunc(joined, func(s *socket) bool { return s.group == g }) {
			continue
		}
		fd, by, err := bindGroup(here, g)
		if err != nil {
			l.Unjoined.Add(1)
			continue
		}
		joined = append(joined, &socket{fd: fd, to: by, group: g, isIPv4: withoutIPv6()})
	}
	l.joined = joined
	l.gather()
	closeAll(left)
}

// receive takes in what one of the sockets has.
func (l *link) receive() bool {
	if len(l.socks) == 0 {
		return false
	}
	at := l.hot
	if l.turn++; l.turn%othersEvery == 0 {
		at = l.turn / othersEvery % len(l.socks)
	}
	l.source, l.taken, l.n, l.at = l.socks[at], 0, 0, 0
	// An error is one of something that was sent, and sending it again is the queue pairs' business.
	if n, err := l.source.receive(l.rx); err == nil && n > 0 {
		l.hot, l.n = at, n
		l.ReceivedBytes.Add(l.rx.bytes())
		return true
	}
	return false
}
