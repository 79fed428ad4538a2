package agent

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// TestTerms: what was sent in a term that is over is refused, and counted; whatever says no term is as it was before.
func TestTerms(t *testing.T) {
	const secret, foreign = 77, 0xFEED
	for _, sw := range []bool{false, true} {
		b, g := (*bench)(nil), ib.GUID(0x201)
		if sw {
			b, _ = benchSwitch(t)
			g = 0x200
		} else {
			b, _ = benchCA(t)
		}
		pi := mad.PortInfo{LID: 5, MasterSMLID: 1}
		mod := uint32(0)
		may := func(key uint64) bool {
			b.mkey = key
			return b.ask(mad.MethodSet, mad.AttrPortInfo, mod, &pi) != nil
		}
		all := func(term uint32) uint64 { return mad.TermKey(secret, 0, term) }
		own := func(term uint32) uint64 { return mad.TermKey(secret, g, term) }
		try := func(key uint64, want bool, what string) {
			t.Helper()
			if got := may(key); got != want {
				t.Errorf("switch %v: %s: carried out %v, want %v", sw, what, got, want)
			}
		}
		try(all(3), true, "without a secret, any key")
		try(all(2), true, "without a secret, an earlier one")
		b.SetTerms(secret)
		try(all(2), true, "the first term")
		try(all(3), true, "the next")
		try(all(2), false, "one that is over")
		try(own(2), false, "one that is over, by the port's own key")
		try(own(3), true, "the present one, by the port's own key")
		try(all(3), true, "the present one again")
		try(0, true, "no key")
		try(foreign, true, "a foreign manager's key")
		try(mad.TermKey(secret+1, 0, 9), true, "a key of another secret")
		try(all(3), true, "and that has moved nothing")
		b.mkey = all(3)
		var now mad.PortInfo
		b.get(mad.AttrPortInfo, mod, &now)
		if now.MKeyViolations != 0 {
			t.Errorf("switch %v: violations %d: the last Set has cleared them", sw, now.MKeyViolations)
		}
		may(all(1))
		may(own(2))
		b.mkey = all(3)
		if b.get(mad.AttrPortInfo, mod, &now); now.MKeyViolations != 2 {
			t.Errorf("switch %v: two refused requests are %d violations", sw, now.MKeyViolations)
		}
		b.mkey = all(2)
		if b.ask(mad.MethodGet, mad.AttrPortInfo, mod, nil) != nil {
			t.Errorf("switch %v: one whose term is over is answered a Get", sw)
		}

		// A port that is guarded by the key of a term has that of the next, once it was heard.
		pi.MKey, pi.MKeyProtectBits = own(3), 2
		try(all(3), true, "giving the port a key")
		pi.MKey = own(4)
		try(0, false, "no key at a guarded port")
		try(all(4), false, "the key of all at a guarded port")
		try(own(3), false, "the port's key of a term that is over")
		try(own(4), true, "the port's key of the next term")
		pi.MKey = own(5)
		try(own(5), true, "and of the one after it")
		try(own(4), false, "the one before it")
		pi.MKey = foreign
		try(own(5), true, "giving the port a foreign key")
		try(own(6), false, "a key of a term at a port with a foreign key")
		try(foreign, true, "the foreign key")
	}
}
