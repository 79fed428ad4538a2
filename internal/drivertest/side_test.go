package drivertest

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"os"
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

// setup is what both programs make before the script begins.
type setup struct {
	Unreliable         bool // a connection that nobody acknowledges
	Receives           int
	RNRTimer, RNRRetry uint8
	// Timeout is the code of how long acknowledgements are waited for; 0 where none are lost.
	Timeout uint8
}

// side is a program at one end.
type side struct {
	adapter
	is      setup
	lid     ib.LID
	mem     []byte
	pd      *hca.PD
	mr      *hca.MR
	guarded *hca.MR // of the same memory, which nobody else may write to
	cq      *hca.CQ
	qp      *hca.QP
	answers bool // it posts a receive when it has first had none
}

// address is what the other end has to know of a side.
type address struct {
	LID           ib.LID
	QPN           ib.QPN
	Addr          uint64
	RKey, Guarded uint32
	PSN           ib.PSN
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
	maxSends = 512
	retries  = 1
	// In real time a process may have no turn, and nothing is to be sent again because of that: acknowledgements are
	// waited for for two minutes where none is lost, for four seconds where one is, and for two where none will come.
	timeout, timeoutOne, timeoutAll = 25, 20, 19
)

// newSide makes what the program needs. PSNs and what is in its memory follow from its LID, so that captures and
// digests are the same.
func newSide(a adapter, is setup) (*side, error) {
	s := &side{adapter: a, is: is, mem: make([]byte, memBytes)}
	h := s.Enter()
	defer s.Leave()
	s.lid = h.Port(1).LID
	for i := range s.mem {
		s.mem[i] = byte(i*31 + i>>8 + int(s.lid))
	}
	var err error
	if s.pd, err = h.AllocPD(); err != nil {
		return nil, err
	}
	if s.cq, err = h.CreateCQ(2 * maxSends); err != nil {
		return nil, err
	}
	va := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(s.mem))))
	if s.mr, err = h.RegMR(s.pd, s.mem, va, allAccess); err != nil {
		return nil, err
	}
	if s.guarded, err = h.RegMR(s.pd, s.mem, va, hca.AccessRemoteRead); err != nil {
		return nil, err
	}
	service := hca.RC
	if is.Unreliable {
		service = hca.UC
	}
	if s.qp, err = h.CreateQP(hca.QPInit{Type: service, PD: s.pd, SendCQ: s.cq, RecvCQ: s.cq, SigAll: true,
		Caps: hca.Caps{MaxSendWR: maxSends, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1}}); err != nil {
		return nil, err
	}
	may := allAccess
	if is.Unreliable {
		may = hca.AccessLocalWrite | hca.AccessRemoteWrite
	}
	return s, h.ModifyQP(s.qp, hca.QPAttr{State: hca.StateInit, Port: 1, Access: may},
		hca.MaskState|hca.MaskPKeyIndex|hca.MaskPort|hca.MaskAccess)
}

const allAccess = hca.AccessLocalWrite | hca.AccessRemoteWrite | hca.AccessRemoteRead | hca.AccessRemoteAtomic

func (s *side) address() address {
	return address{s.lid, s.qp.Num(), s.mr.Addr(), s.mr.RKey(), s.guarded.RKey(), ib.PSN(1000 * uint32(s.lid))}
}

// connect brings the queue pair up and posts receives.
func (s *side) connect(to address) error {
	h := s.Enter()
	defer s.Leave()
	rtr, rts := hca.MaskMaxDestRD|hca.MaskMinRNRTimer,
		hca.MaskTimeout|hca.MaskRetryCnt|hca.MaskRNRRetry|hca.MaskMaxRDAtomic
	if s.is.Unreliable {
		rtr, rts = 0, 0
	}
	if err := h.ModifyQP(s.qp, hca.QPAttr{State: hca.StateRTR, PathMTU: ib.MTU1024, DestQPN: to.QPN, RQPSN: to.PSN,
		AH: hca.AHAttr{Port: 1, DLID: to.LID}, MaxDestRD: 4, MinRNRTimer: s.is.RNRTimer},
		hca.MaskState|hca.MaskAV|hca.MaskPathMTU|hca.MaskDestQPN|hca.MaskRQPSN|rtr); err != nil {
		return err
	}
	for i := range s.is.Receives {
		if err := s.receive(h, i); err != nil {
			return err
		}
	}
	return h.ModifyQP(s.qp, hca.QPAttr{State: hca.StateRTS, Timeout: cmp.Or(s.is.Timeout, timeout), RetryCnt: retries,
		RNRRetry: s.is.RNRRetry, MaxRDAtomic: 4, SQPSN: s.address().PSN}, hca.MaskState|hca.MaskSQPSN|rts)
}

