package verbs

import (
	"fmt"
	"reflect"
	"testing"

	"softib/node/hca"
)

// opaque are records of which the first field is the engine's.
var opaque = map[reflect.Type]reflect.Type{
	reflect.TypeFor[AH]():       reflect.TypeFor[hca.AH](),
	reflect.TypeFor[BindInfo](): reflect.TypeFor[hca.BindInfo](),
}

// sameLayout compares two types as memory: what they differ in, or "".
func sameLayout(a, b reflect.Type) string {
	switch {
	case a == b:
		return ""
	case a.Kind() != b.Kind() || a.Size() != b.Size() && opaque[a] == nil:
		return fmt.Sprintf("%v and %v: kind or size", a, b)
	case opaque[a] == b:
		if f := a.Field(0); f.Type != b || f.Offset != 0 {
			return fmt.Sprintf("%v does not begin with %v", a, b)
		}
	case a.Kind() == reflect.Struct:
		if a.NumField() != b.NumField() {
			return fmt.Sprintf("%v has %d fields, %v %d", a, a.NumField(), b, b.NumField())
		}
		for i := range a.NumField() {
			f, g := a.Field(i), b.Field(i)
			if f.Name != g.Name || f.Offset != g.Offset {
				return fmt.Sprintf("%v.%s at %d, %v.%s at %d", a, f.Name, f.Offset, b, g.Name, g.Offset)
			}
			if why := sameLayout(f.Type, g.Type); why != "" {
				return why
			}
		}
	case a.Kind() == reflect.Slice || a.Kind() == reflect.Pointer:
		return sameLayout(a.Elem(), b.Elem())
	}
	return ""
}

// What programs post and poll is the engine's in memory, field by field.
func TestLayout(t *testing.T) {
	for _, c := range [][2]reflect.Type{
		{reflect.TypeFor[SendWR](), reflect.TypeFor[hca.SendWR]()},
		{reflect.TypeFor[RecvWR](), reflect.TypeFor[hca.RecvWR]()},
		{reflect.TypeFor[WC](), reflect.TypeFor[hca.WC]()},
		{reflect.TypeFor[QPAttr](), reflect.TypeFor[hca.QPAttr]()},
	} {
		if why := sameLayout(c[0], c[1]); why != "" {
			t.Error(why)
		}
	}
	type other struct {
		WRID   uint64
		SGList []struct{ Length, LKey, Addr uint32 }
	}
	if sameLayout(reflect.TypeFor[other](), reflect.TypeFor[hca.RecvWR]()) == "" {
		t.Error("lists of other elements are taken for the same")
	}
}

