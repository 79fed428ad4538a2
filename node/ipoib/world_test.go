package ipoib

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// world is some interfaces on a link with an administrator, in virtual time, with whatever goes wrong.
type world struct {
	t     testing.TB
	rng   *rand.Rand
	now   ib.Time
	hosts []*host
	later ib.Heap[event, *event]
	order uint64
	// Chances of a datagram to be lost, and of a question to fail; the longest that either takes.
	lose, fail       float64
	delay, answering ib.Time
	members          map[ib.GID]map[*host]bool // true is a full member
}

type event struct {
	at    ib.Time
	order uint64
	do    func()
}

func (e *event) Before(o *event) bool { return e.at < o.at || e.at == o.at && e.order < o.order }

// host is one interface.
type host struct {
	w    *world
	name string
	*Interface
	qpn  ib.QPN
	gid  ib.GID
	down bool
	got  []string
	ways map[*Way]bool
	lids ib.LID
	// timer is when the engine will be called.
	timer ib.Time
}

func testKey() ib.PKey { return 0x8001 }

func newTestWorld(t testing.TB, seed uint64, hosts int) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), members: map[ib.GID]map[*host]bool{},
		delay: ib.Millisecond, answering: 5 * ib.Millisecond}
	for i := range hosts {
		h := &host{w: w, name: fmt.Sprint("h", i+1), ways: map[*Way]bool{}}
		w.hosts = append(w.hosts, h)
		h.start(ib.QPN(0x100 + i))
	}
	return w
}

func (w *world) after(d ib.Time, f func()) {
	w.order++
	w.later.Push(event{w.now + d, w.order, f})
}

func (w *world) some(limit ib.Time) ib.Time { return ib.Time(w.rng.Int64N(int64(limit))) + 1 }

// start makes the interface anew, as after a restart: another queue pair, nothing known.
func (h *host) start(qpn ib.QPN) {
	number := indexOf(h.w.hosts, h) + 1
	h.qpn, h.gid = qpn, ib.MakeGID(ib.DefaultGIDPrefix, ib.GUID(number))
	h.lids = ib.LID(number)
	h.ways = map[*Way]bool{}
	for _, m := range h.w.members {
		delete(m, h)
	}
	h.Interface = New(h.w.now, Config{Self: LinkAddr{QPN: qpn, GID: h.gid}, PKey: testKey()})
	h.SetAddrs(h.w.now, []netip.Prefix{netip.PrefixFrom(h.ip(), 15), netip.PrefixFrom(h.ip6(), 64)})
	h.turn()
}

func indexOf(all []*host, h *host) int {
	for i := range all {
		if all[i] == h {
			return i
		}
	}
	return -1
}

func (h *host) ip() netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, 0, byte(indexOf(h.w.hosts, h) + 1)})
}

func (h *host) ip6() netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xFD, 1: 0x53, 15: byte(indexOf(h.w.hosts, h) + 1)})
}

// turn does what the engine says.
func (h *host) turn() {
	w, self := h.w, h.Interface
	for a, ok := h.Poll(); ok; a, ok = h.Poll() {
		switch a.Kind {
		case Send:
			h.transmit(a.Way, AppendHeader(nil, a.Protocol), a.Packet)
		case Deliver:
			h.got = append(h.got, "icmp "+icmpName(a.Packet))
		case AskPath:
			w.after(w.some(w.answering), func() {
				rec := mad.PathRecord{DGID: a.GID, SGID: h.gid, MTU: ib.MTU2048, PKey: testKey()}
				found := false
				for _, o := range w.hosts {
					if o.gid == a.GID {
						rec.DLID, found = o.lids, true
					}
				}
				h.call(self, func() { h.HandlePath(w.now, a.GID, rec, found && !w.chance(w.fail)) })
			})
		case Join:
			w.after(w.some(w.answering), func() { h.joinAs(self, a.GID, a.SendOnly) })
		case Leave:
			delete(w.members[a.GID], h)
		case Close:
			if !h.ways[a.Way] {
				continue // it was never used
			}
			delete(h.ways, a.Way)
		}
	}
	if at := h.NextDeadline(); at != ib.Never && (at < h.timer || h.timer <= w.now) {
		h.timer = max(at, w.now+1)
		w.after(h.timer-w.now, func() { h.call(self, func() { h.HandleTimer(w.now) }) })
	}
}

