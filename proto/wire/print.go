package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
)

// dumpMax bounds the payload that the long form shows.
const dumpMax = 4096

// layer is one header as text: its name, its fields for the long form, and a
// summary for the line.
type layer struct {
	name   string
	brief  string
	fields []field
	data   []byte // payload, for the hex dump
}

type field struct {
	name  string
	value string
}

// printer walks bytes of any kind, as far as they make sense. Unlike Parse it
// goes on past what is merely wrong, and keeps note of it.
type printer struct {
	layers []layer
	notes  []string
}

func (p *printer) add(name, brief string, fields ...field) {
	p.layers = append(p.layers, layer{name: name, brief: brief, fields: fields})
}

// note keeps what was wrong; the package's own prefix says nothing here.
func (p *printer) note(err error) {
	if err != nil {
		p.notes = append(p.notes, strings.TrimPrefix(err.Error(), "wire: "))
	}
}

func f(name, format string, args ...any) field {
	return field{name, fmt.Sprintf(format, args...)}
}

// Sprint is the packet b on one line. Any bytes will do: what is missing,
// wrong or left over is said in brackets at the end.
func Sprint(b []byte) string {
	var p printer
	p.walk(b)
	var parts []string
	for _, l := range p.layers {
		if l.brief != "" {
			parts = append(parts, l.brief)
		}
	}
	for _, n := range p.notes {
		parts = append(parts, "["+n+"]")
	}
	return strings.Join(parts, " ")
}

