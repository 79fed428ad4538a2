package ibswitch

import (
	"errors"
	"fmt"

	"softib/node/link"
	"softib/proto/ib"
)

// DropPort in a forwarding entry discards the packet (IBA 18.2.4.3.2).
const DropPort ib.PortNum = 255

// Sizes of the blocks in which management writes the tables.
const (
	LFTBlock = 64 // LIDs of a linear forwarding block (IBA 14.2.5.9)
	MFTBlock = 32 // LIDs of a multicast forwarding block
	MFTPorts = 16 // ports of a multicast forwarding position
)

// ErrTable is matched by every refused table write.
var ErrTable = errors.New("switch table")

// TableError says what was wrong with a table write.
type TableError struct {
	Table, Field string
	Got, Want    int
}

func (e *TableError) Error() string {
	return fmt.Sprintf("ibswitch: %s: %s %d: want at most %d", e.Table, e.Field, e.Got, e.Want)
}

// Unwrap makes errors.Is(err, ErrTable) true.
func (e *TableError) Unwrap() error { return ErrTable }

// Route reads one entry of the linear forwarding table.
func (s *Switch) Route(lid ib.LID) ib.PortNum {
	if int(lid) >= len(s.lft) {
		return DropPort
	}
	return s.lft[lid]
}

// SetRoute writes one entry. The table grows by whole blocks.
func (s *Switch) SetRoute(lid ib.LID, port ib.PortNum) error {
	if lid > ib.LIDUnicastMax {
		return &TableError{"LinearForwardingTable", "LID", int(lid), int(ib.LIDUnicastMax)}
	}
	s.growLFT(int(lid)/LFTBlock + 1)
	s.lft[lid] = port
	s.activateLID(lid)
	return nil
}

// LFT reads a block of 64 entries.
func (s *Switch) LFT(block int) (e [LFTBlock]ib.PortNum, err error) {
	if block < 0 || block > int(ib.LIDUnicastMax)/LFTBlock {
		return e, &TableError{"LinearForwardingTable", "block", block, int(ib.LIDUnicastMax) / LFTBlock}
	}
	n := 0
	if from := block * LFTBlock; from < len(s.lft) {
		n = copy(e[:], s.lft[from:])
	}
	for ; n < len(e); n++ {
		e[n] = DropPort
	}
	return e, nil
}

// SetLFT writes a block of 64 entries.
func (s *Switch) SetLFT(block int, e [LFTBlock]ib.PortNum) error {
	if block < 0 || block > int(ib.LIDUnicastMax)/LFTBlock {
		return &TableError{"LinearForwardingTable", "block", block, int(ib.LIDUnicastMax) / LFTBlock}
	}
	s.growLFT(block + 1)
	copy(s.lft[block*LFTBlock:], e[:])
	for i := range e {
		s.activateLID(ib.LID(block*LFTBlock + i))
	}
	return nil
}

func (s *Switch) growLFT(blocks int) {
	old, want := len(s.lft), blocks*LFTBlock
	if old < want {
		if want > cap(s.lft) {
			// Managers write from the first block up.
			most := max(want, min(2*cap(s.lft), int(ib.LIDUnicastMax)+1))
			s.lft = append(make([]ib.PortNum, 0, most), s.lft...)
		}
		s.lft = s.lft[:want]
		for i := old; i < want; i++ {
			s.lft[i] = DropPort
		}
		s.activate()
	}
}

// MulticastPorts reads the ports of a group.
func (s *Switch) MulticastPorts(mlid ib.LID) ib.PortMask {
	i := int(mlid) - int(ib.LIDMulticastMin)
	if i < 0 || i >= len(s.mft) {
		return ib.PortMask{}
	}
	return s.mft[i]
}

// SetMulticastPorts writes the ports of a group.
func (s *Switch) SetMulticastPorts(mlid ib.LID, m ib.PortMask) error {
	if !mlid.IsMulticast() {
		return &TableError{"MulticastForwardingTable", "LID", int(mlid), int(ib.LIDMulticastMax)}
	}
	s.growMFT(int(mlid) - int(ib.LIDMulticastMin) + 1)
	s.mft[mlid-ib.LIDMulticastMin] = m
	return nil
}

func (s *Switch) growMFT(n int) {
	for len(s.mft) < n {
		s.mft = append(s.mft, ib.PortMask{})
	}
}

// maxMFTBlock is the last block of the multicast table.
const maxMFTBlock = int(ib.LIDMulticastMax-ib.LIDMulticastMin) / MFTBlock

// MFT reads a block of 32 groups, the 16 ports of one position.
func (s *Switch) MFT(block, position int) (e [MFTBlock]uint16, err error) {
	if err := checkMFT(block, position); err != nil {
		return e, err
	}
	for i := range e {
		if at := block*MFTBlock + i; at < len(s.mft) {
			e[i] = uint16(s.mft[at][position/4] >> (position % 4 * MFTPorts))
		}
	}
	return e, nil
}

// SetMFT writes a block of 32 groups, the 16 ports of one position.
func (s *Switch) SetMFT(block, position int, e [MFTBlock]uint16) error {
	if err := checkMFT(block, position); err != nil {
		return err
	}
	s.growMFT((block + 1) * MFTBlock)
	for i, mask := range e {
		w := &s.mft[block*MFTBlock+i][position/4]
		shift := position % 4 * MFTPorts
		*w = *w&^(0xFFFF<<shift) | uint64(mask)<<shift
	}
	return nil
}

