package ib

import "math/bits"

// PortMask is a set of ports 0 to 255.
type PortMask [4]uint64

// Has reports whether port is in m.
func (m *PortMask) Has(port PortNum) bool { return m[port>>6]>>(port&63)&1 != 0 }

// Set puts port in m.
func (m *PortMask) Set(port PortNum) { m[port>>6] |= 1 << (port & 63) }

// Clear takes port out of m.
func (m *PortMask) Clear(port PortNum) { m[port>>6] &^= 1 << (port & 63) }

// Remove takes the ports of another mask out.
func (m *PortMask) Remove(o *PortMask) {
	for i := range m {
		m[i] &^= o[i]
	}
}

// Add takes the ports of o in.
func (m *PortMask) Add(o *PortMask) {
	for i := range m {
		m[i] |= o[i]
	}
}

// Empty reports whether m has no port.
func (m *PortMask) Empty() bool { return m[0]|m[1]|m[2]|m[3] == 0 }

// Count is how many ports m has.
func (m *PortMask) Count() int {
	return bits.OnesCount64(m[0]) + bits.OnesCount64(m[1]) + bits.OnesCount64(m[2]) + bits.OnesCount64(m[3])
}

// Cut takes the ports from n on out of m.
func (m *PortMask) Cut(n int) {
	for i := range m {
		if bits := max(n-i*64, 0); bits < 64 {
			m[i] &= 1<<bits - 1
		}
	}
}

// Pop takes the lowest port out of m.
func (m *PortMask) Pop() (PortNum, bool) {
	for i := range m {
		if m[i] != 0 {
			b := bits.TrailingZeros64(m[i])
			m[i] &= m[i] - 1
			return PortNum(i*64 + b), true
		}
	}
	return 0, false
}
