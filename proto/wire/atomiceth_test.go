package wire

import "testing"

var headerAtomicETH = header[AtomicETH]{
	size:   AtomicETHSize,
	golden: "11121314151617185566778821222324252627283132333435363738",
	value: AtomicETH{
		VA: 0x1112131415161718, RKey: 0x55667788, Swap: 0x2122232425262728, Compare: 0x3132333435363738,
	},
	parse:  ParseAtomicETH,
	append: func(h AtomicETH, b []byte) []byte { return h.Append(b) },
}

func TestAtomicETH(t *testing.T) { headerAtomicETH.check(t) }
func FuzzAtomicETH(f *testing.F) { headerAtomicETH.fuzz(f) }

var headerAtomicAckETH = header[uint64]{
	size:   AtomicAckETHSize,
	golden: "4142434445464748",
	value:  0x4142434445464748,
	parse:  ParseAtomicAckETH,
	append: func(v uint64, b []byte) []byte { return AppendAtomicAckETH(b, v) },
}

func TestAtomicAckETH(t *testing.T) { headerAtomicAckETH.check(t) }
func FuzzAtomicAckETH(f *testing.F) { headerAtomicAckETH.fuzz(f) }
