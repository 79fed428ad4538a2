package drivertest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"softib/node/hca"
	"softib/proto/ib"
	"softib/verbs/attach"
)

// adapter is a host's adapter, whoever drives it.
type adapter interface {
	Enter() *hca.HCA
	Leave()
	Poll(cq *hca.CQ, out []hca.WC) int
}

// side is a program at one end.
type side struct {
	adapter
	lid ib.LID
	mem []byte
	mr  *hca.MR
	cq  *hca.CQ
	qp  *hca.QP
}

// address is what the other end has to know of a side.
type address struct {
	LID  ib.LID
	QPN  ib.QPN
	Addr uint64
	RKey uint32
	PSN  ib.PSN
}

// done is a completion as far as it is the same wherever it comes from.
type done struct {
	WRID   uint64
	Status hca.WCStatus
	Opcode hca.WCOpcode
	Bytes  uint32
	Imm    uint32
}

const (
	memBytes = 1 << 16
	receives = 32
	retries  = 1
	timeout  = 18 // a second: nobody is sent anything again because the machine is busy
)

// newSide makes what the program needs. PSNs follow from its LID, so that captures are the same.
func newSide(a adapter) (*side, error) {
	s := &side{adapter: a, mem: make([]byte, memBytes)}
	h := s.Enter()
	defer s.Leave()
	s.lid = h.Port(1).LID
	pd, err := h.AllocPD()
	if err != nil {
		return nil, err
	}
	if s.cq, err = h.CreateCQ(256); err != nil {
		return nil, err
	}
	all := hca.AccessLocalWrite | hca.AccessRemoteWrite | hca.AccessRemoteRead | hca.AccessRemoteAtomic
	va := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(s.mem))))
	if s.mr, err = h.RegMR(pd, s.mem, va, all); err != nil {
		return nil, err
	}
	if s.qp, err = h.CreateQP(hca.QPInit{Type: hca.RC, PD: pd, SendCQ: s.cq, RecvCQ: s.cq, SigAll: true,
		Caps: hca.Caps{MaxSendWR: 16, MaxRecvWR: receives, MaxSendSGE: 1, MaxRecvSGE: 1}}); err != nil {
		return nil, err
	}
	return s, h.ModifyQP(s.qp, hca.QPAttr{State: hca.StateInit, Port: 1, Access: all},
		hca.MaskState|hca.MaskPKeyIndex|hca.MaskPort|hca.MaskAccess)
}

func (s *side) address() address {
	return address{s.lid, s.qp.Num(), s.mr.Addr(), s.mr.RKey(), ib.PSN(1000 * uint32(s.lid))}
}

// connect brings the queue pair up and posts receives.
func (s *side) connect(to address) error {
	h := s.Enter()
	defer s.Leave()
	if err := h.ModifyQP(s.qp, hca.QPAttr{State: hca.StateRTR, PathMTU: ib.MTU1024, DestQPN: to.QPN, RQPSN: to.PSN,
		AH: hca.AHAttr{Port: 1, DLID: to.LID}, MaxDestRD: 4, MinRNRTimer: 12},
		hca.MaskState|hca.MaskAV|hca.MaskPathMTU|hca.MaskDestQPN|hca.MaskRQPSN|hca.MaskMaxDestRD|
			hca.MaskMinRNRTimer); err != nil {
		return err
	}
	for i := range receives {
		wr := hca.RecvWR{WRID: 100 + uint64(i),
			SGList: []hca.SGE{{Addr: s.mr.Addr(), Length: memBytes / 2, LKey: s.mr.LKey()}}}
		if err := h.PostRecv(s.qp, &wr); err != nil {
			return err
		}
	}
	return h.ModifyQP(s.qp, hca.QPAttr{State: hca.StateRTS, Timeout: timeout, RetryCnt: retries, RNRRetry: 7,
		MaxRDAtomic: 4, SQPSN: s.address().PSN},
		hca.MaskState|hca.MaskTimeout|hca.MaskRetryCnt|hca.MaskRNRRetry|hca.MaskSQPSN|hca.MaskMaxRDAtomic)
}

// post posts a step of the script.
func (s *side) post(i int, st step, to address) error {
	h := s.Enter()
	defer s.Leave()
	wr := hca.SendWR{WRID: uint64(i), Opcode: st.Op, RemoteAddr: to.Addr + memBytes/2, RKey: to.RKey, Imm: st.Imm,
		CompareAdd: 5, Swap: 7,
		SGList: []hca.SGE{{Addr: s.mr.Addr(), Length: uint32(st.Bytes), LKey: s.mr.LKey()}}}
	if st.BadKey {
		wr.RKey ^= 0x00FFFF00
	}
	return h.PostSend(s.qp, &wr)
}

// poll takes completions.
func (s *side) poll() (list []done) {
	var wcs [16]hca.WC
	for _, w := range wcs[:s.Poll(s.cq, wcs[:])] {
		d := done{WRID: w.WRID, Status: w.Status}
		if w.Status == hca.WCSuccess {
			d.Opcode, d.Bytes, d.Imm = w.Opcode, w.ByteLen, w.ImmData
		}
		list = append(list, d)
	}
	return list
}

// TestMain is also the program that runs in a process of its own.
func TestMain(m *testing.M) {
	if socket := os.Getenv("DRIVERTEST_SOCKET"); socket != "" {
		if err := program(socket, os.Getenv("DRIVERTEST_HOST"), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// order is a step that a program is to do, or, with -1, to tell what has come to it so far.
type order struct {
	I    int
	Step step
}

// program is a side that is told what to do, a line each: the other's address, then orders.
func program(socket, host string, in io.Reader, out io.Writer) error {
	d, err := attach.Open(attach.Options{Socket: socket, Host: host})
	if err != nil {
		return err
	}
	defer d.Close()
	s, err := newSide(d)
	if err != nil {
		return err
	}
	say := json.NewEncoder(out)
	if err := say.Encode(s.address()); err != nil {
		return err
	}
	lines := make(chan []byte)
	go func() {
		defer close(lines)
		for r := bufio.NewScanner(in); r.Scan(); {
			lines <- append([]byte{}, r.Bytes()...)
		}
	}()
	var to address
	if err := json.Unmarshal(<-lines, &to); err != nil {
		return err
	}
	if err := s.connect(to); err != nil {
		return err
	}
	var got []done
	for waits := false; ; {
		got = append(got, s.poll()...)
		if waits && len(got) > 0 {
			if err := say.Encode(got); err != nil {
				return err
			}
			got, waits = nil, false
		}
		select {
		case line, ok := <-lines:
			if !ok {
				return nil
			}
			var o order
			if err := json.Unmarshal(line, &o); err != nil {
				return err
			}
			if o.I < 0 {
				if err := say.Encode(got); err != nil {
					return err
				}
				got = nil
				continue
			}
			if err := s.post(o.I, o.Step, to); err != nil {
				return err
			}
			waits = true
		default:
			runtime.Gosched()
			if !waits {
				time.Sleep(50 * time.Microsecond)
			}
		}
	}
}
