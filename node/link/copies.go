package link

import "math"

// Copies counts the copies of multicast packets that are in a node: a packet occupies its receive buffer until the last
// of them leaves. The zero value is ready.
type Copies struct {
	left []uint16 // by number less 1
	free []uint16 // numbers
}

// Begin gives a packet that is being multiplied a number, Frame.Group of its copies; it counts as one itself. It
// reports false when there are more than a frame can number, which takes a node full of minimal packets.
func (c *Copies) Begin() (id uint16, ok bool) {
	if n := len(c.free); n > 0 {
		id, c.free = c.free[n-1], c.free[:n-1]
	} else if len(c.left) == math.MaxUint16 {
		return 0, false
	} else {
		c.left = append(c.left, 0)
		id = uint16(len(c.left))
	}
	c.left[id-1] = 1
	return id, true
}

// Add counts another copy.
func (c *Copies) Add(id uint16) { c.left[id-1]++ }

// End takes a frame out of its group, and reports whether its receive buffer is free now; that of one without a group
// is.
func (c *Copies) End(f *Frame) bool {
	if f.Group == 0 {
		return true
	}
	n := &c.left[f.Group-1]
	*n--
	if *n == 0 {
		c.free = append(c.free, f.Group)
	}
	f.Group = 0
	return *n == 0
}

// Open is how many packets have copies in the node.
func (c *Copies) Open() int { return len(c.left) - len(c.free) }

// Holders leaves of frames that are in the node those that stand for a receive buffer: one of each group.
func (c *Copies) Holders(frames []*Frame) []*Frame {
	seen := make([]bool, len(c.left)+1)
	out := frames[:0]
	for _, f := range frames {
		if f.InPort == 0 || seen[f.Group] {
			continue
		}
		seen[f.Group] = f.Group != 0
		out = append(out, f)
	}
	return out
}
