package mad

import (
	"slices"
	"testing"

	"softib/proto/ib"
)

// A table that is cut into blocks and put together again is the same, wherever it ends; what a last block has beyond
// the end drops and goes nowhere.
func TestBlocks(t *testing.T) {
	for _, top := range []ib.LID{0, 1, 62, 63, 64, 127, 128, 200} {
		table := NewLFT(top)
		for i := range table {
			if table[i] != LFTNone {
				t.Fatalf("entry %d is %d", i, table[i])
			}
			table[i] = ib.PortNum(i % 37)
		}
		again := NewLFT(top)
		n := LFTBlocks(len(table))
		for b := range n {
			block := LFTBlock(table, b)
			block.PutInto(again, b)
		}
		if !slices.Equal(table, again) || n != int(top)/LFTPerBlock+1 {
			t.Errorf("top %d: %d blocks, %v, want %v", top, n, again, table)
		}
		beyond := LFTBlock(table, n)
		if beyond.PutInto(again, n); beyond[0] != LFTNone || !slices.Equal(table, again) {
			t.Errorf("top %d: a block beyond the end is %v", top, beyond)
		}
	}
	for keys, want := range map[int]int{0: 0, 1: 1, 32: 1, 33: 2, 64: 2} {
		if got := PKeyBlocks(keys); got != want {
			t.Errorf("%d keys are %d blocks, want %d", keys, got, want)
		}
	}
}
