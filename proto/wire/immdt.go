package wire

import "encoding/binary"

// Sizes of ImmDt (IBA 9.3.6) and IETH (IBA 9.3.7). One is the immediate value,
// the other the R_Key to invalidate; no opcode has both.
const (
	ImmDtSize = 4
	IETHSize  = 4
)

// ParseImmDt reads the immediate value and says how many bytes it took.
func ParseImmDt(b []byte) (uint32, int, error) { return parseWord("ImmDt", b) }

// ParseIETH reads the R_Key to invalidate and says how many bytes it took.
func ParseIETH(b []byte) (uint32, int, error) { return parseWord("IETH", b) }

// AppendImmDt writes ImmDt.
func AppendImmDt(b []byte, imm uint32) []byte { return binary.BigEndian.AppendUint32(b, imm) }

// AppendIETH writes IETH.
func AppendIETH(b []byte, rkey uint32) []byte { return binary.BigEndian.AppendUint32(b, rkey) }

// parseWord reads a header that is a single 32-bit word.
func parseWord(layer string, b []byte) (uint32, int, error) {
	if len(b) < 4 {
		return 0, 0, truncated(layer, len(b), 4)
	}
	return binary.BigEndian.Uint32(b), 4, nil
}
