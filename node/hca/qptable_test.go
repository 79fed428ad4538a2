package hca

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"softib/proto/ib"
)

// transitions is the attribute table once more, written down apart from the
// engine's: types, step, what is required, what is optional (IBA table 91
// and the XRC annex).
const transitions = `
RC UC XRC_SEND XRC_RECV | RESET>INIT | pkey_index port_num qp_access_flags |
UD                      | RESET>INIT | pkey_index port_num qkey |
SMI GSI                 | RESET>INIT | pkey_index qkey |
RC UC XRC_SEND XRC_RECV | INIT>INIT  | | pkey_index port_num qp_access_flags
UD                      | INIT>INIT  | | pkey_index port_num qkey
SMI GSI                 | INIT>INIT  | | pkey_index qkey
RC XRC_RECV             | INIT>RTR   | ah_attr path_mtu dest_qp_num rq_psn max_dest_rd_atomic min_rnr_timer | alt_path qp_access_flags pkey_index
UC XRC_SEND             | INIT>RTR   | ah_attr path_mtu dest_qp_num rq_psn | alt_path qp_access_flags pkey_index
UD SMI GSI              | INIT>RTR   | | pkey_index qkey
RC                      | RTR>RTS    | timeout retry_cnt rnr_retry sq_psn max_rd_atomic | alt_path qp_access_flags min_rnr_timer path_mig_state
XRC_SEND                | RTR>RTS    | timeout retry_cnt rnr_retry sq_psn max_rd_atomic | alt_path qp_access_flags path_mig_state
XRC_RECV                | RTR>RTS    | timeout sq_psn | alt_path qp_access_flags min_rnr_timer path_mig_state
UC                      | RTR>RTS    | sq_psn | alt_path qp_access_flags path_mig_state
UD SMI GSI              | RTR>RTS    | sq_psn | qkey
RC XRC_RECV             | RTS>RTS    | | alt_path qp_access_flags min_rnr_timer path_mig_state
UC XRC_SEND             | RTS>RTS    | | alt_path qp_access_flags path_mig_state
UD SMI GSI              | RTS>RTS    | | qkey
RC UC UD XRC_SEND XRC_RECV SMI GSI | RTS>SQD | | en_sqd_async_notify
RC XRC_RECV             | SQD>RTS    | | alt_path qp_access_flags min_rnr_timer path_mig_state
UC XRC_SEND             | SQD>RTS    | | alt_path qp_access_flags path_mig_state
UD SMI GSI              | SQD>RTS    | | qkey
RC                      | SQD>SQD    | | port_num ah_attr timeout retry_cnt rnr_retry max_rd_atomic max_dest_rd_atomic alt_path qp_access_flags pkey_index min_rnr_timer path_mig_state
XRC_SEND                | SQD>SQD    | | port_num ah_attr timeout retry_cnt rnr_retry max_rd_atomic alt_path qp_access_flags pkey_index path_mig_state
XRC_RECV                | SQD>SQD    | | port_num ah_attr timeout max_dest_rd_atomic alt_path qp_access_flags pkey_index min_rnr_timer path_mig_state
UC                      | SQD>SQD    | | ah_attr alt_path qp_access_flags pkey_index path_mig_state
UD SMI GSI              | SQD>SQD    | | pkey_index qkey
UC                      | SQE>RTS    | | qp_access_flags
UD SMI GSI              | SQE>RTS    | | qkey
`

type stepRule struct{ need, may AttrMask }

func maskOf(t *testing.T, names string) (m AttrMask) {
	for _, n := range strings.Fields(names) {
		i := slices.Index(maskNames[:], n)
		if i < 0 {
			t.Fatalf("no attribute %q", n)
		}
		m |= 1 << i
	}
	return m
}

func parseTransitions(t *testing.T) map[string]stepRule {
	out := map[string]stepRule{}
	for _, line := range strings.Split(strings.TrimSpace(transitions), "\n") {
		f := strings.Split(line, "|")
		for _, typ := range strings.Fields(f[0]) {
			out[typ+" "+strings.TrimSpace(f[1])] = stepRule{maskOf(t, f[2]), maskOf(t, f[3])}
		}
	}
	return out
}

