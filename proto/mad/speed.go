package mad

import (
	"fmt"
	"strings"

	"softib/proto/ib"
)

// Values of PortInfo's enabled masks that stand for more than one bit
// (IBA 14.2.5.6).
const (
	WidthEnableAll     ib.Width = 0xFF // as supported
	SpeedEnableAll     uint8    = 15   // as supported
	SpeedExtDisable    uint8    = 30   // no extended speed
	SpeedExtEnableAll  uint8    = 31   // as supported
	SpeedExt2EnableAll uint8    = 7    // as supported
)

// speedBits says how PortInfo encodes each generation: one bit in one of
// three masks. FDR10 is not of the standard: such a link reports QDR here.
var speedBits = [ib.NumSpeed]struct{ base, ext, ext2 uint8 }{
	ib.SDR: {base: 1}, ib.DDR: {base: 2}, ib.QDR: {base: 4}, ib.FDR10: {base: 4},
	ib.FDR: {ext: 1}, ib.EDR: {ext: 2}, ib.HDR: {ext: 4}, ib.NDR: {ext: 8},
	ib.XDR: {ext2: 1},
}

// SetSpeeds fills the nine speed fields: supported and enabled are every
// generation up to the given one, active is the one in use (0 while
// the link is down).
func (p *PortInfo) SetSpeeds(supported, enabled, active ib.Speed) {
	upTo := func(s ib.Speed) (base, ext, ext2 uint8) {
		for g := ib.SDR; g <= s && g < ib.NumSpeed; g++ {
			base |= speedBits[g].base
			ext |= speedBits[g].ext
			ext2 |= speedBits[g].ext2
		}
		return
	}
	p.LinkSpeedSupported, p.LinkSpeedExtSupported, p.LinkSpeedExtSupported2 = upTo(supported)
	p.LinkSpeedEnabled, p.LinkSpeedExtEnabled, p.LinkSpeedExtEnabled2 = upTo(enabled)
	p.LinkSpeedActive, p.LinkSpeedExtActive, p.LinkSpeedExtActive2 = 0, 0, 0
	if active.IsValid() {
		b := speedBits[active]
		p.LinkSpeedActive, p.LinkSpeedExtActive, p.LinkSpeedExtActive2 = b.base, b.ext, b.ext2
		if b.base == 0 {
			// A link at an extended speed shows the fastest of the old
			// ones too, for readers that know no others.
			p.LinkSpeedActive = speedBits[ib.QDR].base
		}
	}
	if supported >= ib.FDR {
		p.CapabilityMask |= CapCapabilityMask2 | CapExtendedSpeeds
	}
}

// Enabled are the generations that a port may use, the slowest first.
func (p *PortInfo) Enabled() (list []ib.Speed) {
	for g := ib.SDR; g < ib.NumSpeed; g++ {
		b := speedBits[g]
		if b.base&p.LinkSpeedEnabled|b.ext&p.LinkSpeedExtEnabled|b.ext2&p.LinkSpeedExtEnabled2 != 0 {
			list = append(list, g)
		}
	}
	return list
}

// fastest is the fastest generation of three masks; 0 if there is none.
func fastest(base, ext, ext2 uint8) ib.Speed {
	for g := ib.NumSpeed - 1; g >= ib.SDR; g-- {
		b := speedBits[g]
		if g != ib.FDR10 && (b.base&base|b.ext&ext|b.ext2&ext2) != 0 {
			return g
		}
	}
	return 0
}

// orFDR10 is FDR10 instead of QDR where Mellanox' mask has it.
func orFDR10(s ib.Speed, mlnx uint8) ib.Speed {
	if s == ib.QDR && mlnx&MlnxSpeedFDR10 != 0 {
		return ib.FDR10
	}
	return s
}

// ActiveSpeed is the generation that the link runs at; 0 while it is down.
func (p *PortInfo) ActiveSpeed() ib.Speed {
	return orFDR10(fastest(p.LinkSpeedActive, p.LinkSpeedExtActive, p.LinkSpeedExtActive2), p.Mlnx.LinkSpeedActive)
}

// EnabledSpeed is the fastest generation that the port may run at.
func (p *PortInfo) EnabledSpeed() ib.Speed {
	return orFDR10(fastest(p.LinkSpeedEnabled, p.LinkSpeedExtEnabled, p.LinkSpeedExtEnabled2), p.Mlnx.LinkSpeedEnabled)
}

// SupportedSpeed is the fastest generation that the port can run at.
func (p *PortInfo) SupportedSpeed() ib.Speed {
	return orFDR10(fastest(p.LinkSpeedSupported, p.LinkSpeedExtSupported, p.LinkSpeedExtSupported2),
		p.Mlnx.LinkSpeedSupported)
}

// HasQDR reports whether the attribute says QDR of what the port does or could do, which may be FDR10 instead.
func (p *PortInfo) HasQDR() bool { return p.ActiveSpeed() == ib.QDR || p.SupportedSpeed() == ib.QDR }

// Rate is the link's width and speed.
func (p *PortInfo) Rate() ib.LinkRate {
	return ib.LinkRate{Width: p.LinkWidthActive, Speed: p.ActiveSpeed()}
}

func widthMask(v uint64) string {
	var names []string
	for w := ib.Width1x; w <= ib.Width2x; w <<= 1 {
		if ib.Width(v)&w != 0 {
			names = append(names, w.String())
		}
	}
	return orNone(names)
}

func speedMask(v uint64) string    { return speedNames(uint8(v), 0) }
func speedExtMask(v uint64) string { return speedNames(0, uint8(v)) }

func speedNames(base, ext uint8) string {
	if ext == SpeedExtDisable {
		return "disabled"
	}
	var names []string
	for g := ib.SDR; g < ib.NumSpeed; g++ {
		if b := speedBits[g]; g != ib.FDR10 && b.base&base|b.ext&ext != 0 {
			names = append(names, g.String())
		}
	}
	if rest := base&^7 | ext&^15; rest != 0 {
		names = append(names, fmt.Sprintf("0x%x", rest))
	}
	return orNone(names)
}

func orNone(names []string) string {
	if names == nil {
		return "none"
	}
	return strings.Join(names, " or ")
}
