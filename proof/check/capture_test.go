package check

import (
	"bytes"
	"testing"

	"softib/proto/trace"
	"softib/proto/wire"
)

// A captured history is the same history, and its capture has its packets, each a
// packet with true CRCs unless a fault has spoilt it.
func TestCapture(t *testing.T) {
	sc := Draw(13, 0)
	plain := Run(&sc)
	var file bytes.Buffer
	res := Capture(&sc, &file)
	if res.CaptureErr != nil || res.Failed() {
		t.Fatalf("%v, %v", res.CaptureErr, res.Violations)
	}
	if res.Hash != plain.Hash || res.Hops != plain.Hops {
		t.Errorf("hash %x after %d hops, without the capture %x after %d", res.Hash, res.Hops, plain.Hash, plain.Hops)
	}
	c, err := trace.ReadPcapng(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if uint64(len(c.Records)) < res.Hops {
		t.Errorf("%d packets captured in %d hops", len(c.Records), res.Hops)
	}
	if len(sc.Faults) > 0 {
		t.Fatalf("seed 13 has faults now: name one that has none")
	}
	for i, r := range c.Records {
		var p wire.Packet
		if err := p.Parse(r.Bytes); err != nil {
			t.Fatalf("packet %d: %v", i, err)
		}
	}
}