// goodAttr is valid in every attribute.
func goodAttr() QPAttr {
	ah := AHAttr{DLID: 21, Port: 1}
	return QPAttr{
		PathMTU: ib.MTU1024, QKey: 7, RQPSN: 5, SQPSN: 6, DestQPN: 0x200, Access: AccessRemoteRead, AH: ah,
		AltAH:       AHAttr{DLID: 22, Port: 2},
		MaxRDAtomic: 2, MaxDestRD: 3, MinRNRTimer: 4, Port: 1, Timeout: 5, RetryCnt: 6, RNRRetry: 7, AltPort: 2,
		AltTimeout:   9,
		PathMigState: Migrated,
	}
}

// qpIn makes a queue pair of a type in a state.
func qpIn(t *testing.T, h *HCA, typ QPType, s State, rules map[string]stepRule) *QP {
	t.Helper()
	init := QPInit{Type: typ, Caps: Caps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}
	init.PD = must(h.AllocPD())(t)
	switch typ {
	case XRCRecv:
		init.XRCD = h.OpenXRCD()
	case XRCSend:
		init.SendCQ = must(h.CreateCQ(8))(t)
	default:
		init.SendCQ, init.RecvCQ = must(h.CreateCQ(8))(t), must(h.CreateCQ(8))(t)
	}
	q := must(h.CreateQP(init))(t)
	path := map[State][]State{
		StateInit: {StateInit}, StateRTR: {StateInit, StateRTR}, StateRTS: {StateInit, StateRTR, StateRTS},
		StateSQD: {StateInit, StateRTR, StateRTS, StateSQD}, StateSQE: {StateInit, StateRTR, StateRTS},
		StateErr: {StateErr},
	}[s]
	for _, to := range path {
		a := goodAttr()
		a.State = to
		ok(t, h.ModifyQP(q, a, MaskState|rules[fmt.Sprintf("%v %v>%v", typ, q.state, to)].need))
	}
	if s == StateSQE {
		q.transition(StateSQE)
	}
	if q.state != s {
		t.Fatalf("%v went to %v, not %v", typ, q.state, s)
	}
	return q
}

func freeQP(t *testing.T, h *HCA, q *QP) {
	t.Helper()
	cqs := []*CQ{q.sendCQ, q.recvCQ}
	pd, x := q.pd, q.xrcd
	ok(t, h.DestroyQP(q))
	for _, c := range cqs {
		if c != nil {
			ok(t, h.DestroyCQ(c))
		}
	}
	if x != nil {
		ok(t, h.CloseXRCD(x))
	}
	ok(t, h.DeallocPD(pd))
}