// Fprint writes the packet b with one line per field and a dump of its
// payload. Any bytes will do, as with Sprint.
func Fprint(w io.Writer, b []byte) error {
	var p printer
	p.walk(b)
	var out bytes.Buffer
	fmt.Fprintf(&out, "%d bytes: %s\n", len(b), Sprint(b))
	for _, l := range p.layers {
		fmt.Fprintf(&out, "%s\n", l.name)
		for _, f := range l.fields {
			fmt.Fprintf(&out, "  %-10s %s\n", f.name, f.value)
		}
		if len(l.data) > 0 {
			for line := range strings.Lines(hex.Dump(l.data[:min(len(l.data), dumpMax)])) {
				out.WriteString("  " + line)
			}
			if n := len(l.data) - dumpMax; n > 0 {
				fmt.Fprintf(&out, "  and %d bytes more\n", n)
			}
		}
	}
	for _, n := range p.notes {
		fmt.Fprintf(&out, "! %s\n", n)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// String is the packet on one line, as Sprint gives it for its bytes.
func (p *Packet) String() string { return Sprint(p.Append(nil)) }

func (p *printer) walk(b []byte) {
	if len(b) == LinkPacketSize {
		p.link(b)
		return
	}
	h, n, err := ParseLRH(b)
	if err != nil {
		p.note(err)
		p.rest("Bytes", b)
		return
	}
	p.lrh(&h)
	body, whole := p.bounds(&h, b)
	switch h.LNH {
	case LNHRaw:
		et, m, err := ParseRWH(body[n:])
		if err != nil {
			p.note(err)
			p.rest("Bytes", body[n:])
			return
		}
		p.add("RWH", fmt.Sprintf("raw EtherType %#04x", et), f("EtherType", "%#04x", et))
		n += m
		p.rest("Payload", body[n:])
	case LNHIPv6:
		p.add("IPv6", "raw IPv6")
		p.rest("Payload", body[n:])
	default:
		p.iba(&h, body[n:])
	}
	if whole {
		p.crcs(b, h.LNH)
	}
}

// bounds finds where the headers and payload end. Only if all bytes that LRH
// announces are there can the CRCs be told from payload.
func (p *printer) bounds(h *LRH, b []byte) (body []byte, whole bool) {
	want := int(h.Length)*4 + VCRCSize
	crcs, least := VCRCSize, LRHSize
	switch h.LNH {
	case LNHLocal:
		crcs, least = ICRCSize+VCRCSize, LRHSize+BTHSize
	case LNHGlobal:
		crcs, least = ICRCSize+VCRCSize, LRHSize+GRHSize+BTHSize
	}
	if want < least+crcs {
		p.notes = append(p.notes, fmt.Sprintf("LRH.PktLen: %d words are too few", h.Length))
		return b, false
	}
	if len(b) != want {
		p.notes = append(p.notes, fmt.Sprintf("LRH.PktLen: %d bytes announced, %d present", want, len(b)))
	}
	if len(b) < want {
		return b, false
	}
	return b[:want-crcs], len(b) == want
}

func (p *printer) link(b []byte) {
	k := decodeLinkPacket(b)
	_, _, err := ParseLinkPacket(b)
	p.add("Flow control", fmt.Sprintf("flow control %v VL%d FCTBS %d FCCL %d", k.Op, k.VL, k.FCTBS, k.FCCL),
		f("Op", "%d (%v)", uint8(k.Op), k.Op), f("FCTBS", "%d", k.FCTBS), f("VL", "%d", k.VL), f("FCCL", "%d", k.FCCL),
		f("LPCRC", "%#04x", binary.BigEndian.Uint16(b[linkLPCRC:])))
	p.note(err)
}

func (p *printer) lrh(h *LRH) {
	p.add("LRH", fmt.Sprintf("%v > %v VL%d SL%d", h.SLID, h.DLID, h.VL, h.SL),
		f("VL", "%d", h.VL), f("LVer", "%d", h.LVer), f("SL", "%d", h.SL), f("LNH", "%d (%v)", uint8(h.LNH), h.LNH),
		f("DLID", "%d (%#04x)", h.DLID, uint16(h.DLID)), f("PktLen", "%d words", h.Length),
		f("SLID", "%d (%#04x)", h.SLID, uint16(h.SLID)))
	if h.LVer != LRHVersion {
		p.note(&ParseError{Kind: ErrVersion, Layer: "LRH", Field: "LVer", Got: uint64(h.LVer), Want: LRHVersion})
	}
}

// iba prints what follows LRH in a packet with a transport header.
func (p *printer) iba(h *LRH, b []byte) {
	if h.LNH == LNHGlobal {
		g, n, err := ParseGRH(b)
		if err != nil {
			p.note(err)
			p.rest("Bytes", b)
			return
		}
		p.add("GRH", fmt.Sprintf("%v > %v", g.SGID, g.DGID),
			f("IPVer", "%d", g.IPVer), f("TClass", "%#02x", g.TClass), f("FlowLabel", "%#05x", g.Flow),
			f("PayLen", "%d", g.PayLen), f("NxtHdr", "%#02x", g.NxtHdr), f("HopLmt", "%d", g.HopLimit),
			f("SGID", "%v", g.SGID), f("DGID", "%v", g.DGID))
		p.note(g.check(int(h.Length)*4 - LRHSize - GRHSize))
		b = b[n:]
	}
	t, n, err := ParseBTH(b)
	if err != nil {
		p.note(err)
		p.rest("Bytes", b)
		return
	}
	p.bth(&t)
	b = b[n:]
	info := t.Opcode.Info()
	if !info.Valid() {
		p.note(&ParseError{Kind: ErrOpcode, Layer: "BTH", Field: "OpCode", Got: uint64(t.Opcode)})
		p.rest("Bytes", b)
		return
	}
	b, ok := p.ext(b, info.Ext)
	if !ok {
		p.rest("Bytes", b)
		return
	}
	pad := int(t.Pad)
	if pad > len(b) {
		p.note(&ParseError{Kind: ErrPad, Layer: "BTH", Field: "PadCnt", Got: uint64(pad), Want: uint64(len(b))})
		pad = 0
	}
	p.rest("Payload", b[:len(b)-pad])
}

func (p *printer) bth(t *BTH) {
	flags := []struct {
		set  bool
		name string
	}{{t.Solicited, "SE"}, {t.Migrate, "M"}, {t.FECN, "FECN"}, {t.BECN, "BECN"}, {t.AckReq, "AckReq"}}
	var set []string
	for _, x := range flags {
		if x.set {
			set = append(set, x.name)
		}
	}
	brief := fmt.Sprintf("%v QP %v PSN %d PKey %v", t.Opcode, t.DestQP, uint32(t.PSN), t.PKey)
	if len(set) > 0 {
		brief += " " + strings.Join(set, ",")
	}
	p.add("BTH", brief,
		f("OpCode", "%#02x (%v)", uint8(t.Opcode), t.Opcode), f("Flags", "%s", strings.Join(set, " ")),
		f("PadCnt", "%d", t.Pad), f("TVer", "%d", t.TVer), f("P_Key", "%v", t.PKey),
		f("DestQP", "%v", t.DestQP), f("PSN", "%d (%#06x)", uint32(t.PSN), uint32(t.PSN)))
	if t.TVer != BTHVersion {
		p.note(&ParseError{Kind: ErrVersion, Layer: "BTH", Field: "TVer", Got: uint64(t.TVer), Want: BTHVersion})
	}
}

// extPrinters has one row per extended header, in wire order.
var extPrinters = []struct {
	ext   Ext
	print func(p *printer, b []byte) (int, error)
}{
	{ExtRDETH, func(p *printer, b []byte) (int, error) {
		v, n, err := ParseRDETH(b)
		if err == nil {
			p.add("RDETH", fmt.Sprintf("EE %#06x", v), f("EECnxt", "%#06x", v))
		}
		return n, err
	}},
	{ExtDETH, func(p *printer, b []byte) (int, error) {
		h, n, err := ParseDETH(b)
		if err == nil {
			p.add("DETH", fmt.Sprintf("from QP %v QKey %#08x", h.SrcQP, uint32(h.QKey)),
				f("Q_Key", "%#08x", uint32(h.QKey)), f("SrcQP", "%v", h.SrcQP))
		}
		return n, err
	}},
	{ExtXRCETH, func(p *printer, b []byte) (int, error) {
		v, n, err := ParseXRCETH(b)
		if err == nil {
			p.add("XRCETH", fmt.Sprintf("SRQ %#06x", v), f("XRCSRQ", "%#06x", v))
		}
		return n, err
	}},
	{ExtFETH, func(p *printer, b []byte) (int, error) {
		h, n, err := ParseFETH(b)
		if err == nil {
			p.add("FETH", fmt.Sprintf("placement %d level %d", h.Type, h.Level), f("PLT", "%d", h.Type),
				f("SEL", "%d", h.Level))
		}
		return n, err
	}},
	{ExtRETH, func(p *printer, b []byte) (int, error) {
		h, n, err := ParseRETH(b)
		if err == nil {
			p.add("RETH", fmt.Sprintf("VA %#x RKey %#08x DMALen %d", h.VA, h.RKey, h.DMALen),
				f("VA", "%#016x", h.VA), f("R_Key", "%#08x", h.RKey), f("DMALen", "%d", h.DMALen))
		}
		return n, err
	}},
	{ExtAtomicETH, func(p *printer, b []byte) (int, error) {
		h, n, err := ParseAtomicETH(b)
		if err == nil {
			p.add("AtomicETH", fmt.Sprintf("VA %#x RKey %#08x swap/add %#x compare %#x", h.VA, h.RKey, h.Swap,
				h.Compare),
				f("VA", "%#016x", h.VA), f("R_Key", "%#08x", h.RKey), f("SwapDt", "%#016x", h.Swap),
				f("CmpDt", "%#016x", h.Compare))
		}
		return n, err
	}},
	{ExtAETH, func(p *printer, b []byte) (int, error) {
		h, n, err := ParseAETH(b)
		if err == nil {
			p.add("AETH", fmt.Sprintf("%v MSN %d", h.Syndrome, h.MSN),
				f("Syndrome", "%#02x (%v)", uint8(h.Syndrome), h.Syndrome), f("MSN", "%d", h.MSN))
		}
		return n, err
	}},
	{ExtAtomicAckETH, func(p *printer, b []byte) (int, error) {
		v, n, err := ParseAtomicAckETH(b)
		if err == nil {
			p.add("AtomicAckETH", fmt.Sprintf("original %#x", v), f("OrigRemDt", "%#016x", v))
		}
		return n, err
	}},
	{ExtImmDt, func(p *printer, b []byte) (int, error) {
		v, n, err := ParseImmDt(b)
		if err == nil {
			p.add("ImmDt", fmt.Sprintf("Imm %#08x", v), f("ImmDt", "%#08x", v))
		}
		return n, err
	}},
	{ExtIETH, func(p *printer, b []byte) (int, error) {
		v, n, err := ParseIETH(b)
		if err == nil {
			p.add("IETH", fmt.Sprintf("Inv %#08x", v), f("R_Key", "%#08x", v))
		}
		return n, err
	}},
}

func (p *printer) ext(b []byte, e Ext) ([]byte, bool) {
	for _, x := range extPrinters {
		if e&x.ext == 0 {
			continue
		}
		n, err := x.print(p, b)
		if err != nil {
			p.note(err)
			return b, false
		}
		b = b[n:]
	}
	return b, true
}

func (p *printer) rest(name string, b []byte) {
	if len(b) == 0 {
		return
	}
	p.layers = append(p.layers, layer{
		name:  fmt.Sprintf("%s, %d bytes", name, len(b)),
		brief: fmt.Sprintf("%s %d", strings.ToLower(name), len(b)),
		data:  b,
	})
}

// crcs prints both CRCs of a packet that is all there.
func (p *printer) crcs(b []byte, lnh LNH) {
	end := len(b) - VCRCSize
	fields := []field{f("VCRC", "%#04x", binary.BigEndian.Uint16(b[end:]))}
	if lnh >= LNHLocal {
		fields = append([]field{f("ICRC", "%#08x", binary.BigEndian.Uint32(b[end-ICRCSize:]))}, fields...)
	}
	p.add("CRC", "", fields...)
	p.note(CheckICRC(b))
	p.note(CheckVCRC(b))
}
