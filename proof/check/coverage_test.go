package check

import (
	"context"
	"testing"

	"softib/driver/machine"
	"softib/fabric"
	"softib/node/hca"
	"softib/node/link"
	"softib/proof/workload"
)

// TestTortureHurts makes sure that the seeds go through everything that they are
// meant to go through.
func TestTortureHurts(t *testing.T) {
	r := Torture(context.Background(), Options{First: 1000, Seeds: 300, Again: -1, Kind: DataKind}, nil)
	for i := range r.Failures {
		r.Failures[i].Write(t.Output())
		t.Fail()
	}
	tally := &r.Tally
	want := func(what any, n uint64) {
		t.Helper()
		t.Logf("%7d %v", n, what)
		if n == 0 {
			t.Errorf("%v: never happened in %d seeds", what, r.Done)
		}
	}
	want("hops of detours", tally.Detours)
	for _, s := range []hca.QPType{hca.RC, hca.UC, hca.UD, hca.XRCSend} {
		want(s, tally.Services[s])
	}
	for op := range hca.NumWROpcode {
		if wantOpcode[op] == 0 && op != hca.WRSend && op != hca.WRSendImm && op != hca.WRSendInv {
			continue // no operation, or one that loads do not have: hca.TestRandom tries those
		}
		want(op.String()+" that succeeded", tally.Done[op][hca.WCSuccess])
	}
	statuses := [hca.NumWCStatus]uint64{}
	for op := range tally.Done {
		for s, n := range tally.Done[op] {
			statuses[s] += n
		}
	}
	for _, s := range []hca.WCStatus{
		hca.WCSuccess, hca.WCLocProtErr, hca.WCWRFlushErr, hca.WCRemInvReqErr, hca.WCRemAccessErr, hca.WCRetryExcErr,
		hca.WCRNRRetryExcErr,
	} {
		want("sends that ended with "+s.String(), statuses[s])
	}
	for _, s := range []hca.WCStatus{hca.WCSuccess, hca.WCLocLenErr, hca.WCWRFlushErr} {
		want("receives that ended with "+s.String(), tally.Received[s])
	}
	for m := workload.Misuse(1); m < workload.NumMisuse; m++ {
		want("misuse: "+m.String(), tally.Misuse[m])
	}
	for k := range fabric.FaultReboot {
		want("fault: "+k.String(), tally.Faults[k])
	}
	for _, d := range []link.Reason{link.Physical, link.UnknownDLID, link.PKeyOut, link.Inactive, link.LinkDown,
		link.NoMember, link.HOQLife, link.SwitchLife} {
		want("dropped by links: "+d.String(), tally.Drops[d])
	}
	for _, d := range []hca.Drop{
		hca.DropNoQP, hca.DropState, hca.DropPKey, hca.DropQKey, hca.DropNoRecv, hca.DropDuplicate, hca.DropOutOfOrder,
		hca.DropStaleAck, hca.DropUCBroken, hca.DropAccess,
	} {
		want("dropped by adapters: "+d.String(), tally.HostDrop[d])
	}
	for _, e := range []hca.EventType{hca.EventQPAccessErr, hca.EventQPReqErr, hca.EventSQDrained, hca.EventCommEst,
		hca.EventSRQLimitReached, hca.EventQPLastWQEReached, hca.EventPortErr, hca.EventPortActive} {
		want("event "+e.String(), tally.Events[e])
	}
	for h := range machine.NumHappening {
		want(h, tally.Machine[h])
	}
	want("packets sent again", tally.Retransmits)
	want("timeouts", tally.Timeouts)
	want("sequence NAKs", tally.SeqNAKs)
	want("RNR NAKs", tally.RNRNAKs)
	want("duplicates answered", tally.Duplicates)
	want("packets kept until it was their turn", tally.Reordered)
	want("packets that told of congestion", tally.BECNs)
	want("notifications of congestion", tally.CNPs)
}
