package mad

import (
	"bytes"
	"testing"
)

func init() {
	typed = append(typed, []struct {
		layout *Layout
		fresh  func() codec
	}{
		{&RMPPLayout, func() codec { return new(RMPP) }},
		{&SAHeaderLayout, func() codec { return new(SAHeader) }},
		{&LinkRecordTable.Layout, func() codec { return new(LinkRecord) }},
		{&PathRecordTable.Layout, func() codec { return new(PathRecord) }},
		{&TraceRecordTable.Layout, func() codec { return new(TraceRecord) }},
		{&MCMemberRecordTable.Layout, func() codec { return new(MCMemberRecord) }},
		{&InformInfoTable.Layout, func() codec { return new(InformInfo) }},
	}...)
}

func TestGoldenRMPP(t *testing.T) {
	r := RMPP{RMPPVersion: 1, RMPPType: RMPPData, RRespTime: RMPPRespTimeDefault, RMPPFlags: RMPPActive | RMPPFirst,
		Data1: 1, Data2: 0x01020304}
	want := unhex(t, "01 01 fb 00 00000001 01020304", RMPPSize)
	if got := r.Append(nil); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	if !r.Active() || !r.First() || r.Last() {
		t.Errorf("flags of %+v", r)
	}
	d := make([]byte, Size)
	r.Put(d)
	if !bytes.Equal(d[RMPPOff:RMPPClassOff], want) || !bytes.Equal(d[RMPPClassOff:], make([]byte, Size-RMPPClassOff)) {
		t.Errorf("Put: %x", d)
	}
	if RMPPAbort.String() != "Abort" || RMPPTooManyRetries.String() != "TooManyRetries" ||
		RMPPStatus(3).String() != "RMPPStatus(3)" {
		t.Error("names")
	}
}

func TestGoldenSAHeader(t *testing.T) {
	h := SAHeader{SMKey: 0x0102030405060708, AttributeOffset: 14, ComponentMask: 0x1122334455667788}
	want := unhex(t, "0102030405060708 000e 0000 1122334455667788", SAHeaderSize)
	if got := h.Append(nil); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	if i := ClassSA.Info(); i.DataOff != SADataOff || i.DataLen != SADataLen || i.Version != SAVersion {
		t.Errorf("class table: %+v", i)
	}
}