// TestTransitions tries every step of every type with each attribute missing,
// added, and right.
func TestTransitions(t *testing.T) {
	rules := parseTransitions(t)
	h := newWorld(t, 1, 2).hosts[0].HCA
	const all = AttrMask(1<<numMask - 1)
	for typ := RC; typ < NumQPType; typ++ {
		for from := StateReset; from < NumState; from++ {
			for to := StateReset; to < NumState; to++ {
				name := fmt.Sprintf("%v %v>%v", typ, from, to)
				rule, listed := rules[name]
				legal := listed || to == StateReset || to == StateErr
				try := func(mask AttrMask) (State, error) {
					t.Helper()
					q := qpIn(t, h, typ, from, rules)
					defer freeQP(t, h, q)
					a := goodAttr()
					a.State, a.CurState = to, from
					before := q.attr
					err := h.ModifyQP(q, a, mask)
					if err != nil && (q.state != from || q.attr != before) {
						t.Fatalf("%s: refused (%v), and yet something changed", name, err)
					}
					if err == nil && q.state != to {
						t.Fatalf("%s: accepted, and in %v", name, q.state)
					}
					wantQPCounts(t, h)
					return q.state, err
				}
				full := MaskState | rule.need
				_, err := try(full)
				if !legal {
					wantAttr(t, err, "modify_qp", "qp_state", ErrState)
					if _, err = try(all &^ MaskCurState); err == nil {
						t.Fatalf("%s: accepted with every attribute", name)
					}
					continue
				}
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				for i := range numMask {
					bit := AttrMask(1) << i
					if bit&(MaskState|MaskCurState) != 0 {
						continue
					}
					switch {
					case rule.need&bit != 0:
						_, err := try(full &^ bit)
						wantAttr(t, err, "modify_qp", "attr_mask", ErrInvalid)
						if !strings.Contains(err.Error(), "also "+maskNames[i]) {
							t.Fatalf("%s without %s: %v", name, maskNames[i], err)
						}
					case rule.may&bit != 0:
						if _, err := try(full | bit); err != nil {
							t.Fatalf("%s with %s: %v", name, maskNames[i], err)
						}
					default:
						_, err := try(full | bit)
						wantAttr(t, err, "modify_qp", "attr_mask", ErrInvalid)
						if !strings.Contains(err.Error(), maskNames[i]) {
							t.Fatalf("%s with %s: %v", name, maskNames[i], err)
						}
					}
				}
				if _, err := try(full | rule.may); err != nil {
					t.Fatalf("%s with everything optional: %v", name, err)
				}
			}
		}
	}
	if h.npd != 0 || h.ncq != 0 || h.xrcds != 0 {
		t.Fatalf("left over: %d PD, %d CQ, %d XRCD", h.npd, h.ncq, h.xrcds)
	}
}

