package ib

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// LID is a local identifier: the address that switches forward by.
type LID uint16

const (
	// LIDReserved (0) is never assigned.
	LIDReserved LID = 0
	// LIDUnicastMax is the last unicast LID (IBA 4.1.3).
	LIDUnicastMax LID = 0xBFFF
	// LIDMulticastMin is the first multicast LID.
	LIDMulticastMin LID = 0xC000
	// LIDMulticastMax is the last multicast LID.
	LIDMulticastMax LID = 0xFFFE
	// LIDPermissive reaches whoever is at the other end of the link.
	LIDPermissive LID = 0xFFFF
)

// IsUnicast reports whether l may be assigned to a port.
func (l LID) IsUnicast() bool { return l != LIDReserved && l <= LIDUnicastMax }

// IsMulticast reports whether l names a multicast group.
func (l LID) IsMulticast() bool { return l >= LIDMulticastMin && l <= LIDMulticastMax }

func (l LID) String() string { return strconv.Itoa(int(l)) }

// GUID is an EUI-64 that names a node, a system image or a port for life.
type GUID uint64

func (g GUID) String() string { return fmt.Sprintf("0x%016x", uint64(g)) }

// ParseGUID reads a GUID as hex, with or without 0x and colons.
func ParseGUID(s string) (GUID, error) {
	t := s
	if len(t) > 2 && t[0] == '0' && (t[1] == 'x' || t[1] == 'X') {
		t = t[2:]
	}
	t = strings.ReplaceAll(t, ":", "")
	if len(t) == 0 || len(t) > 16 {
		return 0, fmt.Errorf("ib: GUID %q: want 1 to 16 hex digits", s)
	}
	v, err := strconv.ParseUint(t, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("ib: GUID %q: want 1 to 16 hex digits", s)
	}
	return GUID(v), nil
}

// GID is a 128-bit global identifier, an IPv6 address in form (IBA 4.1.1).
type GID [16]byte

// DefaultGIDPrefix is the link-local subnet prefix fe80::/64.
const DefaultGIDPrefix uint64 = 0xFE80_0000_0000_0000

// SiteLocalPrefix is the first of the site-local subnet prefixes, fec0::/64, whose last 16 bits number the subnets of a
// site (IBA 4.1.1).
const SiteLocalPrefix uint64 = 0xFEC0_0000_0000_0000

// MakeGID joins a subnet prefix and a port GUID.
func MakeGID(prefix uint64, guid GUID) GID {
	var g GID
	binary.BigEndian.PutUint64(g[:8], prefix)
	binary.BigEndian.PutUint64(g[8:], uint64(guid))
	return g
}

// Prefix is the subnet prefix, the upper half.
func (g GID) Prefix() uint64 { return binary.BigEndian.Uint64(g[:8]) }

// GUID is the interface identifier, the lower half.
func (g GID) GUID() GUID { return GUID(binary.BigEndian.Uint64(g[8:])) }

// IsMulticast reports whether g is in ff00::/8.
func (g GID) IsMulticast() bool { return g[0] == 0xFF }

// IsZero reports whether g is unset.
func (g GID) IsZero() bool { return g == GID{} }

func (g GID) String() string { return netip.AddrFrom16(g).StringExpanded() }

// ParseGID reads a GID in IPv6 notation.
func ParseGID(s string) (GID, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is6() || a.Zone() != "" {
		return GID{}, fmt.Errorf("ib: GID %q: want an IPv6 address such as fe80::1", s)
	}
	return a.As16(), nil
}

// QPN is a 24-bit queue pair number.
type QPN uint32

const (
	// QPNMask keeps the 24 bits that travel.
	QPNMask QPN = 0xFFFFFF
	// QPNSMI is QP0, the subnet management interface.
	QPNSMI QPN = 0
	// QPNGSI is QP1, the general services interface.
	QPNGSI QPN = 1
	// QPNMulticast is the destination QP of every multicast packet (IBA 9.2.4).
	QPNMulticast QPN = 0xFFFFFF
)

func (q QPN) String() string { return fmt.Sprintf("0x%06x", uint32(q)) }

// PKey is a partition key: 15 bits of partition and, on top, the membership.
type PKey uint16

const (
	// PKeyDefault is the default partition, full member.
	PKeyDefault PKey = 0xFFFF
	// PKeyFull is the membership bit.
	PKeyFull PKey = 0x8000
	// PKeyBase masks the partition number.
	PKeyBase PKey = 0x7FFF
)

// Base is the partition number without the membership bit.
func (k PKey) Base() PKey { return k & PKeyBase }

// IsFull reports full membership.
func (k PKey) IsFull() bool { return k&PKeyFull != 0 }

// IsValid reports whether k names a partition at all (IBA 10.9.1.1).
func (k PKey) IsValid() bool { return k.Base() != 0 }

// Matches is the partition check of IBA 10.9.3: same partition, and not
// both limited members.
func (k PKey) Matches(other PKey) bool {
	return k.Base() != 0 && k.Base() == other.Base() && (k|other)&PKeyFull != 0
}

func (k PKey) String() string { return fmt.Sprintf("0x%04x", uint16(k)) }

// QKey guards datagram queue pairs.
type QKey uint32

// QKeyGSI is the well-known Q_Key of QP1 (IBA 10.2.5).
const QKeyGSI QKey = 0x80010000

// QKeyIPoIB is the Q_Key of the groups, and so of the datagrams, of IP over InfiniBand where nobody has chosen another
// (RFC 4391, 4). rdma_cm's IPoIB port space uses its groups' too.
const QKeyIPoIB QKey = 0x0B1B

// SL is a service level, 0 to 15.
type SL uint8

// VL is a virtual lane, 0 to 15.
type VL uint8

const (
	// VLMgmt carries subnet management packets, outside flow control.
	VLMgmt VL = 15
	// NumVL counts the lanes of a link.
	NumVL = 16
	// NumSL counts service levels.
	NumSL = 16
)

// PortNum numbers a node's ports: HCAs start at 1, a switch's port 0 is itself.
type PortNum uint8
