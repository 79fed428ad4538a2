package wire

import (
	"encoding/binary"
	"fmt"

	"softib/proto/ib"
)

// Layout of AETH (IBA 9.3.5).
const (
	AETHSize     = 4
	aethSyndrome = 0
	aethMSN      = 0 // 24 bits after the syndrome
)

// ParseAETH reads AETH and says how many bytes it took.
func ParseAETH(b []byte) (AETH, int, error) {
	var h AETH
	n, err := h.parse(b)
	return h, n, err
}

func (h *AETH) parse(b []byte) (int, error) {
	if len(b) < AETHSize {
		return 0, truncated("AETH", len(b), AETHSize)
	}
	h.Syndrome = Syndrome(b[aethSyndrome])
	h.MSN = binary.BigEndian.Uint32(b[aethMSN:]) & mask24
	return AETHSize, nil
}

// Append writes AETH.
func (h *AETH) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(h.Syndrome)<<24|h.MSN&mask24)
}

var nakNames = [...]string{"PSN sequence error", "invalid request", "remote access error", "remote operational error",
	"invalid RD request"}

func (s Syndrome) String() string {
	switch s.Type() {
	case SynAck:
		if s.Value() == SynAckNoCred.Value() {
			return "ACK"
		}
		return fmt.Sprintf("ACK, credit code %d", s.Value())
	case SynRNR:
		return fmt.Sprintf("RNR NAK, wait %v", ib.RNRDelay(s.Value()))
	case SynNAK:
		if int(s.Value()) < len(nakNames) {
			return "NAK, " + nakNames[s.Value()]
		}
	}
	return fmt.Sprintf("reserved syndrome %#02x", uint8(s))
}
