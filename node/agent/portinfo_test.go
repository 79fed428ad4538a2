package agent

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

func TestPortInfoTablesNameFields(t *testing.T) {
	for _, w := range portInfoWritable {
		if mad.PortInfoLayout.Field(w.field) == nil {
			t.Errorf("PortInfo has no field %s", w.field)
		}
	}
}

// TestPortInfoSet writes every field and wants only the writable ones to reach the
// node.
func TestPortInfoSet(t *testing.T) {
	b, n := benchCA(t)
	before := n.ports[1]
	set := mad.PortInfo{
		GidPrefix: 0xFEC0 << 48, LID: 8, MasterSMLID: 3, LMC: 3, MasterSMSL: 2, SubnetTimeOut: 18,
		NeighborMTU: ib.MTU2048, OperationalVLs: 3, VLHighLimit: 7, VLStallCount: 6, HOQLife: 17,
		LocalPhyErrors: 8, OverrunErrors: 9, LinkDownDefaultState: ib.PhysSleep, LinkWidthEnabled: 2,
		MulticastPKeyTrapSuppression: 1, InitType: 4,

		// Not for managers to say.
		CapabilityMask: 0xFFFFFFFF, DiagCode: 0xFFFF, LinkWidthSupported: 0xF, LinkWidthActive: 1,
		LinkSpeedSupported: 1, LinkSpeedActive: 1, VLCap: 5, MTUCap: ib.MTU256, GUIDCap: 1,
		VLArbitrationHighCap: 1, VLArbitrationLowCap: 1, InitTypeReply: 1, RespTimeValue: 1, MaxCreditHint: 1,
		LinkRoundTripLatency: 1, CapabilityMask2: 1, LinkSpeedExtActive: 1, LinkSpeedExtSupported: 1,
		PartitionEnforcementInbound: true, FilterRawOutbound: true, // of switches alone
		PKeyViolations: 99,
	}
	if st := b.set(mad.AttrPortInfo, 1, &set); st != mad.StatusOK {
		t.Fatal(st)
	}
	want := before
	want.GidPrefix, want.LID, want.MasterSMLID, want.LMC, want.MasterSMSL, want.SubnetTimeOut = 0xFEC0<<48, 8, 3, 3, 2,
		18
	want.NeighborMTU, want.OperationalVLs, want.VLHighLimit, want.VLStallCount, want.HOQLife = ib.MTU2048, 3, 7, 6, 17
	want.LocalPhyErrors, want.OverrunErrors, want.LinkDownDefaultState, want.LinkWidthEnabled = 8, 9, ib.PhysSleep, 2
	want.MulticastPKeyTrapSuppression, want.InitType = 1, 4
	want.QKeyViolations = 0 // came as 0
	if n.ports[1] != want {
		t.Errorf("node has %+v\nwant     %+v", n.ports[1], want)
	}
	// The answer is what a Get says.
	var got mad.PortInfo
	b.get(mad.AttrPortInfo, 0, &got)
	want.LocalPortNum = 1
	got.CapabilityMask, got.CapabilityMask2 = got.CapabilityMask&^(agentCaps&^mad.CapCapabilityMask2),
		got.CapabilityMask2&^agentCaps2
	if got != want {
		t.Errorf("Get says %+v\nwant     %+v", got, want)
	}
	// Zeros change nothing that has no zero: the no-change values.
	keep := got
	keep.LinkWidthEnabled, keep.LinkSpeedEnabled, keep.LinkSpeedExtEnabled = 0, 0, 0
	keep.LinkDownDefaultState, keep.OperationalVLs, keep.NeighborMTU = 0, 0, 0
	keep.PortState, keep.PortPhysicalState = 0, 0
	if st := b.set(mad.AttrPortInfo, 0, &keep); st != mad.StatusOK ||
		n.ports[1] != func() mad.PortInfo { w := want; w.LocalPortNum = 0; return w }() {
		t.Errorf("%v: no-change values changed %+v", st, n.ports[1])
	}
	// All that is supported, and no extended speed.
	all := keep
	all.LinkWidthEnabled, all.LinkSpeedEnabled, all.LinkSpeedExtEnabled = mad.WidthEnableAll, mad.SpeedEnableAll,
		mad.SpeedExtDisable
	if st := b.set(mad.AttrPortInfo, 0, &all); st != mad.StatusOK {
		t.Fatal(st)
	}
	if p := n.ports[1]; p.LinkWidthEnabled != 3 || p.LinkSpeedEnabled != 7 || p.LinkSpeedExtEnabled != 0 ||
		p.EnabledSpeed() != ib.QDR {
		t.Errorf("enabled: width %d, speed %d, ext %d", p.LinkWidthEnabled, p.LinkSpeedEnabled, p.LinkSpeedExtEnabled)
	}
	all.LinkSpeedExtEnabled = mad.SpeedExtEnableAll
	if st := b.set(mad.AttrPortInfo, 0, &all); st != mad.StatusOK || n.ports[1].EnabledSpeed() != ib.EDR {
		t.Errorf("%v: enabled up to %v", st, n.ports[1].EnabledSpeed())
	}
}

