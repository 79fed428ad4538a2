package check

import (
	"bytes"
	"fmt"

	"softib/driver/machine"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/topo"
)

// Times after which an RC connection sends again, as codes of 4.096 us * 2^n. Seven retries of each
// make the time that it bears with: more than two seconds, and 17 ms.
const (
	patientTimeout = 16
	hastyTimeout   = 9
)

// talk is one connection of a Management under way.
type talk struct {
	*MgmtConn
	id   int
	ends [2]talker
	// excused: a fault has hit its path, so that it may fail.
	excused bool
	way     []topo.PortRef // that the last message took, and its acknowledgement
	busy    bool
	n       int // messages that have come
	sentAt  ib.Time
	failed  hca.WCStatus
	failure ib.Time
}

type talker struct {
	host int
	h    *hca.HCA
	qp   *hca.QP
	cq   *hca.CQ
	mr   *hca.MR
	mem  []byte
	lid  ib.LID
}

const talkVA = 1 << 20

// newTalk connects the two ends. level is the service level from the first to the second and back.
func newTalk(s *machine.Machine, id int, c *MgmtConn, level [2]ib.SL) (*talk, error) {
	t := &talk{MgmtConn: c, id: id}
	f := &firstError{}
	for e, host := range [2]int{c.From, c.To} {
		m := &t.ends[e]
		m.host, m.h, m.mem = host, s.Engine(host), make([]byte, c.Size)
		m.lid = s.LID(topo.PortRef{Node: s.HostNode(host).Index, Port: 1})
		pd, err := m.h.AllocPD()
		f.note(err)
		m.cq, err = m.h.CreateCQ(16)
		f.note(err)
		m.qp, err = m.h.CreateQP(hca.QPInit{Type: hca.RC, PD: pd, SendCQ: m.cq, RecvCQ: m.cq,
			Caps: hca.Caps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}})
		f.note(err)
		m.mr, err = m.h.RegMR(pd, m.mem, talkVA, hca.AccessLocalWrite|hca.AccessRemoteWrite)
		f.note(err)
		if f.err != nil {
			return nil, f.err
		}
	}
	timeout := uint8(hastyTimeout)
	if c.Patient {
		timeout = patientTimeout
	}
	for e := range t.ends {
		me, peer := &t.ends[e], &t.ends[1-e]
		f.note(me.h.ModifyQP(me.qp, hca.QPAttr{State: hca.StateInit, Port: 1, Access: hca.AccessRemoteWrite},
			hca.MaskState|hca.MaskPKeyIndex|hca.MaskPort|hca.MaskAccess))
		f.note(me.h.ModifyQP(me.qp, hca.QPAttr{State: hca.StateRTR,
			AH: hca.AHAttr{DLID: peer.lid, Port: 1, SL: level[e]}, PathMTU: ib.MTU1024, DestQPN: peer.qp.Num(),
			MinRNRTimer: 12},
			hca.MaskState|hca.MaskAV|hca.MaskPathMTU|hca.MaskDestQPN|hca.MaskRQPSN|hca.MaskMaxDestRD|
				hca.MaskMinRNRTimer))
		f.note(me.h.ModifyQP(me.qp, hca.QPAttr{State: hca.StateRTS, Timeout: timeout, RetryCnt: 7, RNRRetry: 7},
			hca.MaskState|hca.MaskSQPSN|hca.MaskTimeout|hca.MaskRetryCnt|hca.MaskRNRRetry|hca.MaskMaxRDAtomic))
	}
	return t, f.err
}

type firstError struct{ err error }

func (f *firstError) note(err error) {
	if f.err == nil {
		f.err = err
	}
}

// post writes the next message.
func (t *talk) post(s *machine.Machine) error {
	a, b := &t.ends[0], &t.ends[1]
	for i := range a.mem {
		a.mem[i] = byte(t.n*7 + i*13 + i>>8)
	}
	t.busy, t.sentAt = true, s.Now()
	err := s.PostSend(a.host, a.qp, &hca.SendWR{WRID: uint64(t.n), Opcode: hca.WRRDMAWrite, Flags: hca.SendSignaled,
		RemoteAddr: talkVA, RKey: b.mr.RKey(),
		SGList: []hca.SGE{{Addr: talkVA, Length: uint32(len(a.mem)), LKey: a.mr.LKey()}}})
	s.Wake(a.host)
	return err
}

// poll takes the completion of the message under way. A string says what is wrong with it.
func (t *talk) poll(s *machine.Machine) (done bool, wrong string) {
	var wc [4]hca.WC
	s.Arm(t.From, t.ends[0].cq)
	for range s.Poll(t.From, t.ends[0].cq, wc[:]) {
		t.busy, done = false, true
		if wc[0].Status != hca.WCSuccess {
			t.failed, t.failure = wc[0].Status, s.Now()
			return true, ""
		}
		if !bytes.Equal(t.ends[0].mem, t.ends[1].mem) {
			return true, fmt.Sprintf("message %d has completed, but its bytes are not those that were sent", t.n)
		}
		t.n++
	}
	return done, ""
}

func (t *talk) String() string {
	how := "hasty"
	if t.Patient {
		how = "patient"
	}
	return fmt.Sprintf("%s connection %d (h%d LID %v to h%d LID %v)", how, t.id, t.From+1, t.ends[0].lid, t.To+1,
		t.ends[1].lid)
}
