package umadtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
)

// Facts are what sysfs says about the port.
type Facts struct {
	CA      string
	Port    int
	GUID    ib.GUID
	LID     ib.LID
	State   string // 4: ACTIVE
	Phys    string // 5: LinkUp
	Link    string // InfiniBand
	Desc    string
	CapMask uint32
}

// Kernel is the double.
type Kernel struct {
	// Wire is given what the port sends. It is called with no lock held and may call Inject.
	Wire func(mad.Envelope, *[mad.Size]byte)
	// Old makes it a kernel that knows neither P_Key indices nor the second way to register.
	Old bool

	facts Facts

	mu     sync.Mutex
	cond   *sync.Cond
	port   *madrpc.Port
	now    ib.Time
	owners map[madrpc.AgentID]*agent
	issm   bool
}

type agent struct {
	file *File
	id   uint32 // in its file
	rpc  madrpc.AgentID
	rmpp bool
}

// New makes a double of one port.
func New(f Facts) *Kernel {
	k := &Kernel{facts: f, port: madrpc.New(madrpc.Config{}), owners: make(map[madrpc.AgentID]*agent)}
	k.cond = sync.NewCond(&k.mu)
	return k
}

// IsSM reports whether somebody holds the issm device open.
func (k *Kernel) IsSM() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.issm
}

// Inject takes a datagram from the wire and reports whether an agent wanted it.
func (k *Kernel) Inject(env mad.Envelope, dgram *[mad.Size]byte) bool {
	k.mu.Lock()
	ok := k.port.Handle(k.now, env, dgram)
	k.pump()
	return ok
}

// Advance lets time pass.
func (k *Kernel) Advance(by ib.Time) {
	k.mu.Lock()
	k.now += by
	k.port.HandleTimer(k.now)
	k.pump()
}

// pump moves what the port has to say, and gives up the lock.
func (k *Kernel) pump() {
	for {
		d, ok := k.port.PollRecv()
		if !ok {
			break
		}
		a := k.owners[d.Agent]
		if a == nil || d.Kind == madrpc.Canceled || d.Kind == madrpc.Aborted {
			continue
		}
		p := packet{id: a.id, env: d.Env, data: append([]byte(nil), d.Data...)}
		if d.Kind == madrpc.TimedOut {
			p.status, p.data = uint32(unix.ETIMEDOUT), p.data[:24]
		}
		a.file.queue = append(a.file.queue, p)
	}
	type out struct {
		env mad.Envelope
		b   [mad.Size]byte
	}
	var outs []out
	for {
		env, b, ok := k.port.PollSend()
		if !ok {
			break
		}
		outs = append(outs, out{env, *b})
	}
	k.cond.Broadcast()
	k.mu.Unlock()
	if k.Wire != nil {
		for i := range outs {
			k.Wire(outs[i].env, &outs[i].b)
		}
	}
}

type packet struct {
	id, status uint32
	env        mad.Envelope
	data       []byte
}

// File is an open device.
type File struct {
	k        *Kernel
	sm       bool
	closed   bool
	pkey     bool // headers have a P_Key index
	used     bool
	agents   [32]*agent
	queue    []packet
	deadline time.Time
}

// Open opens …/umad0 or …/issm0.
func (k *Kernel) Open(path string) (*File, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch filepath.Base(path) {
	case "umad0":
		return &File{k: k}, nil
	case "issm0":
		if k.issm {
			return nil, &fs.PathError{Op: "open", Path: path, Err: unix.EAGAIN}
		}
		k.issm = true
		return &File{k: k, sm: true}, nil
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: unix.ENOENT}
}

// Close ends the file's agents.
func (f *File) Close() error {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if f.closed {
		return os.ErrClosed
	}
	f.closed = true
	if f.sm {
		f.k.issm = false
	}
	for _, a := range f.agents {
		if a != nil {
			delete(f.k.owners, a.rpc)
			_ = f.k.port.Unregister(a.rpc)
		}
	}
	f.k.cond.Broadcast()
	return nil
}

// SetReadDeadline ends reads that wait when its time has come already; there is no clock here for other times.
func (f *File) SetReadDeadline(t time.Time) error {
	f.k.mu.Lock()
	f.deadline = t
	f.k.cond.Broadcast()
	f.k.mu.Unlock()
	return nil
}