func checkMFT(block, position int) error {
	if block < 0 || block > maxMFTBlock {
		return &TableError{"MulticastForwardingTable", "block", block, maxMFTBlock}
	}
	if position < 0 || position > 15 {
		return &TableError{"MulticastForwardingTable", "position", position, 15}
	}
	return nil
}

// SL2VL reads the map for packets from port in to port out: what a manager wrote or, until then, the
// levels spread over the lanes of the way out.
func (s *Switch) SL2VL(in, out ib.PortNum) [ib.NumSL]ib.VL {
	m := s.sl2vlAll
	if int(in) >= len(s.ports) || int(out) >= len(s.ports) {
		return m
	}
	if s.sl2vl != nil {
		m = s.sl2vl[s.pair(in, out)]
	}
	if !s.mapIsSet(in, out) {
		o := &s.ports[out]
		for sl, vl := range m {
			if !o.IsOperVL(vl) {
				m[sl] = ib.VL(uint8(sl) % o.OperVLs())
			}
		}
	}
	return m
}

// pair is the place of a pair of ports in the tables that go by pair.
func (s *Switch) pair(in, out ib.PortNum) int { return int(in)*len(s.ports) + int(out) }

// mapIsSet reports whether a manager wrote the map of a pair of ports.
func (s *Switch) mapIsSet(in, out ib.PortNum) bool {
	return s.slSetAll || s.slSet != nil && s.slSet[s.pair(in, out)]
}

// SetSL2VL writes the map for packets from port in to port out.
func (s *Switch) SetSL2VL(in, out ib.PortNum, m [ib.NumSL]ib.VL) error {
	top := len(s.ports) - 1
	if int(in) > top {
		return &TableError{"SLtoVLMappingTable", "input port", int(in), top}
	}
	if int(out) > top {
		return &TableError{"SLtoVLMappingTable", "output port", int(out), top}
	}
	if s.sl2vl == nil {
		if m == s.sl2vlAll && s.slSetAll {
			return nil
		}
		s.sl2vl = make([][ib.NumSL]ib.VL, len(s.ports)*len(s.ports))
		for i := range s.sl2vl {
			s.sl2vl[i] = s.sl2vlAll
		}
		if !s.slSetAll {
			s.slSet = make([]bool, len(s.sl2vl))
		}
	}
	at := s.pair(in, out)
	s.sl2vl[at] = m
	if s.slSet != nil {
		s.slSet[at] = true
	}
	return nil
}

// SetSL2VLAll writes one map for all port pairs.
func (s *Switch) SetSL2VLAll(m [ib.NumSL]ib.VL) {
	s.sl2vl, s.sl2vlAll = nil, m
	s.slSet, s.slSetAll = nil, true
}

// ByLane reports whether the maps go by the lane that a packet came on instead of its service level.
func (s *Switch) ByLane() bool { return s.byLane }

// SetByLane writes it.
func (s *Switch) SetByLane(on bool) { s.byLane = on }

// Info is what SwitchInfo says of the switch (IBA 14.2.5.4).
type Info struct {
	LinearFDBCap, MulticastFDBCap uint16
	LinearFDBTop                  ib.LID
	DefaultPort                   ib.PortNum
	DefaultMcastPrimary           ib.PortNum
	DefaultMcastNotPrimary        ib.PortNum
	LifeTimeValue                 uint8
	EnhancedPort0                 bool
}

// Info reads it.
func (s *Switch) Info() Info { return s.info }

// SetLinearFDBTop sets the last LID that is forwarded; above it packets are discarded.
func (s *Switch) SetLinearFDBTop(lid ib.LID) error {
	if lid > ib.LIDUnicastMax {
		return &TableError{"SwitchInfo", "LinearFDBTop", int(lid), int(ib.LIDUnicastMax)}
	}
	s.info.LinearFDBTop = lid
	s.activate()
	return nil
}

// SetDefaultMcast sets the ports for groups that no entry names; DropPort discards.
func (s *Switch) SetDefaultMcast(primary, notPrimary ib.PortNum) {
	s.info.DefaultMcastPrimary, s.info.DefaultMcastNotPrimary = primary, notPrimary
}

// SetLifeTime sets how long a packet may stay in the switch, as SwitchInfo
// encodes it.
func (s *Switch) SetLifeTime(code uint8) {
	s.info.LifeTimeValue = code
	for i := range s.ports {
		s.ports[i].SetSwitchLife(ib.HOQLife(code))
	}
}

// Port is one of the switch's ports; nil if there is none of that number.
func (s *Switch) Port(n ib.PortNum) *link.Port {
	if int(n) >= len(s.ports) {
		return nil
	}
	return &s.ports[n]
}

// NumPorts counts the external ports.
func (s *Switch) NumPorts() int { return len(s.ports) - 1 }

// LID is the address of the switch itself.
func (s *Switch) LID() (lid ib.LID, lmc uint8) { return s.lid, s.lmc }

// SetLID sets it.
func (s *Switch) SetLID(lid ib.LID, lmc uint8) { s.lid, s.lmc = lid, lmc }
