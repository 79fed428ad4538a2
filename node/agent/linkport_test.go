package agent

import (
	"errors"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// fakeLink takes everything; LinkPort must refuse what it should not get.
type fakeLink struct {
	state ib.PortState
	phys  ib.PhysState
	mtu   ib.MTU
	vls   uint8
	hoq   uint8
	stall uint8
	calls int
	errs  [2]uint8
}

func (l *fakeLink) Rate() ib.LinkRate               { return ib.LinkRate{Width: ib.Width4x, Speed: ib.HDR} }
func (l *fakeLink) MTUCap() ib.MTU                  { return ib.MTU2048 }
func (l *fakeLink) VLCap() uint8                    { return 6 }
func (l *fakeLink) State() ib.PortState             { return l.state }
func (l *fakeLink) Phys() ib.PhysState              { return l.phys }
func (l *fakeLink) NeighborMTU() ib.MTU             { return l.mtu }
func (l *fakeLink) OperVLs() uint8                  { return l.vls }
func (l *fakeLink) HOQLife() (uint8, ib.Time)       { return l.hoq, 0 }
func (l *fakeLink) VLStallCount() uint8             { return l.stall }
func (l *fakeLink) ErrorThresholds() (uint8, uint8) { return l.errs[0], l.errs[1] }
func (l *fakeLink) SetErrorThresholds(p, o uint8)   { l.calls++; l.errs = [2]uint8{p, o} }
func (l *fakeLink) SetHOQLife(c uint8)              { l.calls++; l.hoq = c }
func (l *fakeLink) SetVLStallCount(n uint8)         { l.calls++; l.stall = n }
func (l *fakeLink) Command(_ ib.Time, to ib.PortState) error {
	l.calls++
	if to != ib.PortNoChange {
		l.state = to
	}
	return nil
}
func (l *fakeLink) CommandPhys(_ ib.Time, to ib.PhysState) error {
	l.calls++
	l.state, l.phys = ib.PortDown, to
	return nil
}
func (l *fakeLink) SetNeighborMTU(m ib.MTU) error { l.calls++; l.mtu = m; return nil }
func (l *fakeLink) SetOperVLs(_ ib.Time, n uint8) error {
	l.calls++
	l.vls = n
	return nil
}

func TestLinkPort(t *testing.T) {
	l := &fakeLink{state: ib.PortInit, phys: ib.PhysLinkUp, mtu: ib.MTU2048, vls: 4, hoq: 20, stall: 7}
	p := NewLinkPort(ib.LinkRate{Width: ib.Width12x, Speed: ib.HDR})
	var pi mad.PortInfo
	p.Read(l, &pi)
	// Six lanes are not one of the five encodings: four are told.
	if pi.VLCap.VLs() != 4 || pi.OperationalVLs.VLs() != 4 ||
		pi.LinkWidthSupported != ib.Width1x|ib.Width4x|ib.Width12x ||
		pi.LinkWidthActive != ib.Width4x || pi.ActiveSpeed() != ib.HDR ||
		pi.CapabilityMask&mad.CapCapabilityMask2 == 0 {
		t.Errorf("%+v", pi)
	}
	before := p
	for name, spoil := range map[string]func(*mad.PortInfo){
		"PortState":      func(pi *mad.PortInfo) { pi.PortState = ib.PortActive },
		"NeighborMTU":    func(pi *mad.PortInfo) { pi.NeighborMTU = ib.MTU4096 },
		"OperationalVLs": func(pi *mad.PortInfo) { pi.OperationalVLs = 4 },
	} {
		bad := pi
		bad.PortState, bad.PortPhysicalState, bad.LinkWidthEnabled = 0, 0, ib.Width1x
		spoil(&bad)
		err := p.Write(0, l, &bad)
		var le *LinkError
		if !errors.Is(err, ErrLink) || !errors.As(err, &le) || le.Field != name {
			t.Errorf("%s: %v", name, err)
		}
		if l.calls != 0 || p != before {
			t.Errorf("%s: something was applied", name)
		}
	}
	good := pi
	good.PortState, good.PortPhysicalState = ib.PortArmed, 0
	good.NeighborMTU, good.OperationalVLs, good.HOQLife, good.VLStallCount = ib.MTU512, 2, 9, 1
	if err := p.Write(0, l, &good); err != nil || l.state != ib.PortArmed || l.mtu != ib.MTU512 || l.vls != 2 ||
		l.hoq != 9 || l.stall != 1 {
		t.Errorf("%v, %+v", err, l)
	}
	good.PortState, good.LinkDownDefaultState = ib.PortDown, ib.PhysSleep
	if err := p.Write(0, l, &good); err != nil || l.phys != ib.PhysSleep {
		t.Errorf("%v, %+v", err, l)
	}
	if r := p.Best(); r != (ib.LinkRate{Width: ib.Width12x, Speed: ib.HDR}) {
		t.Errorf("best %v", r)
	}
	two := NewLinkPort(ib.LinkRate{Width: ib.Width2x, Speed: ib.SDR})
	pi = mad.PortInfo{}
	two.Read(l, &pi)
	if pi.CapabilityMask2 != cap2LinkWidth2x || pi.SupportedSpeed() != ib.SDR || pi.LinkWidthActive != ib.Width1x {
		t.Errorf("%+v", pi)
	}
	if zero := NewLinkPort(ib.LinkRate{}); zero.Best() != (ib.LinkRate{Width: ib.Width4x, Speed: ib.SDR}) {
		t.Errorf("%v", zero.Best())
	}
}
