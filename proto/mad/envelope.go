package mad

import "softib/proto/ib"

// Envelope is what the headers around a datagram say about the other side: where
// it goes, or where it came from. It is the address that clients of a port's management
// service see, on every kind of fabric.
type Envelope struct {
	// LID is the other side's. A directed route that starts here has LIDPermissive.
	LID ib.LID
	// QPN is the other side's queue pair, 0 for subnet management, and QKey the key that goes with it.
	QPN  ib.QPN
	QKey ib.QKey
	SL   ib.SL
	// PathBits are the lower bits of our own LID, 0 unless LMC is set.
	PathBits uint8
	// PKeyIndex is the partition's place in our own table.
	PKeyIndex uint16

	// HasGRH says that a global route header is there, with the fields below.
	HasGRH    bool
	HopLimit  uint8
	TClass    uint8
	GIDIndex  uint8 // ours
	FlowLabel uint32
	GID       ib.GID // the other side's
}

// Reply turns the envelope of a request into that of its answer (IBA 13.5.4).
func (e Envelope) Reply() Envelope {
	if e.HasGRH {
		e.HopLimit = 0xFF
	}
	if e.QPN == ib.QPNGSI {
		e.QKey = ib.QKeyGSI
	}
	return e
}
