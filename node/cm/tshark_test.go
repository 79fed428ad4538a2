package cm

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/trace"
	"softib/proto/wire"
)

// TestTshark has Wireshark's dissector read whole conversations: it finds every message, with the IDs of the two sides,
// and nothing malformed.
func TestTshark(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Fatal("no tshark on this machine; next: make test, which installs it")
	}
	var file bytes.Buffer
	capture, err := trace.NewPcapng(&file, trace.PcapngOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, 1)
	n := 0
	w.each = func(to int, b []byte) bool {
		n++
		words := (wire.LRHSize + wire.BTHSize + 8 + mad.Size + wire.ICRCSize) / 4
		p := wire.Packet{
			LRH: wire.LRH{LNH: wire.LNHLocal, DLID: lid(to), SLID: lid(1 - to), Length: uint16(words)},
			BTH: wire.BTH{Opcode: wire.MakeOpcode(wire.UD, wire.OpSendOnly), PKey: ib.PKeyDefault,
				DestQP: ib.QPNGSI},
			DETH:    wire.DETH{QKey: ib.QKeyGSI, SrcQP: ib.QPNGSI},
			Payload: b,
		}
		if err := capture.Write(&trace.Event{Time: w.now, Kind: trace.Packet, Node: uint32(to), Port: 1, Dir: trace.In,
			Packet: &p}); err != nil {
			t.Fatal(err)
		}
		return true
	}
	w.listen(1)
	a, b := w.establish(0x10, 0x20)
	w.must(w.ports[0].Disconnect(w.now, a, []byte("bye")))
	w.must(w.ports[1].Disconnect(w.now, w.until(1, DReqReceived).ID, nil))
	w.until(0, DRepReceived)
	r := req(0, 1, 0x11)
	alt := path(0, 1)
	r.Alternate = &alt
	w.connect(0, r)
	c := w.until(1, ReqReceived).ID
	w.must(w.ports[1].Delay(w.now, c, 14, nil))
	w.until(0, MRAReceived)
	w.must(w.ports[1].Reject(w.now, c, mad.RejConsumer, []byte{1, 2, 3}, []byte("no")))
	w.until(0, RejReceived)
	if _, err := w.ports[0].SIDRRequest(w.now, SIDRParams{Path: path(0, 1), ServiceID: service,
		Timeout: ms}); err != nil {
		t.Fatal(err)
	}
	w.must(w.ports[1].SIDRReply(w.now, w.until(1, SIDRReqReceived).ID, SIDRReplyParams{QPN: 0x30, QKey: 1}))
	w.until(0, SIDRRepReceived)

	name := filepath.Join(t.TempDir(), "cm.pcapng")
	if err := os.WriteFile(name, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(tshark, "-r", name, "-T", "fields", "-E", "separator=|", "-e",
		"infiniband.mad.attributeid",
		"-e", "infiniband.cm.req", "-e", "infiniband.cm.rep", "-e", "infiniband.cm.rtu.localcommid", "-e",
		"infiniband.cm.rej.reason", "-e", "infiniband.cm.req.remoteqpneecn",
		"-e", "infiniband.cm.drsp.localcommid", "-e", "_ws.malformed", "-e", "_ws.expert.message").Output()
	if err != nil {
		t.Fatal(err)
	}
	ha, hb := fmt.Sprintf("0x%08x", uint32(a)), fmt.Sprintf("0x%08x", uint32(b))
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		got = append(got, strings.TrimRight(line, "|"))
	}
	want := []string{"0x0010|" + ha, "0x0013||" + hb, "0x0014|||" + ha, "0x0015|||||0x000020", "0x0016||||||" + hb,
		"0x0010", "0x0011", "0x0012||||0x001c", "0x0017", "0x0018"}
	if n != len(want) || len(got) != len(want) {
		t.Fatalf("%d datagrams, %d lines, want %d:\n%s", n, len(got), len(want), out)
	}
	for i := range want {
		if i == 5 { // another ID
			got[i], _, _ = strings.Cut(got[i], "|")
		}
		if got[i] != want[i] {
			t.Errorf("tshark reads %q, want %q", got[i], want[i])
		}
	}
}
