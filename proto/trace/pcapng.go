package trace

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"softib/proto/ib"
)

// LinkType is how a capture's packets are framed, by the number that
// pcapng's registry gives it.
type LinkType uint16

// Link types.
const (
	// LinkTypeERF puts an Extensible Record Format header before each packet, as
	// InfiniBand analysers do. It is the one that Wireshark dissects: the
	// other has a registered number, but Wireshark 4.0 takes it for unknown.
	LinkTypeERF LinkType = 197
	// LinkTypeInfiniBand is the bare packet, from LRH to VCRC.
	LinkTypeInfiniBand LinkType = 247
)

// Layout of an ERF header and what goes into it.
const (
	erfSize = 16

	erfTypeInfiniBand = 21   // LRH to VCRC
	erfFlagVarying    = 0x04 // the record is as long as its packet
)

// Blocks, options and constants of pcapng (draft-ietf-opsawg-pcapng).
const (
	blockSection   = 0x0A0D0D0A
	blockInterface = 0x00000001
	blockPacket    = 0x00000006 // enhanced packet block

	byteOrderMagic = 0x1A2B3C4D

	optEnd         = 0
	optComment     = 1
	optUserAppl    = 4 // of the section
	optIfName      = 2
	optIfSpeed     = 8 // bits a second
	optIfTsResol   = 9
	optPacketFlags = 2

	flagInbound  = 1
	flagOutbound = 2

	nanoseconds = 9 // if_tsresol: powers of ten
)

// Pcapng writes a capture that Wireshark opens: one interface per port, time in
// nanoseconds, direction as packet flags, and what else there is to say
// as packet comments.
//
// A change of state has no packet to carry it: it becomes a comment on the
// port's next one. Flow-control packets are left out, and JSON has them:
// Wireshark 4.0 calls each of them malformed, however it is framed.
type Pcapng struct {
	w     io.Writer
	epoch uint64 // nanoseconds
	snap  int
	link  LinkType
	ports map[portKey]int // index into ifaces
	iface []pcapPort
	buf   []byte
	err   error
}

// pcapPort is one interface of the file.
type pcapPort struct {
	// pending are comments that wait for a packet.
	pending []string
}

// maxPending bounds the comments that wait on an idle port; the oldest go first.
const maxPending = 16

// PcapngOptions are the choices of a capture; the zero value is a good one.
type PcapngOptions struct {
	// EpochNS is the driver's time zero in nanoseconds since 1970, if it
	// has a place in the calendar; it is added to every event's time. An ib.Time
	// could not hold it: picoseconds of it last for 106 days.
	EpochNS uint64
	// Snap is how many bytes of a packet are kept; 0 keeps all.
	Snap int
	// LinkType is LinkTypeERF if it is not given.
	LinkType LinkType
}

// NewPcapng begins a capture on w.
func NewPcapng(w io.Writer, o PcapngOptions) (*Pcapng, error) {
	p := &Pcapng{w: w, epoch: o.EpochNS, snap: o.Snap, link: o.LinkType, ports: map[portKey]int{}}
	switch p.link {
	case 0:
		p.link = LinkTypeERF
	case LinkTypeERF, LinkTypeInfiniBand:
	default:
		return nil, fmt.Errorf("trace: link type %d, want %d or %d", p.link, LinkTypeERF, LinkTypeInfiniBand)
	}
	at := p.begin(blockSection)
	p.u32(byteOrderMagic)
	p.u16(1) // version 1.0
	p.u16(0)
	p.u64(1<<64 - 1) // section length: not known
	p.optionString(optUserAppl, "softib")
	p.option(optEnd, nil)
	p.end(at)
	return p, p.flush()
}

// Port declares a port under the name that its interface gets. Rate, if it is
// not zero, is the speed that Wireshark shows. A port that is first seen in an
// event is declared with its numbers for a name.
func (p *Pcapng) Port(node uint32, port ib.PortNum, name string, rate ib.LinkRate) error {
	if p.err != nil {
		return p.err
	}
	k := portKey{node, port}
	if _, ok := p.ports[k]; ok {
		return fmt.Errorf("trace: port %d of node %d (%s) is declared twice", port, node, name)
	}
	p.declare(k, name, rate)
	return p.flush()
}

func (p *Pcapng) declare(k portKey, name string, rate ib.LinkRate) int {
	i := len(p.iface)
	p.iface = append(p.iface, pcapPort{})
	p.ports[k] = i
	at := p.begin(blockInterface)
	p.u16(uint16(p.link))
	p.u16(0)
	if p.snap > 0 {
		p.u32(uint32(p.snap + p.frame()))
	} else {
		p.u32(0)
	}
	p.optionString(optIfName, name)
	if mbps := rate.Mbps(); mbps > 0 {
		p.option(optIfSpeed, binary.LittleEndian.AppendUint64(nil, uint64(mbps)*1_000_000))
	}
	p.option(optIfTsResol, []byte{nanoseconds})
	p.option(optEnd, nil)
	p.end(at)
	return i
}