func (s *side) receive(h *hca.HCA, i int) error {
	wr := hca.RecvWR{WRID: 1000 + uint64(i),
		SGList: []hca.SGE{{Addr: s.mr.Addr(), Length: memBytes / 2, LKey: s.mr.LKey()}}}
	return h.PostRecv(s.qp, &wr)
}

// order is something that a program is to do.
type order struct {
	Do   action
	I    int
	Step step
}

type action string

// What programs do. Whatever it is, they tell what has completed, and how they are.
const (
	tells       action = ""
	posts       action = "posts"
	deregisters action = "deregisters its memory"
	fails       action = "moves its queue pair to the error state"
	answers     action = "posts a receive when it has been found to have none"
	digests     action = "says what is in its memory"
)

// told is what they tell.
type told struct {
	Done   []done
	Stats  hca.Stats
	Memory uint64 // a digest
}

// do does what is ordered.
func (s *side) do(o order, to address) (r told, err error) {
	h := s.Enter()
	switch o.Do {
	case posts:
		for i := 0; i < max(o.Step.Times, 1) && err == nil; i++ {
			err = s.post(h, o.I, i, o.Step, to)
		}
	case deregisters:
		err = h.DeregMR(s.mr)
	case fails:
		err = h.ModifyQP(s.qp, hca.QPAttr{State: hca.StateErr}, hca.MaskState)
	case answers:
		s.answers = true
	}
	s.Leave()
	if err != nil {
		return r, err
	}
	if r.Done, err = s.turn(); err != nil {
		return r, err
	}
	r.Stats = s.Enter().Stats
	s.Leave()
	if o.Do == digests {
		d := fnv.New64a()
		d.Write(s.mem)
		r.Memory = d.Sum64()
	}
	return r, nil
}

// turn is what a program does all the time: it takes completions, and posts a receive if it has to.
func (s *side) turn() (list []done, err error) {
	list = s.poll()
	if s.answers {
		h := s.Enter()
		defer s.Leave()
		if h.Stats.RNRsSent > 0 {
			s.answers = false
			err = s.receive(h, 0)
		}
	}
	return list, err
}

// post posts a step of the script, once of so many times.
func (s *side) post(h *hca.HCA, i, time int, st step, to address) error {
	wr := hca.SendWR{WRID: uint64(i), Opcode: st.Op, RemoteAddr: to.Addr + memBytes/2 + uint64(time*st.Bytes),
		RKey: to.RKey, Imm: st.Imm, CompareAdd: 5, Swap: 7,
		SGList: []hca.SGE{{Addr: s.mr.Addr() + uint64(time*st.Bytes), Length: uint32(st.Bytes), LKey: s.mr.LKey()}}}
	switch st.Wrong {
	case "key":
		wr.RKey ^= 0x00FFFF00
	case "rights":
		wr.RKey = to.Guarded
	case "bounds":
		wr.RemoteAddr += memBytes / 2
	case "own key":
		wr.SGList[0].LKey ^= 0x00FFFF00
	}
	return h.PostSend(s.qp, &wr)
}

// poll takes completions.
func (s *side) poll() (list []done) {
	var wcs [16]hca.WC
	for n := len(wcs); n == len(wcs); {
		n = s.Poll(s.cq, wcs[:])
		for _, w := range wcs[:n] {
			d := done{WRID: w.WRID, Status: w.Status}
			if w.Status == hca.WCSuccess {
				d.Opcode, d.Bytes, d.Imm = w.Opcode, w.ByteLen, w.ImmData
			}
			list = append(list, d)
		}
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

// program is a side that is told what to do, a line each: how it is set up, the other's address, then orders.
func program(socket, host string, in io.Reader, out io.Writer) error {
	d, err := attach.Open(attach.Options{Socket: socket, Host: host})
	if err != nil {
		return err
	}
	defer d.Close()
	lines := make(chan []byte)
	go func() {
		defer close(lines)
		for r := bufio.NewScanner(in); r.Scan(); {
			lines <- append([]byte{}, r.Bytes()...)
		}
	}()
	var is setup
	if err := json.Unmarshal(<-lines, &is); err != nil {
		return err
	}
	s, err := newSide(d.Driver().(adapter), is)
	if err != nil {
		return err
	}
	say := json.NewEncoder(out)
	if err := say.Encode(s.address()); err != nil {
		return err
	}
	var to address
	if err := json.Unmarshal(<-lines, &to); err != nil {
		return err
	}
	if err := s.connect(to); err != nil {
		return err
	}
	var got []done
	for {
		var o order
		select {
		case line, ok := <-lines:
			if !ok {
				return nil
			}
			if err := json.Unmarshal(line, &o); err != nil {
				return err
			}
			r, err := s.do(o, to)
			if err != nil {
				return err
			}
			r.Done, got = append(got, r.Done...), nil
			if err := say.Encode(r); err != nil {
				return err
			}
		default:
			more, err := s.turn()
			if err != nil {
				return err
			}
			got = append(got, more...)
			time.Sleep(50 * time.Microsecond)
		}
	}
}
