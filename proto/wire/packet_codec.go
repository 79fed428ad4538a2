package wire

import (
	"encoding/binary"
	"slices"
)

// Bounds of LRH's packet length in words (IBA 7.7.8): LRH, BTH and ICRC make
// the shortest IBA packet, and a raw one has at least five.
const (
	MinWordsRaw   = 5
	MinWordsIBA   = (LRHSize + BTHSize + ICRCSize) / 4
	MinWordsGRH   = MinWordsIBA + GRHSize/4
	maxPacketWord = lrhLengthMask
)

var zeroPad [4]byte

// AppendHeaders writes LRH and whatever follows it up to the payload, the fields
// as they stand.
func (p *Packet) AppendHeaders(b []byte) []byte {
	b = p.LRH.Append(b)
	switch p.LRH.LNH {
	case LNHRaw:
		return AppendRWH(b, p.RawType)
	case LNHIPv6:
		return b
	case LNHGlobal:
		b = p.GRH.Append(b)
	}
	b = p.BTH.Append(b)
	return p.appendExt(b, p.BTH.Opcode.Info().Ext)
}

// appendExt writes the extended headers of e in wire order.
func (p *Packet) appendExt(b []byte, e Ext) []byte {
	if e == 0 {
		return b
	}
	if e&ExtRDETH != 0 {
		b = AppendRDETH(b, p.EEContext)
	}
	if e&ExtDETH != 0 {
		b = p.DETH.Append(b)
	}
	if e&ExtXRCETH != 0 {
		b = AppendXRCETH(b, p.XRCSRQ)
	}
	if e&ExtFETH != 0 {
		h := p.FETH()
		b = h.Append(b)
	}
	if e&ExtRETH != 0 {
		b = p.RETH.Append(b)
	}
	if e&ExtAtomicETH != 0 {
		b = p.AtomicETH.Append(b)
	}
	if e&ExtAETH != 0 {
		b = p.AETH.Append(b)
	}
	if e&ExtAtomicAckETH != 0 {
		b = AppendAtomicAckETH(b, p.AtomicAck)
	}
	if e&(ExtImmDt|ExtIETH) != 0 {
		b = AppendImmDt(b, p.Imm)
	}
	return b
}

// Append writes the whole packet: headers, payload, padding and the CRCs. It
// allocates only if b lacks WireSize bytes of room.
//
// Fields go out as they stand, so that a test can make any malformed packet;
// Seal first for one that Parse accepts. A payload that lies elsewhere has to be
// fetched before, and a bundle taken apart.
func (p *Packet) Append(b []byte) []byte {
	b = slices.Grow(b, p.WireSize())
	start := len(b)
	b = p.AppendBare(b)
	if p.LRH.LNH >= LNHLocal {
		b = binary.BigEndian.AppendUint32(b, ICRC(b[start:]))
	}
	return binary.BigEndian.AppendUint16(b, VCRC(b[start:]))
}

// AppendBare is Append without the CRCs, for a carrier that vouches for what it
// carries by better means.
func (p *Packet) AppendBare(b []byte) []byte {
	b = p.AppendHeaders(b)
	b = append(b, p.Payload...)
	return append(b, zeroPad[:p.pad()]...)
}

// Parse reads a whole packet, VCRC included, into p. Payload refers to b; the
// fields that the packet does not have keep what they held. After an error p
// holds as much as was read before it.
//
// Checks come in the order in which the layers make them: VCRC, link version
// and length, as the link's packet check does (IBA 7.3), then ICRC, GRH (IBA 8.4),
// BTH (IBA 9.6.1). A raw packet has no pad count, so its payload includes the
// padding.
func (p *Packet) Parse(b []byte) error {
	p.Count, p.FarLen, p.Far = 0, 0, nil
	if err := CheckVCRC(b); err != nil {
		return err
	}
	n, err := p.parseLink(b, len(b))
	if err == nil {
		err = CheckICRC(b)
	}
	if err != nil {
		return err
	}
	end := len(b) - VCRCSize
	if p.LRH.LNH >= LNHLocal {
		end -= ICRCSize
	}
	return p.parseRest(b[:end], n)
}

// ParseBare reads what AppendBare has written, with all checks but those of the CRCs.
func (p *Packet) ParseBare(b []byte) error {
	p.Count, p.FarLen, p.Far = 0, 0, nil
	if len(b) < LRHSize {
		return truncated("LRH", len(b), LRHSize)
	}
	onLink := len(b) + VCRCSize
	if LNH(b[lrhSLLNH]&lrhLNHMask) >= LNHLocal {
		onLink += ICRCSize
	}
	n, err := p.parseLink(b, onLink)
	if err != nil {
		return err
	}
	return p.parseRest(b, n)
}

// parseLink reads LRH of a packet that has so many bytes on a link.
func (p *Packet) parseLink(b []byte, onLink int) (n int, err error) {
	if n, err = p.LRH.parse(b); err != nil {
		return n, err
	}
	if p.LRH.LVer != LRHVersion {
		return n, &ParseError{Kind: ErrVersion, Layer: "LRH", Field: "LVer", Got: uint64(p.LRH.LVer), Want: LRHVersion}
	}
	return n, p.checkLength(onLink)
}