// call calls the engine unless it is another by now.
func (h *host) call(self *Interface, f func()) {
	if h.Interface == self {
		f()
		h.turn()
	}
}

func (h *host) joinAs(self *Interface, g ib.GID, sendOnly bool) {
	w := h.w
	if h.Interface != self {
		return
	}
	if w.members[g] == nil {
		w.members[g] = map[*host]bool{}
	}
	ok := !w.chance(w.fail)
	if sendOnly {
		some := false
		for _, full := range w.members[g] {
			some = some || full
		}
		ok = ok && some
	}
	if ok && h.groups[g] != nil {
		w.members[g][h] = !sendOnly
	}
	h.call(self, func() {
		h.HandleJoined(w.now, g, mad.MCMemberRecord{MGID: g, MLID: 0xC000 + ib.LID(g[15]), MTU: ib.MTU2048,
			QKey: ib.QKeyIPoIB}, ok)
	})
}

func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

func (h *host) transmit(way *Way, parts ...[]byte) {
	w := h.w
	h.ways[way] = true
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	if len(b) > 2048 {
		w.t.Errorf("%s sends a datagram of %d bytes", h.name, len(b))
	}
	for _, o := range w.hosts {
		if way.Multicast {
			if o == h || !w.members[way.DGID][o] {
				continue
			}
		} else if o.lids != way.DLID || o.qpn != way.QPN {
			continue
		}
		if w.chance(w.lose) || h.down || o.down {
			continue
		}
		d := Datagram{SrcQPN: h.qpn, Payload: b}
		if way.Multicast {
			d.SGID = h.gid
		}
		self := o.Interface
		w.after(w.some(w.delay), func() {
			o.call(self, func() {
				if p := o.HandleDatagram(w.now, &d); p != nil {
					o.got = append(o.got, string(p[len(p)-8:]))
				}
			})
		})
	}
}

// run lets a while pass.
func (w *world) run(d ib.Time) {
	end := w.now + d
	for len(w.later) > 0 && w.later[0].at <= end {
		e := w.later.Pop()
		w.now = e.at
		e.do()
	}
	w.now = end
}

// send has a host send 8 bytes, and returns them.
func (h *host) send(to netip.Addr, number int) string {
	text := fmt.Sprintf("%08d", number)
	var b []byte
	if to.Is4() {
		b = append([]byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, protoUDP, 0, 0}, h.ip().AsSlice()...)
		b = append(append(b, to.AsSlice()...), text...)
		setIPv4Checksum(b[:ipv4Size])
	} else {
		b = append(appendIPv6(nil, 8, protoUDP, 64, h.ip6(), to), text...)
	}
	if way := h.HandlePacket(h.w.now, b, Offload{}); way != nil {
		h.transmit(way, AppendHeader(nil, protocolOfTest(b)), b)
	}
	h.turn()
	return text
}

func protocolOfTest(b []byte) Protocol {
	if b[0]>>4 == 4 {
		return IPv4
	}
	return IPv6
}

// icmpName is what a complaint says, for the host that it is handed to.
func icmpName(b []byte) string {
	if b[0]>>4 == 4 {
		if fold(sum(0, b[:ipv4Size])) != 0xFFFF || fold(sum(0, b[ipv4Size:])) != 0xFFFF ||
			int(binary.BigEndian.Uint16(b[2:])) != len(b) {
			return "wrong"
		}
		return fmt.Sprintf("%d/%d", b[20], b[21])
	}
	if checksumICMPv6(b) != 0 || int(binary.BigEndian.Uint16(b[4:]))+ipv6Size != len(b) {
		return "wrong"
	}
	return fmt.Sprintf("v6 %d/%d", b[40], b[41])
}

// count counts what a host got.
func (h *host) count(text string) (n int) {
	for _, g := range h.got {
		if g == text {
			n++
		}
	}
	return n
}
