package remote_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"softib/driver/smrun"
	"softib/driver/umad"
	"softib/internal/umadtest"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// kernelPort is a management device of a double of Linux whose port is a host of the fabric.
func (r *rig) kernelPort(host int) *umad.Port {
	r.t.Helper()
	h := r.g.Hosts()[host]
	pi, _ := r.PortInfo(topo.PortRef{Node: h.Index, Port: 1})
	k := umadtest.New(umadtest.Facts{
		CA: "mlx5_0", Port: 1, GUID: h.PortGUID(1), LID: pi.LID, State: "4: ACTIVE", Phys: "5: LinkUp",
		Link: "InfiniBand", Desc: h.Desc,
	})
	s := r.session(host)
	r.t.Cleanup(func() { s.Close() })
	agents := map[mad.Class]madrpc.AgentID{}
	for class, version := range map[mad.Class]uint8{mad.ClassSMDirect: 1, mad.ClassSMLID: 1, mad.ClassPerf: 1,
		mad.ClassSA: mad.SAVersion} {
		id, err := s.Register(madrpc.Registration{Class: class, ClassVersion: version})
		if err != nil {
			r.t.Fatal(err)
		}
		agents[class] = id
	}
	k.Wire = func(env mad.Envelope, b *[mad.Size]byte) {
		if err := s.Send(agents[mad.View(b[:]).Class()],
			madrpc.Message{Env: env, Data: b[:], Timeout: 10 * ib.Second, Cookie: mad.View(b[:]).TID()}); err != nil {
			r.t.Error(err)
		}
	}
	go func() {
		for {
			d, err := s.Recv(context.Background())
			if err != nil {
				return // the test has ended
			}
			if d.Kind == madrpc.Response {
				resp := [mad.Size]byte(d.Data)
				mad.View(resp[:]).SetTID(d.Cookie)
				k.Inject(d.Env, &resp)
			}
		}
	}()
	// The double has no clock. Without one, what is lost on a link that goes down would be waited for for ever.
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-r.t.Context().Done():
				return
			case now := <-tick.C:
				k.Advance(ib.Time(now.Sub(last)) * ib.Nanosecond)
				last = now
			}
		}
	}()
	dir := r.t.TempDir()
	if err := k.WriteSysfs(dir); err != nil {
		r.t.Fatal(err)
	}
	system := umad.System{Root: dir, OpenDevice: func(path string) (umad.Device, error) {
		if !strings.HasPrefix(path, filepath.Join(dir, "dev/infiniband")) {
			r.t.Errorf("opens %s", path)
		}
		return k.Open(path)
	}}
	p, err := system.Open(r.t.Context(), "mlx5_0", 1)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// Through a device of the kernel's, as on hardware: states, counters, ways, and a link that goes down.
func TestOnDevice(t *testing.T) {
	r := newRig(t, small, sm.Config{})
	f := watch(t, smrun.OnDevice(r.kernelPort(1)), quick)
	g := f.Graph()
	same(t, "hosts", len(g.Hosts()), 8)
	same(t, "cables", g.NumCables(), 16)
	awaitRead(t, f, 4)
	c := f.CountersOf([]topo.PortRef{ref(t, g, "h2[1]")})[0]
	if c[ib.PortXmitPkts] == 0 || c[ib.PortRcvPkts] == 0 {
		t.Errorf("h2 has counted %v", c)
	}
	pi, _ := f.PortInfo(ref(t, g, "h8[1]"))
	if w, err := f.Way(ref(t, g, "h1[1]"), pi.LID, 0, ib.PKeyDefault); err != nil || len(w.Hops) != 4 {
		t.Errorf("%+v, %v", w, err)
	}
	if st := f.Stats(); st.SurveyUnread+st.CountUnread != 0 || st.Counts == 0 {
		t.Errorf("%+v", st)
	}
	if err := r.SetLink(ref(t, r.g, "leaf1[3]"), false); err != nil {
		t.Fatal(err)
	}
	awaitEvent(t, f.Journal(), "leaf1[3]", "spine1[1]", "is DOWN")
}