func TestPortInfoSetInvalid(t *testing.T) {
	for what, bad := range map[string]func(*mad.PortInfo){
		"LID 0 after a LID":         func(p *mad.PortInfo) { p.LID = 0 },
		"multicast LID":             func(p *mad.PortInfo) { p.LID = 0xC000 },
		"permissive LID":            func(p *mad.PortInfo) { p.LID = ib.LIDPermissive },
		"LID off its LMC":           func(p *mad.PortInfo) { p.LID, p.LMC = 10, 2 },
		"multicast MasterSMLID":     func(p *mad.PortInfo) { p.MasterSMLID = 0xC001 },
		"MasterSMLID 0 after one":   func(p *mad.PortInfo) { p.MasterSMLID = 0 },
		"NeighborMTU over MTUCap":   func(p *mad.PortInfo) { p.NeighborMTU = ib.MTU4096 },
		"NeighborMTU that is none":  func(p *mad.PortInfo) { p.NeighborMTU = 9 },
		"OperationalVLs over VLCap": func(p *mad.PortInfo) { p.OperationalVLs = 5 },
		"OperationalVLs that isnt":  func(p *mad.PortInfo) { p.OperationalVLs = 6 },
		"width not supported":       func(p *mad.PortInfo) { p.LinkWidthEnabled = 8 },
		"speed not supported":       func(p *mad.PortInfo) { p.LinkSpeedEnabled = 8 },
		"extended not supported":    func(p *mad.PortInfo) { p.LinkSpeedExtEnabled = 4 },
		"extended 2 not supported":  func(p *mad.PortInfo) { p.LinkSpeedExtEnabled2 = 1 },
		"link-down default LinkUp":  func(p *mad.PortInfo) { p.LinkDownDefaultState = ib.PhysLinkUp },
		"state Initialize":          func(p *mad.PortInfo) { p.PortState = ib.PortInit },
		"state that is none":        func(p *mad.PortInfo) { p.PortState = 5 },
		"physical state LinkUp":     func(p *mad.PortInfo) { p.PortPhysicalState = ib.PhysLinkUp },
		"physical state training":   func(p *mad.PortInfo) { p.PortPhysicalState = ib.PhysTraining },
		"arm and poll": func(p *mad.PortInfo) {
			p.PortState, p.PortPhysicalState = ib.PortArmed,
				ib.PhysPolling
		},
		"active from Initialize":     func(p *mad.PortInfo) { p.PortState = ib.PortActive },
		"last LID past unicast, LMC": func(p *mad.PortInfo) { p.LID, p.LMC = 0xBFFF, 1 },
	} {
		b, n := benchCA(t)
		n.ports[1].MTUCap = ib.MTU2048
		good := mad.PortInfo{LID: 8, MasterSMLID: 3}
		if st := b.set(mad.AttrPortInfo, 1, &good); st != mad.StatusOK {
			t.Fatal(st)
		}
		before, sets := n.ports[1], len(n.sets)
		pi := good
		bad(&pi)
		if st := b.set(mad.AttrPortInfo, 1, &pi); st != mad.StatusInvalidField {
			t.Errorf("%s: %v", what, st)
		}
		if n.ports[1] != before || len(n.sets) != sets {
			t.Errorf("%s: the node has changed", what)
		}
	}
}

