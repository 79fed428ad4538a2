package agent

import (
	"softib/proto/ib"
	"softib/proto/mad"
)

// fecSpeeds are the generations for which PortInfoExtended has a pair of FEC fields, and what a port of such
// a generation can do: bit n stands for mode n. Lanes of HDR and faster do not work without FEC.
var fecSpeeds = [...]struct {
	speed  ib.Speed
	modes  uint16
	normal mad.FECMode // what a link runs with unless told otherwise
}{
	{ib.FDR, 1<<mad.FECNone | 1<<mad.FECFirecode, mad.FECNone},
	{ib.EDR, 1<<mad.FECNone | 1<<mad.FECReedSolomon, mad.FECNone},
	{ib.HDR, 1<<mad.FECReedSolomon | 1<<mad.FECReedSolomon2, mad.FECReedSolomon},
	{ib.NDR, 1<<mad.FECReedSolomon | 1<<mad.FECReedSolomon2, mad.FECReedSolomon},
}

// fecEnabled is which modes a manager lets a port run with, in the order of fecSpeeds.
type fecEnabled struct {
	written bool
	modes   [len(fecSpeeds)]uint16
}

// active is the mode of a link: the usual one of its speed if that is enabled, or the simplest that is.
func (e *fecEnabled) active(speed ib.Speed) mad.FECMode {
	for i, row := range fecSpeeds {
		if row.speed != speed && !(speed == ib.XDR && row.speed == ib.NDR) {
			continue
		}
		if e.modes[i]>>row.normal&1 != 0 || e.modes[i] == 0 {
			return row.normal
		}
		for m := range mad.NumFECMode {
			if e.modes[i]>>m&1 != 0 {
				return m
			}
		}
	}
	return mad.FECNone
}

// modPort is the port that a modifier names as PortInfo's does.
func (a *Agent) modPort(r *request) (ib.PortNum, bool) {
	if r.mod > uint32(a.ports) {
		return 0, false
	}
	port := ib.PortNum(r.mod)
	if port == 0 && a.sw == nil {
		port = r.inPort
	}
	// The M_Key of one port must not open another.
	return port, !r.set || a.sw != nil || port == r.inPort
}

// portInfoExt serves PortInfoExtended (IBA 14.2.5.19). The enabled modes are kept here: links have none.
func (a *Agent) portInfoExt(r *request) mad.Status {
	port, ok := a.modPort(r)
	if !ok {
		return mad.StatusInvalidField
	}
	pi := a.node.PortInfo(port)
	var supported, enabled fecEnabled
	for i, row := range fecSpeeds {
		if pi.SupportedSpeed() >= row.speed {
			supported.modes[i] = row.modes
		}
	}
	enabled = supported
	if int(port) < len(a.fec) && a.fec[port].written {
		enabled = a.fec[port]
	}
	if r.set {
		var want mad.PortInfoExt
		if _, err := want.Parse(r.data); err != nil {
			return failed(err)
		}
		for i, w := range [...]uint16{want.FDRFECModeEnabled, want.EDRFECModeEnabled, want.HDRFECModeEnabled,
			want.NDRFECModeEnabled} {
			if w&^supported.modes[i] != 0 {
				return mad.StatusInvalidField
			}
			if w != 0 { // none at all is no change
				enabled.modes[i] = w
			}
		}
		for len(a.fec) <= int(port) {
			a.fec = append(a.fec, fecEnabled{})
		}
		enabled.written = true
		a.fec[port] = enabled
	}
	s, e := &supported.modes, &enabled.modes
	ext := mad.PortInfoExt{
		CapMask:             mad.PortExtFEC,
		FDRFECModeSupported: s[0], FDRFECModeEnabled: e[0], EDRFECModeSupported: s[1], EDRFECModeEnabled: e[1],
		HDRFECModeSupported: s[2], HDRFECModeEnabled: e[2], NDRFECModeSupported: s[3], NDRFECModeEnabled: e[3],
	}
	if pi.PortState != ib.PortDown {
		ext.FECModeActive = enabled.active(pi.ActiveSpeed())
	}
	ext.Append(r.answer())
	return mad.StatusOK
}

// mlnxExtPortInfo serves Mellanox' addition to PortInfo, by which FDR10 is told from QDR.
func (a *Agent) mlnxExtPortInfo(r *request) mad.Status {
	port, ok := a.modPort(r)
	if !ok {
		return mad.StatusInvalidField
	}
	if r.set {
		var want mad.MlnxExtPortInfo
		if _, err := want.Parse(r.data); err != nil {
			return failed(err)
		}
		next := a.node.MlnxExtPortInfo(port)
		if want.LinkSpeedEnabled&^next.LinkSpeedSupported != 0 {
			return mad.StatusInvalidField
		}
		next.LinkSpeedEnabled, next.StateChangeEnable = want.LinkSpeedEnabled, want.StateChangeEnable
		if err := a.node.SetMlnxExtPortInfo(r.now, port, next); err != nil {
			return failed(err)
		}
	}
	pi := a.node.MlnxExtPortInfo(port)
	pi.Append(r.answer())
	return mad.StatusOK
}
