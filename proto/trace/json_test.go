package trace

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

func TestJSONGolden(t *testing.T) {
	var out bytes.Buffer
	j := NewJSON(&out)
	j.Port(1, 1, "h1/1")
	raw := &wire.Packet{LRH: wire.LRH{LNH: wire.LNHRaw, DLID: 5, SLID: 7}, RawType: 0x88B5, Payload: make([]byte, 16)}
	raw.LRH.Length = raw.Words()
	cut := ack().Append(nil)[:10]
	for _, e := range []Event{
		{Time: 1234, Node: 1, Port: 1, Dir: Out, Packet: ack()},
		{Time: 2 * ib.Nanosecond, Node: 2, Port: 3, Dir: In, Kind: Link,
			Link: wire.LinkPacket{Op: wire.LinkInit, VL: 2, FCTBS: 3, FCCL: 4}},
		{Time: 3 * ib.Nanosecond, Node: 2, Port: 3, Kind: State, What: "port", From: "Armed", To: "Active"},
		{Time: 4 * ib.Nanosecond, Node: 1, Port: 1, Kind: State, What: "QP", QP: 17, From: "RTS", To: "ERR",
			Note: "retries \"spent\""},
		{Time: 5 * ib.Nanosecond, Node: 2, Port: 3, Dir: In, Kind: Drop, Reason: NoRoute, Packet: raw},
		{Time: 6 * ib.Nanosecond, Node: 2, Port: 3, Dir: In, Kind: Drop, Reason: Malformed, Bytes: cut},
		{Time: 7 * ib.Nanosecond, Node: 2, Port: 3, Dir: In, Bytes: ack().Append(nil)},
	} {
		write(t, j, e)
	}
	want := `{"t_ps":1234,"kind":"packet","node":1,"port":1,"name":"h1/1","dir":"out","packet":{"slid":1,"dlid":2,"vl":0,"sl":0,"bytes":30,"opcode":"RC Acknowledge","dest_qp":18,"psn":52,"payload":0,"text":"1 > 2 VL0 SL0 RC Acknowledge QP 0x000012 PSN 52 PKey 0xffff ACK MSN 1"}}
{"t_ps":2000,"kind":"link","node":2,"port":3,"dir":"in","link":{"op":"init","vl":2,"fctbs":3,"fccl":4}}
{"t_ps":3000,"kind":"state","node":2,"port":3,"what":"port","from":"Armed","to":"Active"}
{"t_ps":4000,"kind":"state","node":1,"port":1,"name":"h1/1","what":"QP","from":"RTS","to":"ERR","qp":17,"note":"retries \"spent\""}
{"t_ps":5000,"kind":"drop","node":2,"port":3,"dir":"in","reason":"no-route","packet":{"slid":7,"dlid":5,"vl":0,"sl":0,"bytes":30,"payload":16,"text":"7 > 5 VL0 SL0 raw EtherType 0x88b5 payload 16"}}
{"t_ps":6000,"kind":"drop","node":2,"port":3,"dir":"in","reason":"malformed","packet":{"slid":0,"dlid":0,"vl":0,"sl":0,"bytes":10,"payload":0,"text":"1 > 2 VL0 SL0 bytes 2 [LRH.PktLen: 30 bytes announced, 10 present] [BTH.bytes: truncated: got 2, want 12]"}}
{"t_ps":7000,"kind":"packet","node":2,"port":3,"dir":"in","packet":{"slid":1,"dlid":2,"vl":0,"sl":0,"bytes":30,"opcode":"RC Acknowledge","dest_qp":18,"psn":52,"payload":0,"text":"1 > 2 VL0 SL0 RC Acknowledge QP 0x000012 PSN 52 PKey 0xffff ACK MSN 1"}}
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	for line := range strings.Lines(out.String()) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil || v["kind"] == nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for r := NoReason + 1; r < NumReason; r++ {
		s := r.String()
		if s == "" || seen[s] || strings.ContainsAny(s, " ()") {
			t.Errorf("reason %d is called %q", r, s)
		}
		seen[s] = true
	}
	if NumReason.String() != "Reason(30)" || NumKind.String() != "Kind(4)" || NumDir.String() != "Dir(3)" {
		t.Errorf("%v %v %v", NumReason, NumKind, NumDir)
	}
	if In.String() != "in" || Out.String() != "out" || Drop.String() != "drop" || Link.String() != "link" {
		t.Error("names moved")
	}
}