func (f *File) hdr() int {
	if f.pkey {
		return 64
	}
	return 56
}

// Read is the kernel's ib_umad_read.
func (f *File) Read(b []byte) (int, error) {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if len(b) < f.hdr() {
		return 0, unix.EINVAL
	}
	for len(f.queue) == 0 {
		if f.closed {
			return 0, os.ErrClosed
		}
		if !f.deadline.IsZero() && f.deadline.Before(time.Now()) {
			return 0, os.ErrDeadlineExceeded
		}
		f.k.cond.Wait()
	}
	p := f.queue[0]
	if len(b) < f.hdr()+min(len(p.data), 256) {
		return 0, unix.EINVAL
	}
	f.putHeader(b, &p)
	n := f.hdr() + copy(b[f.hdr():], p.data)
	if n < f.hdr()+len(p.data) {
		return 0, unix.ENOSPC // what is there already is the first segment
	}
	f.queue = f.queue[1:]
	return n, nil
}

func (f *File) putHeader(b []byte, p *packet) {
	ne, be := binary.NativeEndian, binary.BigEndian
	clear(b[:f.hdr()])
	ne.PutUint32(b[0:], p.id)
	ne.PutUint32(b[4:], p.status)
	if p.status == 0 {
		ne.PutUint32(b[16:], uint32(f.hdr()+len(p.data)))
	}
	be.PutUint32(b[20:], uint32(p.env.QPN))
	be.PutUint16(b[28:], uint16(p.env.LID))
	b[30], b[31] = byte(p.env.SL), p.env.PathBits
	if p.env.HasGRH {
		b[32], b[33], b[34], b[35] = 1, p.env.GIDIndex, p.env.HopLimit, p.env.TClass
		copy(b[36:52], p.env.GID[:])
		be.PutUint32(b[52:], p.env.FlowLabel)
	}
	if f.pkey {
		ne.PutUint16(b[56:], p.env.PKeyIndex)
	}
}

// Write is the kernel's ib_umad_write.
func (f *File) Write(b []byte) (int, error) {
	f.k.mu.Lock()
	h := f.hdr()
	ne, be := binary.NativeEndian, binary.BigEndian
	fail := func(err error) (int, error) { f.k.mu.Unlock(); return 0, err }
	if f.closed {
		return fail(os.ErrClosed)
	}
	if len(b) < h+36 {
		return fail(unix.EINVAL)
	}
	id := ne.Uint32(b[0:])
	if id >= 32 || f.agents[id] == nil {
		return fail(unix.EINVAL)
	}
	a := f.agents[id]
	data := b[h:]
	if len(data) > 256 && (!a.rmpp || data[26]&1 == 0) {
		return fail(unix.EINVAL)
	}
	env := mad.Envelope{
		QPN: ib.QPN(be.Uint32(b[20:])), QKey: ib.QKey(be.Uint32(b[24:])), LID: ib.LID(be.Uint16(b[28:])),
		SL: ib.SL(b[30]), PathBits: b[31],
	}
	if b[32] != 0 {
		env.HasGRH, env.GIDIndex, env.HopLimit, env.TClass, env.FlowLabel = true, b[33], b[34], b[35], be.Uint32(b[52:])
		copy(env.GID[:], b[36:52])
	}
	if f.pkey {
		env.PKeyIndex = ne.Uint16(b[56:])
	}
	err := f.k.port.Send(f.k.now, a.rpc, madrpc.Message{
		Env: env, Data: data, Timeout: ib.Time(ne.Uint32(b[8:])) * ib.Millisecond, Retries: int(ne.Uint32(b[12:])),
	})
	if err != nil {
		return fail(unix.EINVAL)
	}
	f.k.pump()
	return len(b), nil
}