// Names of the API mean what the engine's mean.
func TestNames(t *testing.T) {
	same := func(ours, engines any) {
		t.Helper()
		a, b := reflect.ValueOf(ours), reflect.ValueOf(engines)
		if a.Uint() != b.Uint() || a.Type().Name() != b.Type().Name() {
			t.Errorf("%v %d is %v %d", a.Type(), a.Uint(), b.Type(), b.Uint())
		}
	}
	for _, c := range [][2]any{
		{RC, hca.RC}, {UC, hca.UC}, {UD, hca.UD}, {XRCSend, hca.XRCSend}, {XRCRecv, hca.XRCRecv},
		{StateReset, hca.StateReset}, {StateInit, hca.StateInit}, {StateRTR, hca.StateRTR}, {StateRTS, hca.StateRTS},
		{StateSQD, hca.StateSQD}, {StateSQE, hca.StateSQE}, {StateErr, hca.StateErr},
		{Migrated, hca.Migrated}, {Rearm, hca.Rearm}, {Armed, hca.Armed},
		{AccessLocalWrite, hca.AccessLocalWrite}, {AccessRemoteWrite, hca.AccessRemoteWrite},
		{AccessRemoteRead, hca.AccessRemoteRead}, {AccessRemoteAtomic, hca.AccessRemoteAtomic},
		{AccessMWBind, hca.AccessMWBind}, {AccessZeroBased, hca.AccessZeroBased},
		{MWType1, hca.MWType1}, {MWType2, hca.MWType2},
		{WRRDMAWrite, hca.WRRDMAWrite}, {WRRDMAWriteImm, hca.WRRDMAWriteImm}, {WRSend, hca.WRSend},
		{WRSendImm, hca.WRSendImm}, {WRRDMARead, hca.WRRDMARead}, {WRAtomicCmpSwap, hca.WRAtomicCmpSwap},
		{WRAtomicFetchAdd, hca.WRAtomicFetchAdd}, {WRLocalInv, hca.WRLocalInv}, {WRBindMW, hca.WRBindMW},
		{WRSendInv, hca.WRSendInv}, {WRFlush, hca.WRFlush}, {WRAtomicWrite, hca.WRAtomicWrite},
		{SendFence, hca.SendFence}, {SendSignaled, hca.SendSignaled}, {SendSolicited, hca.SendSolicited},
		{SendInline, hca.SendInline},
		{WCSuccess, hca.WCSuccess}, {WCLocLenErr, hca.WCLocLenErr}, {WCLocQPOpErr, hca.WCLocQPOpErr},
		{WCLocEECOpErr, hca.WCLocEECOpErr}, {WCLocProtErr, hca.WCLocProtErr}, {WCWRFlushErr, hca.WCWRFlushErr},
		{WCMWBindErr, hca.WCMWBindErr}, {WCBadRespErr, hca.WCBadRespErr}, {WCLocAccessErr, hca.WCLocAccessErr},
		{WCRemInvReqErr, hca.WCRemInvReqErr}, {WCRemAccessErr, hca.WCRemAccessErr}, {WCRemOpErr, hca.WCRemOpErr},
		{WCRetryExcErr, hca.WCRetryExcErr}, {WCRNRRetryExcErr, hca.WCRNRRetryExcErr},
		{WCLocRDDViolErr, hca.WCLocRDDViolErr}, {WCRemInvRDReqErr, hca.WCRemInvRDReqErr},
		{WCRemAbortErr, hca.WCRemAbortErr}, {WCInvEECNErr, hca.WCInvEECNErr},
		{WCInvEECStateErr, hca.WCInvEECStateErr}, {WCFatalErr, hca.WCFatalErr},
		{WCRespTimeoutErr, hca.WCRespTimeoutErr}, {WCGeneralErr, hca.WCGeneralErr},
		{WCSend, hca.WCSend}, {WCRDMAWrite, hca.WCRDMAWrite}, {WCRDMARead, hca.WCRDMARead},
		{WCCompSwap, hca.WCCompSwap}, {WCFetchAdd, hca.WCFetchAdd}, {WCBindMW, hca.WCBindMW},
		{WCLocalInv, hca.WCLocalInv}, {WCFlush, hca.WCFlush},
		{WCAtomicWrite, hca.WCAtomicWrite}, {WCRecv, hca.WCRecv}, {WCRecvRDMAWithImm, hca.WCRecvRDMAWithImm},
		{WCGRH, hca.WCGRH}, {WCWithImm, hca.WCWithImm}, {WCWithInv, hca.WCWithInv},
		{MaskState, hca.MaskState}, {MaskCurState, hca.MaskCurState}, {MaskEnSQDNotify, hca.MaskEnSQDNotify},
		{MaskAccess, hca.MaskAccess}, {MaskPKeyIndex, hca.MaskPKeyIndex}, {MaskPort, hca.MaskPort},
		{MaskQKey, hca.MaskQKey}, {MaskAV, hca.MaskAV}, {MaskPathMTU, hca.MaskPathMTU},
		{MaskTimeout, hca.MaskTimeout}, {MaskRetryCnt, hca.MaskRetryCnt}, {MaskRNRRetry, hca.MaskRNRRetry},
		{MaskRQPSN, hca.MaskRQPSN}, {MaskMaxRDAtomic, hca.MaskMaxRDAtomic}, {MaskAltPath, hca.MaskAltPath},
		{MaskMinRNRTimer, hca.MaskMinRNRTimer}, {MaskSQPSN, hca.MaskSQPSN}, {MaskMaxDestRD, hca.MaskMaxDestRD},
		{MaskPathMigState, hca.MaskPathMigState}, {MaskDestQPN, hca.MaskDestQPN},
		{EventCQErr, hca.EventCQErr}, {EventQPFatal, hca.EventQPFatal}, {EventQPReqErr, hca.EventQPReqErr},
		{EventQPAccessErr, hca.EventQPAccessErr}, {EventCommEst, hca.EventCommEst},
		{EventSQDrained, hca.EventSQDrained}, {EventPathMig, hca.EventPathMig},
		{EventPathMigErr, hca.EventPathMigErr}, {EventDeviceFatal, hca.EventDeviceFatal},
		{EventPortActive, hca.EventPortActive}, {EventPortErr, hca.EventPortErr},
		{EventLIDChange, hca.EventLIDChange}, {EventPKeyChange, hca.EventPKeyChange},
		{EventSMChange, hca.EventSMChange}, {EventSRQErr, hca.EventSRQErr},
		{EventSRQLimitReached, hca.EventSRQLimitReached}, {EventQPLastWQEReached, hca.EventQPLastWQEReached},
		{EventClientReregister, hca.EventClientReregister}, {EventGIDChange, hca.EventGIDChange},
		{EventWQFatal, hca.EventWQFatal},
	} {
		same(c[0], c[1])
	}
}
