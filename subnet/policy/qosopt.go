package policy

import (
	"fmt"
	"strconv"

	"softib/proto/ib"
)

// VLWeight is an entry of a VL arbitration table (IBA 7.6.9): a lane and how much it may send in its turn,
// in units of 64 bytes.
type VLWeight struct {
	VL     ib.VL
	Weight uint8
}

// PortKind is a kind of port that QoS options are given for.
type PortKind uint8

// The kinds of ports; QoSAll has the options for kinds that have none of their own.
const (
	QoSAll         PortKind = iota
	QoSCA                   // ports of channel adapters
	QoSSwitchPort0          // port 0 of a switch, where it is enhanced
	QoSSwitchPort           // the external ports of a switch
	QoSRouter               // ports of routers
	NumPortKind
)

// portKindPrefix begins the options of a kind.
var portKindPrefix = [NumPortKind]string{"qos_", "qos_ca_", "qos_sw0_", "qos_swe_", "qos_rtr_"}

var portKindNames = [NumPortKind]string{"all", "CA", "switch port 0", "switch port", "router"}

func (k PortKind) String() string {
	if k < NumPortKind {
		return portKindNames[k]
	}
	return fmt.Sprintf("PortKind(%d)", uint8(k))
}

// QoSOptions are the options of one kind of port as the file has them; what is unset comes from
// QoSAll, and then from OpenSM's defaults.
type QoSOptions struct {
	MaxVLs    uint8 // 0 is unset
	HighLimit int16 // -1 is unset
	VLArbHigh []VLWeight
	VLArbLow  []VLWeight
	// SL2VL has up to 16 lanes, by service level; levels beyond its end use lane 0.
	SL2VL []ib.VL
}

// PortQoS is what a port of some kind gets.
type PortQoS struct {
	// MaxVLs limits the data lanes in use.
	MaxVLs uint8
	// HighLimit is PortInfo:VLHighLimit, in units of 4096 bytes; 255 is no limit.
	HighLimit uint8
	VLArbHigh []VLWeight
	VLArbLow  []VLWeight
	// SL2VL is the lane of each service level; 15 drops.
	SL2VL [ib.NumSL]ib.VL
}

// defaultPortQoS is what OpenSM uses where the file says nothing: lane 0 has high priority,
// all others share what remains.
func defaultPortQoS() PortQoS {
	q := PortQoS{MaxVLs: 15}
	for vl := range ib.VLMgmt {
		high, low := VLWeight{VL: vl}, VLWeight{VL: vl, Weight: 4}
		if vl == 0 {
			high.Weight, low.Weight = 4, 0
		}
		q.VLArbHigh = append(q.VLArbHigh, high)
		q.VLArbLow = append(q.VLArbLow, low)
	}
	for sl := range ib.NumSL {
		q.SL2VL[sl] = ib.VL(sl)
	}
	q.SL2VL[15] = 7
	return q
}

// PortQoS joins the options of a kind of port with those for all kinds and the defaults.
func (c *Config) PortQoS(kind PortKind) PortQoS {
	q := defaultPortQoS()
	for _, o := range []*QoSOptions{&c.QoSOptions[QoSAll], &c.QoSOptions[kind]} {
		if o.MaxVLs > 0 {
			q.MaxVLs = o.MaxVLs
		}
		if o.HighLimit >= 0 {
			q.HighLimit = uint8(o.HighLimit)
		}
		if o.VLArbHigh != nil {
			q.VLArbHigh = o.VLArbHigh
		}
		if o.VLArbLow != nil {
			q.VLArbLow = o.VLArbLow
		}
		if o.SL2VL != nil {
			q.SL2VL = [ib.NumSL]ib.VL{}
			copy(q.SL2VL[:], o.SL2VL)
		}
	}
	return q
}

// vlArbMax is how many entries the two blocks of a table hold.
const vlArbMax = 64

// vlArb reads a list of lane:weight.
func (r *reporter) vlArb(w word) ([]VLWeight, bool) {
	var out []VLWeight
	for _, item := range w.split(',', false) {
		if item.text == "" {
			continue
		}
		vlWord, weightWord, sep := item.cut(":")
		if sep == 0 {
			r.fail(item, ErrSyntax, "expected lane:weight, such as 0:64")
			return nil, false
		}
		vl, ok1 := r.number(vlWord, "a data lane", 0, uint64(ib.VLMgmt-1))
		weight, ok2 := r.number(weightWord, "a weight", 0, 255)
		if !ok1 || !ok2 {
			return nil, false
		}
		out = append(out, VLWeight{ib.VL(vl), uint8(weight)})
	}
	if len(out) == 0 || len(out) > vlArbMax {
		r.fail(w, ErrValue, "expected 1 to %d entries lane:weight", vlArbMax)
		return nil, false
	}
	return out, true
}

func appendVLArb(dst []byte, list []VLWeight) []byte {
	for i, e := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = fmt.Appendf(dst, "%d:%d", e.VL, e.Weight)
	}
	return dst
}

// sl2vl reads a list of lanes, by service level. OpenSM takes short lists, and so does its manual.
func (r *reporter) sl2vl(w word) ([]ib.VL, bool) {
	var out []ib.VL
	for _, item := range w.split(',', false) {
		if item.text == "" {
			continue
		}
		vl, ok := r.number(item, "a lane", 0, uint64(ib.VLMgmt))
		if !ok {
			return nil, false
		}
		out = append(out, ib.VL(vl))
	}
	if len(out) == 0 || len(out) > ib.NumSL {
		r.fail(w, ErrValue, "expected 16 lanes, one for each service level")
		return nil, false
	}
	return out, true
}

func appendSL2VL(dst []byte, list []ib.VL) []byte {
	for i, vl := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(vl), 10)
	}
	return dst
}
