package mad

import "softib/proto/ib"

// Tables that are longer than a datagram are read and written in blocks. Which entries are in which block is said here.

// LFTBlocks is how many blocks a linear forwarding table of some length has.
func LFTBlocks(entries int) int { return (entries + LFTPerBlock - 1) / LFTPerBlock }

// PKeyBlocks is how many blocks a partition table has that holds so many keys.
func PKeyBlocks(keys int) int { return (keys + PKeysPerBlock - 1) / PKeysPerBlock }

// NewLFT is a linear forwarding table up to a LID that drops everything.
func NewLFT(top ib.LID) []ib.PortNum {
	table := make([]ib.PortNum, int(top)+1)
	for i := range table {
		table[i] = LFTNone
	}
	return table
}

// LFTBlock is a block of a table. What lies beyond the table's end drops.
func LFTBlock(table []ib.PortNum, block int) (t LFT) {
	for i := copy(t[:], table[min(block*LFTPerBlock, len(table)):]); i < len(t); i++ {
		t[i] = LFTNone
	}
	return t
}

// PutInto makes it a block of a table, as far as that goes.
func (t *LFT) PutInto(table []ib.PortNum, block int) {
	copy(table[min(block*LFTPerBlock, len(table)):], t[:])
}
