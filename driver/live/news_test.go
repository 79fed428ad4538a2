package live

import (
	"testing"

	"softib/driver/endpoint"
	"softib/proto/ib"
)

// TestUnheardKeys: packets that a port refuses are kept from a program that has not said that it knows of the port's
// new keys, and go there again, for the program to refuse them itself, once it has.
func TestUnheardKeys(t *testing.T) {
	f := bringUp(t, "star:2")
	procs := attachAll(t, f)
	from, to := procs[0], procs[1]
	is, _, change := to.Port(1)
	rings := func(when string, want int) {
		t.Helper()
		r, err := from.Resolve(endpoint.Key{Port: 1, DLID: is.LID, PKey: ib.PKeyDefault, Block: to.Block()})
		if err != nil || len(r.Rings) != want {
			t.Errorf("%s: %d rings, %v: want %d", when, len(r.Rings), err, want)
		}
	}
	rings("as it was brought up", 1)
	is.PKeys = []ib.PKey{0x8001}
	f.mu.Lock()
	to.host.eng.SetPort(1, is)
	to.host.passOn()
	f.mu.Unlock()
	rings("with other keys that the program does not know of", 0)
	to.Heard(1, change)
	rings("with an old change heard of", 0)
	_, _, change = to.Port(1)
	gen := from.share.Slots.Gen(1)
	to.Heard(1, change)
	if from.share.Slots.Gen(1) == gen {
		t.Error("the sender is not told to ask again")
	}
	rings("with the change heard of", 1)
}

// attachAll attaches a process to each host.
func attachAll(t *testing.T, f *Fabric) (procs []*Process) {
	t.Helper()
	for _, h := range f.Hosts() {
		p, err := f.Attach(h.Name(), Caller{PID: daemon})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		procs = append(procs, p)
	}
	return procs
}
