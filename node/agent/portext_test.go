package agent

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

func TestPortInfoExtended(t *testing.T) {
	b, n := benchCA(t)
	n.ports[1].SetSpeeds(ib.HDR, ib.HDR, ib.HDR)
	var ext mad.PortInfoExt
	b.get(mad.AttrPortInfoExtended, 1, &ext)
	if ext.CapMask != mad.PortExtFEC || ext.FECModeActive != mad.FECReedSolomon || ext.FDRFECModeSupported != 3 ||
		ext.EDRFECModeSupported != 5 ||
		ext.HDRFECModeSupported != 12 || ext.HDRFECModeEnabled != 12 || ext.NDRFECModeSupported != 0 ||
		ext.NDRFECModeEnabled != 0 {
		t.Errorf("HDR: %+v", ext)
	}
	want := mad.PortInfoExt{HDRFECModeEnabled: 1 << mad.FECReedSolomon2}
	if st := b.set(mad.AttrPortInfoExtended, 1, &want); st != mad.StatusOK {
		t.Fatal(st)
	}
	b.get(mad.AttrPortInfoExtended, 0, &ext)
	if ext.FECModeActive != mad.FECReedSolomon2 || ext.HDRFECModeEnabled != 8 || ext.FDRFECModeEnabled != 3 {
		t.Errorf("low latency: %+v", ext)
	}
	for _, bad := range []mad.PortInfoExt{{NDRFECModeEnabled: 4}, {HDRFECModeEnabled: 1}} {
		if st := b.set(mad.AttrPortInfoExtended, 1, &bad); st != mad.StatusInvalidField {
			t.Errorf("%+v: %v", bad, st)
		}
	}
	if st := b.set(mad.AttrPortInfoExtended, 2, &want); st != mad.StatusInvalidField {
		t.Errorf("another port's: %v", st)
	}
	n.ports[1].PortState = ib.PortDown
	b.get(mad.AttrPortInfoExtended, 1, &ext)
	if ext.FECModeActive != mad.FECNone {
		t.Errorf("a link that is down runs with %v", ext.FECModeActive)
	}
	sw, s := benchSwitch(t)
	s.ports[36].SetSpeeds(ib.EDR, ib.EDR, ib.EDR)
	sw.get(mad.AttrPortInfoExtended, 36, &ext)
	if ext.FECModeActive != mad.FECNone || ext.EDRFECModeEnabled != 5 {
		t.Errorf("EDR: %+v", ext)
	}
	if v := sw.ask(mad.MethodGet, mad.AttrPortInfoExtended, 37, nil); v.Status() != mad.StatusInvalidField {
		t.Errorf("port 37: %v", v.Status())
	}
}

func TestMlnxExtPortInfo(t *testing.T) {
	b, s := benchSwitch(t)
	s.mlnx[7] = mad.MlnxExtPortInfo{LinkSpeedSupported: 1, LinkSpeedEnabled: 1, LinkSpeedActive: 1}
	var m mad.MlnxExtPortInfo
	b.get(mad.AttrMlnxExtPortInfo, 7, &m)
	if m != s.mlnx[7] {
		t.Errorf("%+v", m)
	}
	if st := b.set(mad.AttrMlnxExtPortInfo, 7, &mad.MlnxExtPortInfo{StateChangeEnable: 4, LinkSpeedActive: 9,
		LinkSpeedSupported: 9}); st != mad.StatusOK {
		t.Fatal(st)
	}
	if s.mlnx[7] != (mad.MlnxExtPortInfo{StateChangeEnable: 4, LinkSpeedSupported: 1, LinkSpeedActive: 1}) {
		t.Errorf("written: %+v", s.mlnx[7])
	}
	st := b.set(mad.AttrMlnxExtPortInfo, 7, &mad.MlnxExtPortInfo{LinkSpeedEnabled: 2})
	if st != mad.StatusInvalidField {
		t.Errorf("a speed that is not supported: %v", st)
	}
	s.refuse = errRefused
	if st := b.set(mad.AttrMlnxExtPortInfo, 7, &m); st != mad.StatusInvalidField {
		t.Errorf("refused: %v", st)
	}
	// FDR10 as a link has it.
	p := NewLinkPort(ib.LinkRate{Width: ib.Width4x, Speed: ib.FDR10})
	l := &fakeLink{state: ib.PortInit}
	if m := p.ReadMlnx(l); m != (mad.MlnxExtPortInfo{LinkSpeedSupported: 1, LinkSpeedEnabled: 1}) ||
		p.Best().Speed != ib.FDR10 {
		t.Errorf("%+v, best %v", m, p.Best())
	}
	p.WriteMlnx(mad.MlnxExtPortInfo{LinkSpeedEnabled: 0})
	if p.Best().Speed != ib.QDR {
		t.Errorf("without FDR10 best is %v", p.Best())
	}
	q := NewLinkPort(ib.LinkRate{Width: ib.Width4x, Speed: ib.QDR})
	if q.WriteMlnx(mad.MlnxExtPortInfo{LinkSpeedEnabled: 1}); q.Best().Speed != ib.QDR {
		t.Errorf("a QDR port trains at %v", q.Best())
	}
}

func TestSLtoVLForAllPorts(t *testing.T) {
	b, s := benchSwitch(t)
	m := mad.SLtoVL{0: 3, 15: 2}
	for _, tc := range []struct {
		mod   uint32
		pairs int
		in    ib.PortNum
		out   ib.PortNum
	}{
		{mad.SLtoVLAllInputs | mad.SLtoVLModifier(0, 9), 37, 36, 9},
		{mad.SLtoVLAllOutputs | mad.SLtoVLModifier(9, 0), 37, 9, 36},
		{mad.SLtoVLAllInputs | mad.SLtoVLAllOutputs, 37 * 37, 36, 36},
	} {
		clear(s.sl)
		v := b.ask(mad.MethodSet, mad.AttrSLtoVL, tc.mod, &m)
		var got mad.SLtoVL
		if _, err := got.Parse(v.Data()); err != nil || v.Status() != mad.StatusOK || got != m {
			t.Errorf("%#x: %v, %v", tc.mod, v.Status(), got)
		}
		if len(s.sl) != tc.pairs || s.sl[[2]ib.PortNum{tc.in, tc.out}] != m {
			t.Errorf("%#x: %d tables written, want %d", tc.mod, len(s.sl), tc.pairs)
		}
	}
	s.refuse = errRefused
	if st := b.set(mad.AttrSLtoVL, mad.SLtoVLAllInputs|1, &m); st != mad.StatusInvalidField {
		t.Errorf("refused: %v", st)
	}
	ca, n := benchCA(t)
	if st := ca.set(mad.AttrSLtoVL, mad.SLtoVLAllInputs, &m); st != mad.StatusOK || n.sl[[2]ib.PortNum{1, 1}] != m {
		t.Errorf("a channel adapter has one table and no modifier: %v", st)
	}
}
