package policy

import (
	"fmt"
	"math/bits"

	"softib/proto/ib"
)

// Membership is what a port is in a partition.
type Membership uint8

// Memberships. Both gives the port a full and a limited key.
const (
	NotMember Membership = iota
	Limited
	Full
	Both
	NumMembership
)

var membershipWords = [NumMembership]string{"none", "limited", "full", "both"}

func (m Membership) String() string {
	if m < NumMembership {
		return membershipWords[m]
	}
	return fmt.Sprintf("Membership(%d)", uint8(m))
}

// Who is a word of a partition's list that stands for ports.
type Who uint8

// The words for ports. ByGUID is one port; the others are as in the file.
const (
	ByGUID Who = iota
	All
	AllCAs
	AllSwitches
	AllRouters
	AllVCAs
	Self
	NumWho
)

// whoWords are the file's words. ALL_VCAS is not in OpenSM 3.3.23; newer managers know it.
var whoWords = [NumWho]string{All: "ALL", AllCAs: "ALL_CAS", AllSwitches: "ALL_SWITCHES", AllRouters: "ALL_ROUTERS",
	AllVCAs: "ALL_VCAS", Self: "SELF"}

func (w Who) String() string {
	if w < NumWho {
		return whoWords[w]
	}
	return fmt.Sprintf("Who(%d)", uint8(w))
}

// Member is an entry of a partition's list of ports.
type Member struct {
	Who        Who
	GUID       ib.GUID // with ByGUID
	Membership Membership
	// Index0 asks for the first place in the tables of these ports alone. The file has no word for it.
	Index0 bool
}

// GroupParams are what a multicast group is made with.
type GroupParams struct {
	Rate      uint8 // as PathRecord encodes it; 3 is 10 Gb/s
	MTU       ib.MTU
	SL        ib.SL
	Scopes    uint16 // a set of scopes, bit by number; none means link-local (2)
	QKey      ib.QKey
	TClass    uint8
	FlowLabel uint32
}

// Defaults of multicast groups.
const (
	DefaultRate  uint8   = 3
	DefaultMTU           = ib.MTU2048
	DefaultScope uint8   = 2
	IPoIBQKey    ib.QKey = 0x0B1B // RFC 4391, 4
)

func defaultGroupParams() GroupParams { return GroupParams{Rate: DefaultRate, MTU: DefaultMTU} }

// MulticastGroup is an mgid line: a group that exists from the start.
type MulticastGroup struct {
	MGID   ib.GID
	Params GroupParams
}

// PartitionDef is one definition of the file, up to its semicolon.
type PartitionDef struct {
	Name string
	// PKey is the number in the file, without the membership bit; 0 if there is none.
	PKey ib.PKey
	// Key is the number that the definition has: PKey, or the one of an earlier definition of the same name, or
	// the next free one. Definitions with one Key are one partition.
	Key ib.PKey
	// Index0 asks for the first place in the members' tables.
	Index0 bool
	// IPoIB asks for the broadcast group of RFC 4391, made with Params.
	IPoIB   bool
	Params  GroupParams
	Members []Member
	Groups  []MulticastGroup
	// Rest takes in all ports of adapters that are in no other partition but the default one, as full members and at
	// the first place of their tables. The file has no word for it.
	Rest bool
	// Paths bounds what paths in the partition may carry, and gives them a level. The file has no words for it.
	Paths PathLimits
}

// PathLimits are what paths in a partition get.
type PathLimits struct {
	// SL is the service level of paths, with or without the option qos, if HasSL.
	SL    ib.SL
	HasSL bool
	// Rate, as PathRecord encodes it, and MTU are bounds; 0 is none.
	Rate uint8
	MTU  ib.MTU
}

// Partitions is a partitions.conf.
type Partitions struct {
	Defs []PartitionDef
}

// DefaultPartitionName is the name of partition 0x7fff before a file gives it another.
const DefaultPartitionName = "Default"

// DefaultPartitions is what is in force when there is no file, or one without a definition: everybody is a full member
// of the default partition, which carries IPoIB.
func DefaultPartitions() Partitions {
	return Partitions{Defs: []PartitionDef{{
		Name: DefaultPartitionName, PKey: ib.PKeyBase, Key: ib.PKeyBase, IPoIB: true, Params: defaultGroupParams(),
		Members: []Member{{Who: All, Membership: Full}},
	}}}
}

// String is the file's text.
func (p Partitions) String() string { return string(p.Append(nil)) }

// Append writes the file. What it writes parses to p.
func (p Partitions) Append(dst []byte) []byte {
	for i := range p.Defs {
		dst = p.Defs[i].append(dst)
	}
	return dst
}

func (d *PartitionDef) append(dst []byte) []byte {
	dst = append(dst, d.Name...)
	switch {
	case d.PKey == 0 && (d.Name == "" || !isDigit(d.Name[0])):
	case d.Name == "":
		dst = fmt.Appendf(dst, "0x%04x", uint16(d.PKey))
	default:
		dst = fmt.Appendf(dst, "=0x%04x", uint16(d.PKey))
	}
	if d.Index0 {
		dst = append(dst, ",indx0"...)
	}
	if d.IPoIB {
		dst = append(dst, ",ipoib"...)
	}
	dst = d.Params.append(dst, defaultGroupParams())
	dst = append(dst, ":\n"...)
	for i := range d.Groups {
		g := &d.Groups[i]
		dst = fmt.Appendf(dst, "\tmgid=%s", g.MGID)
		dst = g.Params.append(dst, inherited(d.Params))
		dst = append(dst, '\n')
	}
	for i, m := range d.Members {
		if i > 0 {
			dst = append(dst, ",\n"...)
		}
		if m.Who == ByGUID {
			dst = fmt.Appendf(dst, "\t%s=%s", m.GUID, m.Membership)
		} else {
			dst = fmt.Appendf(dst, "\t%s=%s", m.Who, m.Membership)
		}
	}
	return append(dst, ";\n"...)
}

// append writes what differs from base. Scopes only ever add up.
func (g GroupParams) append(dst []byte, base GroupParams) []byte {
	if g.Rate != base.Rate {
		dst = fmt.Appendf(dst, ",rate=%d", g.Rate)
	}
	if g.MTU != base.MTU {
		dst = fmt.Appendf(dst, ",mtu=%d", uint8(g.MTU))
	}
	if g.SL != base.SL {
		dst = fmt.Appendf(dst, ",sl=%d", g.SL)
	}
	for more := g.Scopes &^ base.Scopes; more != 0; more &= more - 1 {
		dst = fmt.Appendf(dst, ",scope=%d", bits.TrailingZeros16(more))
	}
	if g.QKey != base.QKey {
		dst = fmt.Appendf(dst, ",Q_Key=0x%x", uint32(g.QKey))
	}
	if g.TClass != base.TClass {
		dst = fmt.Appendf(dst, ",TClass=%d", g.TClass)
	}
	if g.FlowLabel != base.FlowLabel {
		dst = fmt.Appendf(dst, ",FlowLabel=0x%x", g.FlowLabel)
	}
	return dst
}

// inherited is what an mgid line starts from: its partition's parameters, all but TClass.
func inherited(p GroupParams) GroupParams {
	p.TClass = 0
	return p
}
