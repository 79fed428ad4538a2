package smrun_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"softib/driver/live"
	"softib/driver/smrun"
	"softib/driver/umad"
	"softib/internal/umadtest"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// device is a double of the kernel whose port is the first host of a fabric: subnet management goes along its cables.
type device struct {
	*umadtest.Kernel
	f    *live.Fabric
	from topo.PortRef

	mu   sync.Mutex
	mute int // a node that does not answer, -1 for none
	seen int
}

func newDevice(t *testing.T, f *live.Fabric) (*device, *umad.Port) {
	t.Helper()
	h := f.Graph().Hosts()[0]
	d := &device{f: f, from: topo.PortRef{Node: h.Index, Port: 1}, mute: -1}
	d.Kernel = umadtest.New(umadtest.Facts{
		CA: "mlx5_0", Port: 1, GUID: h.PortGUID(1), State: "2: INIT", Phys: "5: LinkUp", Link: "InfiniBand",
		Desc: h.Desc,
	})
	d.Wire = d.wire
	dir := t.TempDir()
	if err := d.WriteSysfs(dir); err != nil {
		t.Fatal(err)
	}
	system := umad.System{Root: dir, OpenDevice: func(path string) (umad.Device, error) {
		if !strings.HasPrefix(path, filepath.Join(dir, "dev/infiniband")) {
			t.Errorf("opens %s", path)
		}
		return d.Open(path)
	}}
	p, err := system.Open(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	return d, p
}

// wire takes a directed request to its node and the answer back.
func (d *device) wire(env mad.Envelope, b *[mad.Size]byte) {
	v := mad.View(b[:])
	if v.Class() != mad.ClassSMDirect || v.Method().IsResponse() {
		return
	}
	g := d.f.Graph()
	node, in := d.from.Node, ib.PortNum(0)
	for h := uint8(1); h <= v.HopCount(); h++ {
		out := v.InitialPath(h)
		n := g.Nodes[node]
		if int(out) >= len(n.Ports) || !n.Ports[out].Connected() || h > 1 && !n.IsSwitch() {
			return
		}
		node, in = n.Ports[out].Peer, n.Ports[out].PeerPort
	}
	d.mu.Lock()
	d.seen++
	silent := node == d.mute
	d.mu.Unlock()
	if silent {
		return
	}
	// The agent sees it as one that has come to its end.
	req := *b
	lid := req
	lid[1] = byte(mad.ClassSMLID)
	for k := 4; k < 8; k++ {
		lid[k] = 0
	}
	if in == 0 {
		in = d.from.Port
	}
	var resp [mad.Size]byte
	if !d.f.SMP(node, in, &lid, &resp) {
		return
	}
	out := req
	out[3] = resp[3]
	copy(out[4:6], resp[4:6])
	out[4] |= 0x80
	copy(out[mad.SMPDataOff:][:mad.SMPDataLen], resp[mad.SMPDataOff:])
	d.Inject(env, &out)
}

// TestOnDevice: the manager brings up a fabric through the kernel's device, and says at its port that it is there.
func TestOnDevice(t *testing.T) {
	f := fabric(t, topo.DefaultSpec)
	d, p := newDevice(t, f)
	tr := smrun.OnDevice(p)
	r, err := smrun.New(sm.Config{}, tr, smrun.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !d.IsSM() {
		t.Error("the issm device is not held")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go r.Run(ctx)
	within(t, "the subnet is up", r.Up())
	var last sm.SweepReport
	if err := r.Do(func(m *sm.Manager) { last = m.Last() }); err != nil {
		t.Fatal(err)
	}
	g := f.Graph()
	if last.Hosts != len(g.Hosts()) || last.Switches != len(g.Switches()) || last.Links != g.NumCables() ||
		last.Problems != 0 {
		t.Errorf("%+v", last)
	}
	for _, h := range g.Hosts() {
		if st := f.PortState(topo.PortRef{Node: h.Index, Port: 1}); st != ib.PortActive {
			t.Errorf("%s is %v", h.Name, st)
		}
	}
	// A trap comes in by the device.
	trap := mad.Header{BaseVersion: 1, MgmtClass: mad.ClassSMLID, ClassVersion: 1, Method: mad.MethodTrap,
		TransactionID: 5, AttributeID: mad.AttrNotice}
	var b [mad.Size]byte
	trap.Append(b[:0])
	n := mad.Notice{IsGeneric: true, TrapNumberDeviceID: mad.TrapBadQKey, IssuerLID: 3}
	n.Append(b[mad.SMPDataOff:mad.SMPDataOff])
	if !d.Inject(mad.Envelope{LID: 3, QPN: ib.QPNSMI}, &b) {
		t.Fatal("nobody wants a trap")
	}
	for deadline := time.Now().Add(60 * time.Second); ; {
		var traps uint64
		if err := r.Do(func(m *sm.Manager) { traps = m.Counters().Traps }); err != nil {
			t.Fatal(err)
		}
		if traps == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the trap has not come")
		}
	}
	cancel()
	within(t, "it ends", r.Done())
	if d.IsSM() {
		t.Error("the issm device is still held")
	}
}

// TestOnDeviceTimeouts: what the kernel gives up comes back to the manager, which names it and goes on.
func TestOnDeviceTimeouts(t *testing.T) {
	f := fabric(t, "star:4")
	d, p := newDevice(t, f)
	d.mute = f.Graph().Hosts()[2].Index
	r, err := smrun.New(sm.Config{}, smrun.OnDevice(p), smrun.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go r.Run(ctx)
	deadline := time.After(60 * time.Second)
	for up := false; !up; {
		select {
		case <-r.Up():
			up = true
		case <-deadline:
			t.Fatal("not up")
		default:
			d.Advance(50 * ib.Millisecond) // the kernel's clock is the test's
		}
	}
	var last sm.SweepReport
	if err := r.Do(func(m *sm.Manager) { last = m.Last() }); err != nil {
		t.Fatal(err)
	}
	if last.Hosts != 3 || last.Problems == 0 {
		t.Errorf("%+v", last)
	}
	cancel()
	within(t, "it ends", r.Done())
}

// TestDeviceTransport: the transport as such.
func TestDeviceTransport(t *testing.T) {
	f := fabric(t, "star:2")
	d, p := newDevice(t, f)
	tr := smrun.OnDevice(p)
	id, err := tr.Register(madrpc.Registration{Class: mad.ClassSMDirect, ClassVersion: 1})
	if err != nil {
		t.Fatal(err)
	}
	var b [mad.Size]byte
	h := mad.Header{BaseVersion: 1, MgmtClass: mad.ClassSMDirect, ClassVersion: 1, Method: mad.MethodGet,
		TransactionID: 9, AttributeID: mad.AttrNodeInfo}
	h.Append(b[:0])
	b[32], b[33], b[34], b[35] = 0xFF, 0xFF, 0xFF, 0xFF
	env := mad.Envelope{LID: ib.LIDPermissive, QPN: ib.QPNSMI}
	if err := tr.Queue(tr.Now(), id, madrpc.Message{Env: env, Data: b[:], Timeout: ib.Second, Cookie: 11}); err != nil {
		t.Fatal(err)
	}
	var got []madrpc.Delivery
	take := func(x madrpc.Delivery) { got = append(got, x) }
	wait := func() {
		t.Helper()
		got = nil
		for len(got) == 0 {
			if tr.Poll(take) {
				return
			}
			select {
			case <-tr.Bell():
			case <-time.After(60 * time.Second):
				t.Fatal("nothing has come")
			}
		}
	}
	wait()
	if got[0].Kind != madrpc.Response || got[0].Cookie != 11 || mad.View(got[0].Data).AttrID() != mad.AttrNodeInfo {
		t.Errorf("%+v", got[0].Kind)
	}
	d.mu.Lock()
	d.mute = d.from.Node
	d.mu.Unlock()
	h.TransactionID = 10
	h.Append(b[:0])
	if err := tr.Queue(tr.Now(), id, madrpc.Message{Env: env, Data: b[:], Timeout: ib.Second, Retries: 1,
		Cookie: 12}); err != nil {
		t.Fatal(err)
	}
	d.Advance(1100 * ib.Millisecond)
	if tr.Poll(take) {
		t.Error("given up too early")
	}
	d.Advance(1100 * ib.Millisecond)
	wait()
	if got[0].Kind != madrpc.TimedOut || got[0].Cookie != 12 {
		t.Errorf("%v of %d", got[0].Kind, got[0].Cookie)
	}
	for _, on := range []bool{true, true, false, false, true} {
		tr.SetIsSM(on)
		if d.IsSM() != on {
			t.Errorf("issm %v, want %v", d.IsSM(), on)
		}
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if d.IsSM() {
		t.Error("issm is held after Close")
	}
	if err := tr.Queue(tr.Now(), id, madrpc.Message{Env: env, Data: b[:], Timeout: ib.Second}); err == nil {
		t.Error("a closed device sends")
	}
}