// TestPortStates tries every command in every state.
func TestPortStates(t *testing.T) {
	legal := map[[2]ib.PortState]bool{
		{ib.PortInit, ib.PortArmed}: true, {ib.PortArmed, ib.PortActive}: true,
	}
	for state := ib.PortDown; state < ib.NumPortState; state++ {
		for cmd := ib.PortState(0); cmd < 16; cmd++ {
			for phys := ib.PhysState(0); phys < 16; phys++ {
				b, n := benchCA(t)
				n.ports[1].PortState = state
				st := b.set(mad.AttrPortInfo, 1, &mad.PortInfo{PortState: cmd, PortPhysicalState: phys})
				ok := cmd <= ib.PortDown && phys <= ib.PhysDisabled || phys == 0 && legal[[2]ib.PortState{state, cmd}]
				if (st == mad.StatusOK) != ok {
					t.Errorf("%v, command %v/%v: %v", state, cmd, phys, st)
				}
				after := state
				switch {
				case !ok:
				case cmd == ib.PortDown || phys != 0:
					after = ib.PortDown
				case cmd != 0:
					after = cmd
				}
				if n.ports[1].PortState != after {
					t.Errorf("%v, command %v/%v: now %v, want %v", state, cmd, phys, n.ports[1].PortState, after)
				}
			}
		}
	}
}

func TestPortInfoOfSwitches(t *testing.T) {
	b, s := benchSwitch(t)
	// An external port has no LID; it has enforcement.
	ext := mad.PortInfo{
		LID: 0xC000, LMC: 7, GidPrefix: 1, MasterSMLID: 0xFFFF, NeighborMTU: ib.MTU4096, OperationalVLs: 4, HOQLife: 16,
		PortState:                   ib.PortArmed,
		PartitionEnforcementInbound: true, PartitionEnforcementOutbound: true, FilterRawInbound: true,
		FilterRawOutbound: true,
	}
	if st := b.set(mad.AttrPortInfo, 9, &ext); st != mad.StatusOK {
		t.Fatal(st)
	}
	p := s.ports[9]
	if p.LID != 0 || p.LMC != 0 || p.GidPrefix != ib.DefaultGIDPrefix || p.MasterSMLID != 0 {
		t.Errorf("external port has an address: %+v", p)
	}
	if p.NeighborMTU != ib.MTU4096 || p.OperationalVLs != 4 || p.HOQLife != 16 || p.PortState != ib.PortArmed ||
		!p.PartitionEnforcementInbound || !p.PartitionEnforcementOutbound || !p.FilterRawInbound ||
		!p.FilterRawOutbound {
		t.Errorf("external port: %+v", p)
	}
	var got mad.PortInfo
	b.get(mad.AttrPortInfo, 9, &got)
	if got.LocalPortNum != 5 {
		t.Errorf("LocalPortNum %d, want the port that the request came in by", got.LocalPortNum)
	}
	// Port 0 without a link has a LID and no state to change.
	zero := mad.PortInfo{LID: 2, MasterSMLID: 1, PortState: ib.PortActive, NeighborMTU: ib.MTU4096,
		ClientReregister: true}
	if st := b.set(mad.AttrPortInfo, 0, &zero); st != mad.StatusOK {
		t.Fatal(st)
	}
	if p := s.ports[0]; p.LID != 2 || p.PortState != ib.PortInit || p.NeighborMTU != ib.MTU256 {
		t.Errorf("base port 0: %+v", p)
	}
	// Enhanced port 0 has both.
	s.si.EnhancedPortZero = true
	b.Agent = New(s)
	zero.PortState = ib.PortArmed
	if st := b.set(mad.AttrPortInfo, 0, &zero); st != mad.StatusOK {
		t.Fatal(st)
	}
	if p := s.ports[0]; p.PortState != ib.PortArmed || p.NeighborMTU != ib.MTU4096 {
		t.Errorf("enhanced port 0: %+v", p)
	}
}

func TestClientReregister(t *testing.T) {
	b, n := benchCA(t)
	v := b.ask(mad.MethodSet, mad.AttrPortInfo, 1, &mad.PortInfo{LID: 1, ClientReregister: true})
	var pi mad.PortInfo
	if _, err := pi.Parse(v.Data()); err != nil || !pi.ClientReregister || n.reregister != 1 {
		t.Errorf("response echoes %v, the node heard it %d times, err %v", pi.ClientReregister, n.reregister, err)
	}
	b.get(mad.AttrPortInfo, 1, &pi)
	if pi.ClientReregister {
		t.Error("ClientReregister stays set")
	}
	if st := b.set(mad.AttrPortInfo, 1, &mad.PortInfo{LID: 1}); st != mad.StatusOK || n.reregister != 1 {
		t.Errorf("%v, heard %d times", st, n.reregister)
	}
}