// TestAttributeBounds puts each attribute just outside its range.
func TestAttributeBounds(t *testing.T) {
	rules := parseTransitions(t)
	w := newWorld(t, 1, 2)
	h := w.hosts[0].HCA
	p := *h.Port(1)
	p.MTU = ib.MTU2048
	h.SetPort(1, p)
	toInit := rules["RC RESET>INIT"].need
	toRTR := rules["RC INIT>RTR"].need
	toRTS := rules["RC RTR>RTS"].need
	for _, c := range []struct {
		attr string
		from State
		mask AttrMask
		set  func(*QPAttr)
	}{
		{"port_num", StateReset, toInit, func(a *QPAttr) { a.Port = 0 }},
		{"port_num", StateReset, toInit, func(a *QPAttr) { a.Port = 3 }},
		{"pkey_index", StateReset, toInit, func(a *QPAttr) { a.PKeyIndex = 1 }},
		{"qp_access_flags", StateReset, toInit, func(a *QPAttr) { a.Access = AccessZeroBased }},
		{"path_mtu", StateInit, toRTR, func(a *QPAttr) { a.PathMTU = 0 }},
		{"path_mtu", StateInit, toRTR, func(a *QPAttr) { a.PathMTU = ib.MTU4096 }},
		{"path_mtu", StateInit, toRTR, func(a *QPAttr) { a.PathMTU = 6 }},
		{"dest_qp_num", StateInit, toRTR, func(a *QPAttr) { a.DestQPN = 1 << 24 }},
		{"max_dest_rd_atomic", StateInit, toRTR, func(a *QPAttr) { a.MaxDestRD = 129 }},
		{"min_rnr_timer", StateInit, toRTR, func(a *QPAttr) { a.MinRNRTimer = 32 }},
		{"ah_attr.dlid", StateInit, toRTR, func(a *QPAttr) { a.AH.DLID = 0 }},
		{"ah_attr.dlid", StateInit, toRTR, func(a *QPAttr) { a.AH.DLID = 0xC000 }},
		{"ah_attr.dlid", StateInit, toRTR, func(a *QPAttr) { a.AH.DLID = 0xFFFF }},
		{"ah_attr.sl", StateInit, toRTR, func(a *QPAttr) { a.AH.SL = 16 }},
		{"ah_attr.src_path_bits", StateInit, toRTR, func(a *QPAttr) { a.AH.SrcPath = 1 }},
		{"ah_attr.port_num", StateInit, toRTR, func(a *QPAttr) { a.AH.Port = 3 }},
		{"ah_attr.grh.sgid_index", StateInit, toRTR, func(a *QPAttr) { a.AH.IsGlobal = true; a.AH.SGIDIndex = 1 }},
		{"ah_attr.grh.flow_label", StateInit, toRTR,
			func(a *QPAttr) { a.AH.IsGlobal = true; a.AH.FlowLabel = 1 << 20 }},
		{"alt_port_num", StateInit, toRTR | MaskAltPath, func(a *QPAttr) { a.AltPort = 3 }},
		{"alt_pkey_index", StateInit, toRTR | MaskAltPath, func(a *QPAttr) { a.AltPKeyIndex = 9 }},
		{"alt_timeout", StateInit, toRTR | MaskAltPath, func(a *QPAttr) { a.AltTimeout = 32 }},
		{"alt_ah_attr.dlid", StateInit, toRTR | MaskAltPath, func(a *QPAttr) { a.AltAH.DLID = 0 }},
		{"timeout", StateRTR, toRTS, func(a *QPAttr) { a.Timeout = 32 }},
		{"retry_cnt", StateRTR, toRTS, func(a *QPAttr) { a.RetryCnt = 8 }},
		{"rnr_retry", StateRTR, toRTS, func(a *QPAttr) { a.RNRRetry = 8 }},
		{"max_rd_atomic", StateRTR, toRTS, func(a *QPAttr) { a.MaxRDAtomic = 129 }},
		{"path_mig_state", StateRTR, toRTS | MaskPathMigState, func(a *QPAttr) { a.PathMigState = Armed }},
		{"path_mig_state", StateRTR, toRTS | MaskPathMigState, func(a *QPAttr) { a.PathMigState = Rearm }},
		{"path_mig_state", StateRTR, toRTS | MaskPathMigState, func(a *QPAttr) { a.PathMigState = 3 }},
	} {
		q := qpIn(t, h, RC, c.from, rules)
		a := goodAttr()
		a.State = c.from + 1
		c.set(&a)
		wantAttr(t, h.ModifyQP(q, a, MaskState|c.mask), "modify_qp", c.attr, ErrInvalid)
		if q.state != c.from {
			t.Fatalf("%s: moved to %v", c.attr, q.state)
		}
		freeQP(t, h, q)
	}
	q := qpIn(t, h, RC, StateRTS, rules)
	wantAttr(t, h.ModifyQP(q, QPAttr{State: NumState}, MaskState), "modify_qp", "qp_state", ErrInvalid)
	wantAttr(t, h.ModifyQP(q, QPAttr{State: StateSQE}, MaskState), "modify_qp", "qp_state", ErrState)
	wantAttr(t, h.ModifyQP(q, QPAttr{}, 1<<numMask), "modify_qp", "attr_mask", ErrInvalid)
	wantAttr(t, h.ModifyQP(q, QPAttr{CurState: StateSQD}, MaskCurState), "modify_qp", "cur_qp_state", ErrState)
	wantAttr(t, h.ModifyQP(q, QPAttr{State: StateErr, QKey: 1}, MaskState|MaskQKey), "modify_qp", "attr_mask",
		ErrInvalid)
	wantAttr(t, h.ModifyQP(nil, QPAttr{}, 0), "modify_qp", "qp", ErrDestroyed)
	freeQP(t, h, q)
	wantAttr(t, h.ModifyQP(q, QPAttr{}, 0), "modify_qp", "qp", ErrDestroyed)
	_, err := h.QueryQP(q)
	wantAttr(t, err, "query_qp", "qp", ErrDestroyed)
}

