package main

import (
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"softib/driver/live"
	"softib/node/hca"
	"softib/node/inspect"
	"softib/operate/status"
	"softib/subnet/sm"
)

// TestStatusPrograms: programs that are attached are listed, and what is wrong with them is said.
func TestStatusPrograms(t *testing.T) {
	l := newLab(t, "star:2", &sm.Config{SweepInterval: -1})
	wants(t, shown(t, "status"), "programs  none: softib exec HOST -- PROGRAM")
	p, err := l.Attach("h2", live.Caller{PID: os.Getpid(), Library: "0.0.9"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	st := asJSON[status.Status](t, shown(t, "status", "--json"))
	if len(st.Programs) != 1 {
		t.Fatalf("programs are %+v: want one", st.Programs)
	}
	if got := st.Programs[0]; got.Host != "h2" || got.PID != os.Getpid() || got.Name == "" || got.Library != "0.0.9" ||
		time.Since(got.Since) > time.Minute || len(got.QPs) != 0 {
		t.Errorf("the program is %+v", got)
	}
	wants(t, shown(t, "status"), "h2 "+st.Programs[0].Name, "sent 0 bytes, received 0 bytes", "0 queue pairs",
		`its library is of release "0.0.9", not `+version)
}

func TestProgramText(t *testing.T) {
	s := inspect.ProgramStats{Host: "h1", PID: 7, Name: "x", Library: version, Since: time.Now().Add(-2 * time.Minute),
		Stats: hca.Stats{TxBytes: 5 << 20, RxBytes: 100, IPoIBTxBytes: 1 << 20, TxPackets: 3, Timeouts: 9}}
	s.QPs[hca.RC][hca.StateRTS], s.QPs[hca.UD][hca.StateErr] = 3, 1
	s.Stats.SendErrors[hca.WCRetryExcErr], s.Stats.RecvErrors[hca.WCWRFlushErr] = 2, 50
	p := status.ProgramOf(&s)
	want := []string{
		"h1 x, process 7, for 2m0s", "  sent 5.0 MiB, received 100 bytes", "  4 queue pairs: 3 RC in RTS, 1 UD in ERR",
		"  1.0 MiB of what it carries is IP over InfiniBand",
		"  2 requests have failed: --json says how",
	}
	if got := programLines(&p, newTerminal(io.Discard), version); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if p.Errors["RETRY_EXC_ERR"] != 2 || p.Errors["WR_FLUSH_ERR"] != 50 || len(p.Errors) != 2 || p.Timeouts != 9 ||
		p.TxPackets != 3 {
		t.Errorf("in figures: %+v", p)
	}
}