// Ioctl is the kernel's ib_umad_ioctl. A command's size is in its bits 16 to 29.
func (f *File) Ioctl(cmd uint32, arg []byte) error {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if size := int(cmd >> 16 & 0x3FFF); len(arg) != size {
		return unix.EFAULT
	}
	switch {
	case cmd == 0xC01C1B01:
		return f.register(arg, arg[20], arg[21], arg[22], arg[4:20], [3]byte(arg[23:26]), arg[26], false)
	case cmd == 0x40041B02:
		return f.unregister(binary.NativeEndian.Uint32(arg))
	case cmd == 0x1B03 && !f.k.Old:
		if f.used {
			return unix.EINVAL
		}
		f.pkey = true
		return nil
	case cmd == 0xC0281B04 && !f.k.Old:
		ne := binary.NativeEndian
		if ne.Uint32(arg[12:])&^1 != 0 {
			ne.PutUint32(arg[12:], 1)
			return unix.EINVAL
		}
		oui := ne.Uint32(arg[32:])
		if oui>>24 != 0 {
			return unix.EINVAL
		}
		return f.register(arg, byte(ne.Uint32(arg[4:])), arg[8], arg[9], arg[16:32],
			[3]byte{byte(oui >> 16), byte(oui >> 8), byte(oui)}, arg[36], true)
	}
	return unix.ENOTTY
}

func (f *File) register(arg []byte, qpn, class, version byte, methods []byte, oui [3]byte, rmpp byte,
	second bool) error {
	ne := binary.NativeEndian
	if qpn > 1 || rmpp > 1 || class != 0 && (qpn == 0) != (class == 0x01 || class == 0x81) {
		return unix.EINVAL
	}
	slot := -1
	for i, a := range f.agents {
		if a == nil {
			slot = i
			break
		}
	}
	if slot < 0 {
		return unix.ENOMEM
	}
	r := madrpc.Registration{Class: mad.Class(class), ClassVersion: version, OUI: oui, RMPP: rmpp == 1}
	if class != 0 {
		r.Methods = madrpc.Methods{ne.Uint64(methods), ne.Uint64(methods[8:])}
	}
	rpc, err := f.k.port.Register(r)
	if err != nil {
		return unix.EINVAL
	}
	a := &agent{file: f, id: uint32(slot), rpc: rpc, rmpp: r.RMPP}
	f.agents[slot], f.k.owners[rpc] = a, a
	ne.PutUint32(arg, uint32(slot))
	if second && !f.used {
		f.pkey = true
	}
	f.used = true
	return nil
}

func (f *File) unregister(id uint32) error {
	if id >= 32 || f.agents[id] == nil {
		return unix.EINVAL
	}
	a := f.agents[id]
	f.agents[id] = nil
	delete(f.k.owners, a.rpc)
	return f.k.port.Unregister(a.rpc)
}

// WriteSysfs writes the tree below root/sys that says what the port is.
func (k *Kernel) WriteSysfs(root string) error {
	f := k.facts
	hex := func(g ib.GUID) string {
		s := fmt.Sprintf("%016x", uint64(g))
		return strings.Join([]string{s[:4], s[4:8], s[8:12], s[12:]}, ":")
	}
	ca := "sys/class/infiniband/" + f.CA + "/"
	port := fmt.Sprintf("%sports/%d/", ca, f.Port)
	var errs []error
	for _, x := range [][2]string{
		{"sys/class/infiniband_mad/abi_version", "5"},
		{"sys/class/infiniband_mad/umad0/ibdev", f.CA},
		{"sys/class/infiniband_mad/umad0/port", fmt.Sprint(f.Port)},
		{"sys/class/infiniband_mad/issm0/ibdev", f.CA},
		{ca + "node_type", "1: CA"},
		{ca + "node_guid", hex(f.GUID - 1)},
		{ca + "sys_image_guid", hex(f.GUID - 1)},
		{ca + "node_desc", f.Desc},
		{port + "state", f.State},
		{port + "phys_state", f.Phys},
		{port + "lid", fmt.Sprintf("0x%x", uint16(f.LID))},
		{port + "lid_mask_count", "0"},
		{port + "sm_lid", "0x1"},
		{port + "sm_sl", "0"},
		{port + "cap_mask", fmt.Sprintf("0x%08x", f.CapMask)},
		{port + "rate", "100 Gb/sec (4X EDR)"},
		{port + "link_layer", f.Link},
		{port + "gids/0", "fe80:0000:0000:0000:" + hex(f.GUID)},
		{port + "pkeys/0", "0xffff"},
		{port + "pkeys/1", "0x8001"},
	} {
		path := filepath.Join(root, x[0])
		errs = append(errs, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(x[1]+"\n"), 0o644))
	}
	return errors.Join(errs...)
}