// Write writes one event. After an error of the underlying writer it writes no
// more and returns that error again.
func (p *Pcapng) Write(e *Event) error {
	if p.err != nil || e.Kind == Link {
		return p.err
	}
	i, ok := p.ports[e.key()]
	if !ok {
		i = p.declare(e.key(), fmt.Sprintf("node %d port %d", e.Node, e.Port), ib.LinkRate{})
	}
	switch e.Kind {
	case Packet, Drop:
		p.packet(uint32(i), e)
	case State:
		f := &p.iface[i]
		if len(f.pending) == maxPending {
			f.pending = append(f.pending[:0], f.pending[1:]...)
		}
		f.pending = append(f.pending, stateComment(e))
	}
	return p.flush()
}

func stateComment(e *Event) string {
	s := fmt.Sprintf("%v: %s %s to %s", e.Time, e.What, e.From, e.To)
	if e.QP != 0 {
		s = fmt.Sprintf("%v: %s %v %s to %s", e.Time, e.What, e.QP, e.From, e.To)
	}
	if e.Note != "" {
		s += ", " + e.Note
	}
	return s
}

// frame is how many bytes stand before a packet.
func (p *Pcapng) frame() int {
	if p.link == LinkTypeERF {
		return erfSize
	}
	return 0
}

// Offsets in a packet block.
const (
	epbCaptured = 20
	epbOriginal = 24
	epbData     = 28
)

func (p *Pcapng) packet(iface uint32, e *Event) {
	ns := p.epoch + uint64(e.Time/ib.Nanosecond)
	at := p.begin(blockPacket)
	p.u32(iface)
	p.u32(uint32(ns >> 32))
	p.u32(uint32(ns))
	p.u64(0) // both lengths, known only after the data
	data := at + epbData + p.frame()
	p.buf = append(p.buf, make([]byte, p.frame())...)
	p.buf = e.appendBytes(p.buf)
	n := len(p.buf) - data
	if n == 0 { // an event without a packet has nothing to show
		p.buf = p.buf[:at]
		return
	}
	kept := n
	if p.snap > 0 && kept > p.snap {
		kept = p.snap
		p.buf = p.buf[:data+kept]
	}
	if p.link == LinkTypeERF {
		putERF(p.buf[at+epbData:], ns, kept, n)
	}
	binary.LittleEndian.PutUint32(p.buf[at+epbCaptured:], uint32(p.frame()+kept))
	binary.LittleEndian.PutUint32(p.buf[at+epbOriginal:], uint32(p.frame()+n))
	p.pad()
	f := &p.iface[iface]
	for _, c := range f.pending {
		p.optionString(optComment, c)
	}
	f.pending = f.pending[:0]
	if e.Kind == Drop {
		p.optionString(optComment, dropComment(e))
	} else if e.Note != "" {
		p.optionString(optComment, e.Note)
	}
	switch e.Dir {
	case In:
		p.flags(flagInbound)
	case Out:
		p.flags(flagOutbound)
	}
	p.option(optEnd, nil)
	p.end(at)
}

// putERF writes an ERF header: seconds as a 32.32 fixed-point number, the only
// little-endian field, then type, flags, record length, loss counter and the packet's
// length on the wire.
func putERF(b []byte, ns uint64, kept, n int) {
	const second = 1_000_000_000
	binary.LittleEndian.PutUint64(b, ns/second<<32|ns%second<<32/second)
	b[8] = erfTypeInfiniBand
	b[9] = erfFlagVarying
	binary.BigEndian.PutUint16(b[10:], uint16(erfSize+kept))
	binary.BigEndian.PutUint16(b[12:], 0)
	binary.BigEndian.PutUint16(b[14:], uint16(n))
}

func dropComment(e *Event) string {
	s := "dropped: " + e.Reason.String()
	if e.Note != "" {
		s += ", " + e.Note
	}
	return s
}

func (p *Pcapng) flags(v uint32) {
	p.u16(optPacketFlags)
	p.u16(4)
	p.u32(v)
}

// begin opens a block; end closes it, with its length at both ends. Blocks
// start on a multiple of four bytes in buf, so pad need only look at buf.
func (p *Pcapng) begin(kind uint32) int {
	at := len(p.buf)
	p.u32(kind)
	p.u32(0)
	return at
}

func (p *Pcapng) end(at int) {
	n := uint32(len(p.buf) - at + 4)
	binary.LittleEndian.PutUint32(p.buf[at+4:], n)
	p.u32(n)
}

func (p *Pcapng) u16(v uint16) { p.buf = binary.LittleEndian.AppendUint16(p.buf, v) }
func (p *Pcapng) u32(v uint32) { p.buf = binary.LittleEndian.AppendUint32(p.buf, v) }
func (p *Pcapng) u64(v uint64) { p.buf = binary.LittleEndian.AppendUint64(p.buf, v) }

func (p *Pcapng) pad() {
	for len(p.buf)%4 != 0 {
		p.buf = append(p.buf, 0)
	}
}

func (p *Pcapng) option(code uint16, value []byte) {
	p.u16(code)
	p.u16(uint16(len(value)))
	p.buf = append(p.buf, value...)
	p.pad()
}

// maxText is the longest text that an option takes here; its length field
// has 16 bits.
const maxText = 4096

func (p *Pcapng) optionString(code uint16, s string) {
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "")
	}
	p.u16(code)
	p.u16(uint16(len(s)))
	p.buf = append(p.buf, s...)
	p.pad()
}

// flush hands all blocks of one event to the writer in one call.
func (p *Pcapng) flush() error {
	if len(p.buf) == 0 {
		return p.err
	}
	_, p.err = p.w.Write(p.buf)
	p.buf = p.buf[:0]
	return p.err
}