// TestQueryQP reads back what was set.
func TestQueryQP(t *testing.T) {
	rules := parseTransitions(t)
	h := newWorld(t, 1, 2).hosts[0].HCA
	q := qpIn(t, h, RC, StateRTS, rules)
	a := must(h.QueryQP(q))(t)
	want := goodAttr()
	want.State, want.CurState = StateRTS, StateRTS
	want.AltAH, want.AltPort, want.AltTimeout, want.QKey = AHAttr{}, 0, 0, 0
	if a != want {
		t.Fatalf("got  %+v\nwant %+v", a, want)
	}
}

// TestResetForgets uses a queue pair twice.
func TestResetForgets(t *testing.T) {
	w := newWorld(t, 2, 1)
	c := conf{psn: 77}
	a, b := w.pair(c)
	for round := range 3 {
		b.recv(1, b.sge(0, 100))
		a.recv(2, a.sge(0, 100))
		a.post(SendWR{WRID: 3, Opcode: WRSend, Flags: SendSignaled, SGList: []SGE{a.sge(0, 100)}})
		a.post(SendWR{WRID: 4, Opcode: WRRDMARead, Flags: SendSignaled, SGList: []SGE{a.sge(100, 600)},
			RemoteAddr: memVA, RKey: b.mr.RKey()})
		if round == 1 { // left in the middle of it, completions unread
			w.runFor(ib.Microsecond)
		} else {
			w.run()
			a.sent("3 SEND SUCCESS len=100", "4 RDMA_READ SUCCESS len=600")
			b.received("1 RECV SUCCESS len=100")
		}
		for _, e := range []*end{a, b} {
			ok(t, e.h.ModifyQP(e.qp, QPAttr{State: StateReset}, MaskState))
			if e.scq.Len()+e.rcq.Len() != 0 {
				t.Fatal("completions of a reset queue pair are left")
			}
			if e.qp.Outstanding() != 0 || e.qp.RecvPosted() != 0 {
				t.Fatal("requests of a reset queue pair are left")
			}
			err := e.h.PostRecv(e.qp, &RecvWR{})
			wantAttr(t, err, "post_recv", "qp_state", ErrState)
			wantAttr(t, e.h.PostSend(e.qp, &SendWR{}), "post_send", "qp_state", ErrState)
		}
		w.flight = nil
		w.join(a, b, c, c)
	}
	w.close()
}

// TestTransitionPanics: a step that is not in the state machine is a bug.
func TestTransitionPanics(t *testing.T) {
	defer func() {
		if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "RESET to RTS") {
			t.Fatalf("recovered %v", r)
		}
	}()
	(&QP{}).transition(StateRTS)
}

func TestNames(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{RC.String(), "RC"}, {XRCRecv.String(), "XRC_RECV"}, {QPType(99).String(), "QPType(99)"},
		{StateSQD.String(), "SQD"}, {State(99).String(), "State(99)"},
		{Armed.String(), "ARMED"}, {Rearm.String(), "REARM"}, {MigState(9).String(), "MigState(9)"},
		{WCRetryExcErr.String(), "RETRY_EXC_ERR"}, {WCGeneralErr.String(), "GENERAL_ERR"},
		{WCStatus(99).String(), "WCStatus(99)"},
		{WCRecvRDMAWithImm.String(), "RECV_RDMA_WITH_IMM"}, {WCOpcode(50).String(), "WCOpcode(50)"},
		{WRSendInv.String(), "SEND_WITH_INV"}, {WROpcode(99).String(), "WROpcode(99)"},
		{EventWQFatal.String(), "WQ_FATAL"}, {EventType(99).String(), "EventType(99)"},
		{DropAccess.String(), "access denied"}, {Drop(99).String(), "drop?"},
		{(MaskState | MaskDestQPN).String(), "qp_state|dest_qp_num"},
		{Event{Type: EventPortActive, Port: 2}.String(), "PORT_ACTIVE on port 2"},
		{Event{Type: EventDeviceFatal}.String(), "DEVICE_FATAL"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	if !errors.Is(badAttr("v", "a", 1, "w"), ErrInvalid) {
		t.Error("badAttr is not ErrInvalid")
	}
}