// parseRest reads what follows LRH, whose length is n, up to the CRCs.
func (p *Packet) parseRest(b []byte, n int) error {
	switch p.LRH.LNH {
	case LNHRaw:
		raw, m, err := ParseRWH(b[n:])
		if err != nil {
			return err
		}
		p.RawType, p.Payload = raw, clip(b[n+m:])
		return nil
	case LNHIPv6:
		p.Payload = clip(b[n:])
		return nil
	case LNHGlobal:
		m, err := p.GRH.parse(b[n:])
		if err != nil {
			return err
		}
		n += m
		if err := p.GRH.check(int(p.LRH.Length)*4 - LRHSize - GRHSize); err != nil {
			return err
		}
	}
	m, err := p.BTH.parse(b[n:])
	if err != nil {
		return err
	}
	return p.parseTransport(b[n+m:])
}

// checkLength holds LRH's length against the bytes that came and against the
// least that its next header calls for.
func (p *Packet) checkLength(n int) error {
	want := uint64(n-VCRCSize) / 4
	if (n-VCRCSize)%4 != 0 || uint64(p.LRH.Length) != want || want > maxPacketWord {
		return &ParseError{Kind: ErrLength, Layer: "LRH", Field: "PktLen", Got: uint64(p.LRH.Length), Want: want}
	}
	least := uint64(MinWordsRaw)
	switch p.LRH.LNH {
	case LNHLocal:
		least = MinWordsIBA
	case LNHGlobal:
		least = MinWordsGRH
	}
	if want < least {
		return &ParseError{Kind: ErrLength, Layer: "LRH", Field: "PktLen", Got: want, Want: least}
	}
	return nil
}

// check is the validation of IBA 8.4.1: version, next header and length.
func (h *GRH) check(payLen int) error {
	switch {
	case h.IPVer != GRHVersion:
		return &ParseError{Kind: ErrVersion, Layer: "GRH", Field: "IPVer", Got: uint64(h.IPVer), Want: GRHVersion}
	case h.NxtHdr != GRHNextIBA:
		return &ParseError{Kind: ErrNext, Layer: "GRH", Field: "NxtHdr", Got: uint64(h.NxtHdr), Want: GRHNextIBA}
	case int(h.PayLen) != payLen:
		return &ParseError{Kind: ErrLength, Layer: "GRH", Field: "PayLen", Got: uint64(h.PayLen), Want: uint64(payLen)}
	}
	return nil
}

// parseTransport reads what follows BTH, given the bytes up to the ICRC.
func (p *Packet) parseTransport(b []byte) error {
	if p.BTH.TVer != BTHVersion {
		return &ParseError{Kind: ErrVersion, Layer: "BTH", Field: "TVer", Got: uint64(p.BTH.TVer), Want: BTHVersion}
	}
	info := p.BTH.Opcode.Info()
	if !info.Valid() {
		return &ParseError{Kind: ErrOpcode, Layer: "BTH", Field: "OpCode", Got: uint64(p.BTH.Opcode)}
	}
	if len(b) < int(info.ExtSize) {
		return truncated(info.Name, len(b), int(info.ExtSize))
	}
	p.parseExt(b, info.Ext)
	b = b[info.ExtSize:]
	// The words after the headers hold payload and padding; what cannot carry
	// payload must end here (IBA 9.2.6, 9.4).
	if len(b) != 0 && !info.Is(FlagPayload) {
		return &ParseError{Kind: ErrLength, Layer: info.Name, Field: "payload", Got: uint64(len(b)), Want: 0}
	}
	if int(p.BTH.Pad) > len(b) {
		return &ParseError{Kind: ErrPad, Layer: "BTH", Field: "PadCnt", Got: uint64(p.BTH.Pad), Want: uint64(len(b))}
	}
	p.Payload = clip(b[:len(b)-int(p.BTH.Pad)])
	return nil
}

// parseExt reads the extended headers of e in wire order; b holds them all.
func (p *Packet) parseExt(b []byte, e Ext) {
	if e == 0 {
		return
	}
	if e&ExtRDETH != 0 {
		p.EEContext = binary.BigEndian.Uint32(b) & mask24
		b = b[RDETHSize:]
	}
	if e&ExtDETH != 0 {
		p.DETH.parse(b)
		b = b[DETHSize:]
	}
	if e&ExtXRCETH != 0 {
		p.XRCSRQ = binary.BigEndian.Uint32(b) & mask24
		b = b[XRCETHSize:]
	}
	if e&ExtFETH != 0 {
		var h FETH
		h.parse(b)
		p.SetFETH(h)
		b = b[FETHSize:]
	}
	if e&ExtRETH != 0 {
		p.RETH.parse(b)
		b = b[RETHSize:]
	}
	if e&ExtAtomicETH != 0 {
		p.AtomicETH.parse(b)
		b = b[AtomicETHSize:]
	}
	if e&ExtAETH != 0 {
		p.AETH.parse(b)
		b = b[AETHSize:]
	}
	if e&ExtAtomicAckETH != 0 {
		p.AtomicAck = binary.BigEndian.Uint64(b)
		b = b[AtomicAckETHSize:]
	}
	if e&(ExtImmDt|ExtIETH) != 0 {
		p.Imm = binary.BigEndian.Uint32(b)
	}
}

// clip drops the room behind a payload, so that appending to it cannot write
// over the padding and the CRCs of the bytes it refers to.
func clip(b []byte) []byte { return b[:len(b):len(b)] }
