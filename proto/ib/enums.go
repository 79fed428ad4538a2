package ib

import "fmt"

// MTU is the encoded maximum transfer unit: 1 is 256 bytes, 5 is 4096.
type MTU uint8

// The MTUs of IBA table 19.
const (
	MTU256 MTU = iota + 1
	MTU512
	MTU1024
	MTU2048
	MTU4096
)

// Bytes is the payload size; 0 for an encoding that does not exist.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// IsValid reports whether m is an encoding that exists.
func (m MTU) IsValid() bool { return m >= MTU256 && m <= MTU4096 }

func (m MTU) String() string {
	if !m.IsValid() {
		return fmt.Sprintf("MTU(%d)", uint8(m))
	}
	return fmt.Sprint(m.Bytes())
}

// MTUFromBytes is the encoding of a payload size.
func MTUFromBytes(n int) (MTU, bool) {
	for m := MTU256; m <= MTU4096; m++ {
		if m.Bytes() == n {
			return m, true
		}
	}
	return 0, false
}

// PortState is the logical state of a port (IBA 7.2.7).
type PortState uint8

// Port states, as PortInfo encodes them.
const (
	PortNoChange PortState = iota
	PortDown
	PortInit
	PortArmed
	PortActive
	NumPortState
)

var portStateNames = [NumPortState]string{"NoChange", "Down", "Initialize", "Armed", "Active"}

// HasLink reports whether there is a link, in whatever state: management packets cross it.
func (s PortState) HasLink() bool { return s >= PortInit && s <= PortActive }

func (s PortState) String() string {
	if s < NumPortState {
		return portStateNames[s]
	}
	return fmt.Sprintf("PortState(%d)", uint8(s))
}

// PhysState is the physical state of a port (IBA 5.6).
type PhysState uint8

// Physical states, as PortInfo encodes them.
const (
	PhysNoChange PhysState = iota
	PhysSleep
	PhysPolling
	PhysDisabled
	PhysTraining
	PhysLinkUp
	PhysErrorRecovery
	PhysTest
	NumPhysState
)

var physStateNames = [NumPhysState]string{"NoChange", "Sleep", "Polling", "Disabled", "PortConfigurationTraining",
	"LinkUp", "LinkErrorRecovery", "PhyTest"}

func (s PhysState) String() string {
	if s < NumPhysState {
		return physStateNames[s]
	}
	return fmt.Sprintf("PhysState(%d)", uint8(s))
}

// NodeType is what a node is, as NodeInfo encodes it.
type NodeType uint8

// Node types.
const (
	NodeCA NodeType = iota + 1
	NodeSwitch
	NodeRouter
)

func (t NodeType) String() string {
	switch t {
	case NodeCA:
		return "CA"
	case NodeSwitch:
		return "Switch"
	case NodeRouter:
		return "Router"
	}
	return fmt.Sprintf("NodeType(%d)", uint8(t))
}

// Width is a link width as one bit of PortInfo's masks.
type Width uint8

// Link widths.
const (
	Width1x  Width = 1
	Width4x  Width = 2
	Width8x  Width = 4
	Width12x Width = 8
	Width2x  Width = 16
)

// Lanes counts the lanes; 0 for a value that is not one width.
func (w Width) Lanes() int {
	switch w {
	case Width1x:
		return 1
	case Width2x:
		return 2
	case Width4x:
		return 4
	case Width8x:
		return 8
	case Width12x:
		return 12
	}
	return 0
}

// Widest is the widest of a set of widths, 0 of none.
func (w Width) Widest() (best Width) {
	for bit := Width(1); bit != 0; bit <<= 1 {
		if w&bit != 0 && bit.Lanes() > best.Lanes() {
			best = bit
		}
	}
	return best
}

func (w Width) String() string {
	if n := w.Lanes(); n > 0 {
		return fmt.Sprintf("%dx", n)
	}
	return fmt.Sprintf("Width(%d)", uint8(w))
}

// Speed is the signalling generation of one lane.
type Speed uint8

// Speeds from SDR to XDR.
const (
	SDR Speed = iota + 1
	DDR
	QDR
	FDR10
	FDR
	EDR
	HDR
	NDR
	XDR
	NumSpeed
)

// speedTable holds each generation's name and the true data rate of one
// lane in Mb/s, after the line code: 8b/10b up to QDR, 64b/66b from FDR10 on.
// HDR and later are quoted net of 64b/66b and FEC, as the trade does.
var speedTable = [NumSpeed]struct {
	name     string
	laneMbps int64
}{
	SDR: {"SDR", 2000}, DDR: {"DDR", 4000}, QDR: {"QDR", 8000},
	FDR10: {"FDR10", 10000}, FDR: {"FDR", 13636}, EDR: {"EDR", 25000},
	HDR: {"HDR", 50000}, NDR: {"NDR", 100000}, XDR: {"XDR", 200000},
}

// IsValid reports whether s is a known generation.
func (s Speed) IsValid() bool { return s >= SDR && s < NumSpeed }

func (s Speed) String() string {
	if s.IsValid() {
		return speedTable[s].name
	}
	return fmt.Sprintf("Speed(%d)", uint8(s))
}

// ParseSpeed reads a generation by its name.
func ParseSpeed(name string) (Speed, bool) {
	for s := SDR; s < NumSpeed; s++ {
		if speedTable[s].name == name {
			return s, true
		}
	}
	return 0, false
}

// LinkRate is what one link moves: width times speed.
type LinkRate struct {
	Width Width
	Speed Speed
}

// Mbps is the data rate in megabits a second.
func (r LinkRate) Mbps() int64 {
	if !r.Speed.IsValid() {
		return 0
	}
	return speedTable[r.Speed].laneMbps * int64(r.Width.Lanes())
}

// ByteTime is how long n bytes occupy the link, rounded up to a picosecond.
func (r LinkRate) ByteTime(n int) Time {
	mbps := r.Mbps()
	if mbps == 0 {
		return Never
	}
	// 8 bits * 10^12 ps / (mbps * 10^6)
	return Time((int64(n)*8_000_000 + mbps - 1) / mbps)
}

// Lesser is what two ends can do together: the lesser width and the lesser speed. It is zero where one is.
func (r LinkRate) Lesser(o LinkRate) LinkRate {
	if o.Width.Lanes() < r.Width.Lanes() {
		r.Width = o.Width
	}
	r.Speed = min(r.Speed, o.Speed)
	return r
}

func (r LinkRate) String() string { return r.Width.String() + " " + r.Speed.String() }
