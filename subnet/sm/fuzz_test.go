package sm

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// FuzzManager throws bytes at a manager at any moment: answers that nobody gave, requests from nowhere, answers of
// nodes that are changed on their way. It never falls over, and when everything behaves again it has the subnet under
// control within a bounded time.
func FuzzManager(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3})
	f.Add([]byte{3, 0x81, 1, 0x10, 0, 0, 9, 200, 5, 0x15, 0x20, 0xFF, 1, 2, 3, 4, 5, 6})
	f.Add([]byte("a longer text that is no datagram but changes many of them, at many places, and comes again " +
		"and again"))
	for _, attr := range []mad.AttrID{mad.AttrNotice, mad.AttrSMInfo, mad.AttrNodeInfo} {
		for _, method := range []mad.Method{mad.MethodTrap, mad.MethodSet, mad.MethodGet} {
			f.Add([]byte{7, byte(method), byte(attr), 1, 7, byte(method), byte(attr), 2, 7, byte(method), byte(attr),
				5})
		}
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		n := newNetwork(t, "star:3")
		h := n.manage(0, Config{})
		at := 0
		next := func() byte {
			if at >= len(script) {
				return 0
			}
			at++
			return script[at-1]
		}
		// Nodes change their answers as long as there is something left of the script.
		for node := range n.agents {
			n.answers[node] = func(_, resp mad.View) fate {
				if at >= len(script) || next()%3 != 0 {
					return fate{}
				}
				for range next() % 8 {
					resp[mad.SMPDataOff+int(next()%mad.SMPDataLen)] ^= next()
				}
				return fate{drop: next()%16 == 1, twice: next()%8 == 1, late: ib.Time(next()) * 2 * ib.Millisecond}
			}
		}
		for at < len(script) {
			var b [mad.Size]byte
			switch op := next(); op % 8 {
			case 0:
				n.pass(ib.Time(next()) * ib.Microsecond)
			case 1:
				n.pass(ib.Time(next()) * 20 * ib.Millisecond)
			case 2, 3: // an answer to something that may be under way
				for k := range b {
					b[k] = next()
				}
				cookie := uint64(next()%64)<<32 | uint64(next()%8)
				h.m.HandleReply(n.now, cookie, b[:int(next())])
			case 4:
				h.m.HandleReply(n.now, uint64(next()), nil)
			case 5: // any bytes from anywhere
				for k := range b {
					b[k] = next()
				}
				h.m.HandleRequest(n.now, mad.Envelope{LID: ib.LID(next()), QPN: ib.QPN(next() % 2)}, b[:int(next())])
			case 6: // a request of administration
				hdr := mad.Header{BaseVersion: 1, MgmtClass: mad.ClassSA, ClassVersion: 2, Method: mad.Method(next()),
					AttributeID: mad.AttrID(next())}
				hdr.Append(b[:0])
				for k := mad.HeaderSize; k < len(b); k++ {
					b[k] = next()
				}
				h.m.HandleRequest(n.now, mad.Envelope{LID: ib.LID(next() % 8), QPN: ib.QPNGSI}, b[:])
			case 7: // what managers and agents say to each other
				hdr := mad.Header{BaseVersion: 1, MgmtClass: mad.ClassSMLID, ClassVersion: 1,
					Method: mad.Method(next()), AttributeID: mad.AttrID(next()), AttributeModifier: uint32(next() % 8)}
				if op&8 != 0 {
					hdr.MgmtClass = mad.ClassSMDirect
				}
				hdr.Append(b[:0])
				if op&16 != 0 {
					info := mad.SMInfo{GUID: ib.GUID(next()), SMKey: DefaultSMKey, Priority: next() & 15,
						SMState: mad.SMState(next() % 4)}
					info.Append(b[mad.SMPDataOff:mad.SMPDataOff])
				} else {
					for k := mad.SMPDataOff; k < mad.SMPDataOff+mad.SMPDataLen; k++ {
						b[k] = next()
					}
				}
				h.m.HandleRequest(n.now, mad.Envelope{LID: ib.LID(next() % 8), QPN: ib.QPNSMI}, b[:])
			}
		}
		clear(n.answers)
		if h.m.State() == mad.SMNotActive {
			return // somebody has told it to be silent
		}
		// One wrong answer that looks right is believed until the next full sweep.
		n.pass(5 * ib.Second)
		h.m.Sweep(n.now, "test")
		if !n.until(600*ib.Second, func() bool { return h.rests() && n.broken() == "" }) {
			t.Fatalf("%v, %s\n%s", h.m.State(), n.broken(), n.logs())
		}
		if h.m.inFlight != 0 || len(h.m.out) != 0 || h.m.takeover.waiting < 0 {
			t.Fatalf("%d under way, %d to send, %d tables to come", h.m.inFlight, len(h.m.out), h.m.takeover.waiting)
		}
	})
}
