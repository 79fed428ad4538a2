package wire

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata anew")

const corpusFile = "testdata/packets.golden"

// corpus is one packet per opcode, local and with odd padding where it may have
// payload, one of each other shape, and link packets.
func corpus() (names []string, packets [][]byte) {
	add := func(name string, b []byte) {
		names, packets = append(names, name), append(packets, b)
	}
	for o := 0; o < 256; o++ {
		if op := Opcode(o); op.Info().Valid() {
			n := 5
			if op == OpcodeCNP {
				n = 16
			}
			add(op.String(), sample(LNHLocal, op, n).Append(nil))
		}
	}
	add("global "+MakeOpcode(UD, OpSendOnly).String(), sample(LNHGlobal, MakeOpcode(UD, OpSendOnly), 32).Append(nil))
	add("global "+MakeOpcode(RC, OpReadRequest).String(),
		sample(LNHGlobal, MakeOpcode(RC, OpReadRequest), 0).Append(nil))
	add("raw EtherType", sample(LNHRaw, 0, 12).Append(nil))
	add("raw IPv6", sample(LNHIPv6, 0, 40).Append(nil))
	for _, op := range []LinkOp{LinkNormal, LinkInit} {
		l := LinkPacket{Op: op, FCTBS: 0x123, VL: 4, FCCL: 0xabc}
		add("flow control "+op.String(), l.Append(nil))
	}
	return names, packets
}

// TestCorpus compares every packet's bytes and its printed line with the
// committed ones, and reads the committed bytes back.
func TestCorpus(t *testing.T) {
	names, packets := corpus()
	var out strings.Builder
	for i, b := range packets {
		fmt.Fprintf(&out, "%s\n\t%s\n\t%s\n", names[i], hex.EncodeToString(b), Sprint(b))
	}
	if *update {
		if err := os.WriteFile(corpusFile, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(corpusFile)
	if err != nil {
		t.Fatal(err)
	}
	got, want := strings.Split(out.String(), "\n"), strings.Split(string(golden), "\n")
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("%s line %d differs; if that is meant, run go test -update", corpusFile, i+1)
		}
	}
	for i := 1; i < len(want); i += 3 {
		name, b := want[i-1], unhex(t, strings.TrimSpace(want[i]))
		if len(b) == LinkPacketSize {
			p, _, err := ParseLinkPacket(b)
			if err != nil || !bytes.Equal(p.Append(nil), b) {
				t.Errorf("%s: %+v, %v", name, p, err)
			}
			continue
		}
		var p Packet
		if err := p.Parse(b); err != nil || !bytes.Equal(p.Append(nil), b) {
			t.Errorf("%s: %v", name, err)
		}
		if p.String() != strings.TrimSpace(want[i+1]) {
			t.Errorf("%s: String is %q", name, p.String())
		}
	}
}
