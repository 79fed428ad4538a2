package fabric

import (
	"encoding/binary"
	"errors"
	"fmt"

	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/wire"
)

// Joint is one end of a cable whose other end is on another machine: how two ends that cannot see each other come up
// and go down together. They tell each other Greetings, on the same ordered and loss-free way as the packets, so that
// none of a link's packets is taken for one of the next link's.
//
// Each end counts its lives: a new one begins whenever its port falls or can begin to train. An end comes up when the
// other is ready too and has said that it knows this life; it goes down when the other begins a new one. That is the
// handshake of TCP, and for the same reason: what one hears may be older than what one has said.
type Joint struct {
	own    Greeting
	up     bool
	linked uint32 // the far end's life that it is up with
}

// Greeting is what one end of a cable says of itself.
type Greeting struct {
	// Ready: the port polls, and may train at Rate.
	Ready bool
	Rate  ib.LinkRate
	// Life is the end's own, and Heard the last that it has heard of from the other; 0 for none.
	Life, Heard uint32
}

// Move is what has to be done at the port of a Joint.
type Move uint8

// Moves.
const (
	Stay  Move = iota
	Raise      // train it
	Fall       // take it down
)

// Begin starts a new life of the end: its port has fallen, or can train as it could not before, or the way to the other
// machine is new (forget). The greeting is to be told.
func (j *Joint) Begin(ready bool, rate ib.LinkRate, forget bool) Greeting {
	j.up = false
	j.own.Ready, j.own.Rate = ready, rate
	j.own.Life++
	if forget {
		j.own.Heard = 0
	}
	return j.own
}

// Hear takes in what the far end says. If tell, it has to hear the greeting, and that before anything else goes there.
// A port that is raised runs at the lesser of both rates.
func (j *Joint) Hear(g Greeting) (reply Greeting, tell bool, do Move) {
	isNew := g.Life != j.own.Heard
	j.own.Heard = g.Life
	if j.up && g.Life != j.linked {
		j.up = false
		j.own.Life++
		do = Fall
	}
	tell = isNew || g.Heard != j.own.Life
	if j.own.Ready && g.Ready && !j.up && g.Heard == j.own.Life {
		j.up, j.linked = true, g.Life
		do = Raise
	}
	return j.own, tell, do
}

// IsUp reports whether the port was raised and has not fallen since.
func (j *Joint) IsUp() bool { return j.up }

// Messages between the two ends of a cable: a byte that says what follows.
const (
	msgPacket   = 1 // flags, then the packet without CRCs
	msgFlow     = 2 // a flow-control packet
	msgGreeting = 3

	greetingSize = 1 + 1 + 1 + 1 + 4 + 4
)

// ErrMessage is matched when bytes are nothing that an end of a cable says.
var ErrMessage = errors.New("no message of a cable's end")

// AppendMessage writes a crossing for the other end. The frame stays the caller's.
func (c *Crossing) AppendMessage(b []byte) []byte {
	if c.Frame == nil {
		return c.FC.Append(append(b, msgFlow))
	}
	return c.Frame.Sync().AppendBare(append(b, msgPacket, byte(c.Frame.Flags&(link.BadVCRC|link.BadICRC))))
}

// AppendMessage writes a greeting for the other end.
func (g Greeting) AppendMessage(b []byte) []byte {
	ready := byte(0)
	if g.Ready {
		ready = 1
	}
	b = append(b, msgGreeting, ready, byte(g.Rate.Width), byte(g.Rate.Speed))
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, g.Life), g.Heard)
}

// Message is what the other end of a cable has said: a greeting, or something for HandleOutside.
type Message struct {
	Greeting   Greeting
	IsGreeting bool
	Crossing   Crossing
}

// ParseMessage reads what AppendMessage has written. A packet is put into a frame of the pool, which is the caller's
// then.
func ParseMessage(b []byte, pool *link.Pool) (m Message, err error) {
	if len(b) < 2 {
		return m, fmt.Errorf("fabric: %d bytes: %w", len(b), ErrMessage)
	}
	switch b[0] {
	case msgPacket:
		f := pool.Get()
		if err := f.Packet.ParseBare(b[2:]); err != nil {
			pool.Put(f)
			return m, fmt.Errorf("fabric: %w: %w", ErrMessage, err)
		}
		f.Own(f.Packet.Payload)
		f.Measure()
		f.Flags, f.Group = link.FrameFlags(b[1])&(link.BadVCRC|link.BadICRC), 0
		m.Crossing.Frame = f
		return m, nil
	case msgFlow:
		fc, n, err := wire.ParseLinkPacket(b[1:])
		if err == nil && n == len(b)-1 {
			m.Crossing.FC = fc
			return m, nil
		}
	case msgGreeting:
		if len(b) != greetingSize || b[1] > 1 {
			break
		}
		g := Greeting{Ready: b[1] == 1, Rate: ib.LinkRate{Width: ib.Width(b[2]), Speed: ib.Speed(b[3])},
			Life: binary.BigEndian.Uint32(b[4:]), Heard: binary.BigEndian.Uint32(b[8:])}
		if g.Life != 0 && (!g.Ready || g.Rate.Mbps() > 0) {
			m.IsGreeting, m.Greeting = true, g
			return m, nil
		}
	}
	return m, fmt.Errorf("fabric: %d bytes of kind %d: %w", len(b), b[0], ErrMessage)
}
