package hca

import (
	"bytes"
	"testing"
	"unsafe"
)

// pages is memory of which some is not there: a page table that notes what was asked for.
type pages struct {
	mem     []byte
	gone    map[int]bool // by number of page
	asked   int          // bytes
	written int          // bytes that were asked for to be written
}

const pageBytes = 256

func (p *pages) Fetch(mem []byte, write bool) bool {
	off := int(uintptr(unsafe.Pointer(&mem[0])) - uintptr(unsafe.Pointer(&p.mem[0])))
	p.asked += len(mem)
	if write {
		p.written += len(mem)
	}
	for i := off / pageBytes; i <= (off+len(mem)-1)/pageBytes; i++ {
		if p.gone[i] {
			return false
		}
	}
	return true
}

// onDemand registers 16 pages at an end of a pair.
func (e *end) onDemand(va uint64) (*MR, *pages) {
	e.w.t.Helper()
	p := &pages{mem: make([]byte, 16*pageBytes), gone: map[int]bool{}}
	return must(e.h.RegOnDemand(e.pd, p.mem, va, accessAll&^AccessZeroBased, p))(e.w.t), p
}

// TestOnDemand lets every operation meet pages that are there and pages that are not.
func TestOnDemand(t *testing.T) {
	const va, n = 0x7000_0000, 2 * pageBytes
	at := func(mr *MR, page int) []SGE {
		return []SGE{{Addr: va + uint64(page*pageBytes), Length: n, LKey: mr.LKey()}}
	}
	for _, c := range []struct {
		what  string
		gone  WCStatus // where the second of the pages is gone
		local bool     // it is the requester's memory that is on demand
		bytes int      // that have to be asked for, and no more
		do    func(a, b *end, mr *MR) WCStatus
	}{
		{"send", WCLocProtErr, true, n, func(a, b *end, mr *MR) WCStatus {
			b.recv(1, b.sge(0, n))
			return a.try(SendWR{Opcode: WRSend, SGList: at(mr, 3)})
		}},
		{"send inline", WCSuccess, true, 8, func(a, b *end, mr *MR) WCStatus {
			b.recv(1, b.sge(0, n))
			return a.try(SendWR{Opcode: WRSend, Flags: SendInline, SGList: []SGE{{Addr: va + 3*pageBytes, Length: 8,
				LKey: mr.LKey()}}})
		}},
		{"receive", WCRemOpErr, false, n, func(a, b *end, mr *MR) WCStatus {
			ok(a.w.t, b.h.PostRecv(b.qp, &RecvWR{SGList: at(mr, 3)}))
			return a.try(SendWR{Opcode: WRSend, SGList: []SGE{a.sge(0, n)}})
		}},
		{"write", WCRemAccessErr, false, n, func(a, b *end, mr *MR) WCStatus {
			return a.writeTo(mr.RKey(), va+3*pageBytes, n)
		}},
		{"read", WCRemAccessErr, false, n, func(a, b *end, mr *MR) WCStatus {
			return a.try(SendWR{Opcode: WRRDMARead, SGList: []SGE{a.sge(0, n)}, RemoteAddr: va + 3*pageBytes,
				RKey: mr.RKey()})
		}},
		{"read into", WCLocProtErr, true, n, func(a, b *end, mr *MR) WCStatus {
			return a.try(SendWR{Opcode: WRRDMARead, SGList: at(mr, 3), RemoteAddr: memVA, RKey: b.mr.RKey()})
		}},
		{"atomic", WCRemAccessErr, false, 8, func(a, b *end, mr *MR) WCStatus {
			return a.try(SendWR{Opcode: WRAtomicFetchAdd, SGList: []SGE{a.sge(0, 8)}, RemoteAddr: va + 4*pageBytes,
				RKey: mr.RKey(), CompareAdd: 1})
		}},
		{"window", WCRemAccessErr, false, n, func(a, b *end, mr *MR) WCStatus {
			mw := must(b.h.AllocMW(b.pd, MWType1))(a.w.t)
			expect(t, "bind", b.try(SendWR{Opcode: WRBindMW, Bind: &BindInfo{MW: mw, MR: mr, Addr: va,
				Length: 16 * pageBytes, Access: AccessRemoteWrite}}), WCSuccess)
			return a.writeTo(mw.RKey(), va+3*pageBytes, n)
		}},
	} {
		for _, isGone := range []bool{false, true} {
			w := newWorld(t, 2, 1)
			a, b := w.pair(conf{})
			of, want := b, WCSuccess
			if c.local {
				of = a
			}
			mr, p := of.onDemand(va)
			if isGone {
				p.gone[4], want = true, c.gone
			}
			if got := c.do(a, b, mr); got != want {
				t.Errorf("%s, page gone %v: %v, want %v", c.what, isGone, got, want)
			}
			if !isGone && p.asked != c.bytes {
				t.Errorf("%s: %d bytes were asked for, want %d", c.what, p.asked, c.bytes)
			}
			if isGone && !bytes.Equal(p.mem[4*pageBytes:5*pageBytes], make([]byte, pageBytes)) {
				t.Errorf("%s: a page that was not there was written", c.what)
			}
			// Pages can go at any time, so nobody else may write there by himself.
			if _, granted := b.h.TakeGrant(); granted {
				t.Errorf("%s: memory on demand was granted", c.what)
			}
		}
	}
}

// TestAdvise fetches pages ahead of time, of memory on demand alone.
func TestAdvise(t *testing.T) {
	const va = 0x7000_0000
	w := newWorld(t, 2, 1)
	a, _ := w.pair(conf{})
	mr, p := a.onDemand(va)
	list := []SGE{{Addr: va, Length: pageBytes, LKey: mr.LKey()}, {Addr: va + 4*pageBytes, Length: 8, LKey: mr.LKey()}}
	ok(t, a.h.AdviseMR(a.pd, list, true, false))
	if p.asked != pageBytes+8 || p.written != p.asked {
		t.Fatalf("%d bytes were fetched, %d of them to be written, want %d", p.asked, p.written, pageBytes+8)
	}
	p.gone[4] = true
	wantAttr(t, a.h.AdviseMR(a.pd, list, false, false), "advise_mr", "sg_list", ErrFault)
	ok(t, a.h.AdviseMR(a.pd, list, false, true))
	list[1].Addr = va + 16*pageBytes
	wantAttr(t, a.h.AdviseMR(a.pd, list, false, true), "advise_mr", "sg_list", ErrInvalid)
	wantAttr(t, a.h.AdviseMR(a.pd, []SGE{a.sge(0, 8)}, false, false), "advise_mr", "sg_list", ErrInvalid)
	wantAttr(t, a.h.AdviseMR(must(a.h.AllocPD())(t), list[:1], false, false), "advise_mr", "sg_list", ErrInvalid)
}
