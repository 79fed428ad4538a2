package roce

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"softib/driver/endpoint"
	"softib/internal/release"
	"softib/node/agent"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/verbs"
	"softib/verbs/attach/proto"
)

// Device is an adapter whose port is an Ethernet interface of this machine, for the programs of this process.
type Device struct {
	*endpoint.Member
	link  *link
	slots *endpoint.Slots
	guid  ib.GUID
}

var _ verbs.Device = (*Device)(nil)

// Config says what a device is.
type Config struct {
	// Name is what programs see.
	Name string
	// Addrs are the port's addresses, in the order of its GID table.
	Addrs []netip.Addr
	// MTU is the interface's; what fits into it is the port's.
	MTU int
}

// ErrInterface is matched when an interface is not one that RoCEv2 can use.
var ErrInterface = errors.New("no interface for RoCEv2")

// FromInterface is the configuration for an interface, with all its addresses: IPv4's first, since programs that know
// of no table take an early one.
func FromInterface(name string) (Config, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return Config{}, fmt.Errorf("roce: %s: %w: %w; next: ip address shows the interfaces", name, ErrInterface, err)
	}
	list, err := i.Addrs()
	if err != nil {
		return Config{}, fmt.Errorf("roce: %s: %w: %w", name, ErrInterface, err)
	}
	c := Config{Name: name, MTU: i.MTU}
	for _, v4 := range []bool{true, false} {
		for _, a := range list {
			p, err := netip.ParsePrefix(a.String())
			if err != nil || p.Addr().Is4() != v4 {
				continue
			}
			addr := p.Addr()
			if addr.IsLinkLocalUnicast() && addr.Is6() {
				addr = addr.WithZone(name)
			}
			c.Addrs = append(c.Addrs, addr)
		}
	}
	if len(c.Addrs) == 0 {
		return c, fmt.Errorf("roce: %s: %w: it has no address; next: ip address add ADDRESS/BITS dev %[1]s", name,
			ErrInterface)
	}
	return c, nil
}

// window is how many packets a queue pair has under way. A socket's buffer, as large as Linux makes it unless told
// otherwise, holds some 180 of the length that fits into Ethernet's usual frames, if they come one by one.
const window = 128

// Open makes the device. Nobody else on the machine may use RoCEv2 at the same addresses.
func Open(c Config) (*Device, error) {
	mtu, err := portMTU(c.MTU)
	if err != nil {
		return nil, fmt.Errorf("roce: %s: %w", c.Name, err)
	}
	var socks []*socket
	port := hca.Port{State: ib.PortActive, LID: hca.LIDPort, MTU: mtu, PKeys: []ib.PKey{ib.PKeyDefault}}
	d := &Device{}
	for _, a := range c.Addrs {
		s, err := openSocket(a)
		if err != nil {
			closeAll(socks)
			return nil, err
		}
		socks = append(socks, s)
		port.GIDs = append(port.GIDs, s.gid)
	}
	if err := d.start(c, port, socks); err != nil {
		closeAll(socks)
		return nil, err
	}
	return d, nil
}

func closeAll(socks []*socket) {
	for _, s := range socks {
		_ = s.file.Close()
	}
}

func (d *Device) start(c Config, port hca.Port, socks []*socket) error {
	share, err := endpoint.NewShare()
	if err != nil {
		return err
	}
	if d.link, err = newLink(socks, share.Page); err != nil {
		return err
	}
	d.slots = share.Slots
	d.guid = newGUID()
	d.Member, err = endpoint.NewMember(endpoint.Config{Name: c.Name, Router: d, Block: 1, Wire: d.link,
		Engine: hca.Config{NodeGUID: d.guid, Ports: 1, PortGUID: []ib.GUID{d.guid},
			RoCE: hca.RoCE{On: true, ByGID: true, Window: window}}}, share)
	if err != nil {
		return err
	}
	out, err := endpoint.NewLocalOut(d.link.ends.out, d.link.page, 0)
	if err != nil {
		return err
	}
	in, err := endpoint.NewLocalIn(d.link.ends.in, d.link.page, 0, 1)
	if err != nil {
		return err
	}
	port.GUID = d.guid
	d.SetPort(1, port)
	d.ForgetEvents() // the port's first state is no news
	d.Outgoing(toNetwork, out, func() {})
	d.Incoming(fromNetwork, in, func() {})
	d.link.start()
	return nil
}

// newGUID is one that no vendor has given out: its second bit says so.
func newGUID() ib.GUID {
	var b [8]byte
	_, _ = rand.Read(b[:])
	b[0] = b[0]&^1 | 2
	return ib.GUID(binary.BigEndian.Uint64(b[:]))
}

// The rings' numbers, and the slot of the one way that there is.
const (
	toNetwork   = 1
	fromNetwork = 2
	onlySlot    = 1
)

// Route is the way into the network, which is one for all.
func (d *Device) Route(k endpoint.Key) (*endpoint.Route, error) {
	return d.Way(k, onlySlot, d.slots.Gen(onlySlot), []uint32{toNetwork})
}

// Violated is for packets with a wrong key, which the engine has counted; there is no manager to tell.
func (d *Device) Violated(agent.Notice) {}

// Adapter is what the device is. It is for the drop-in library, as NumPorts and PortInfo are.
func (d *Device) Adapter() proto.Adapter {
	return proto.Adapter{NodeGUID: d.guid, SystemGUID: d.guid, PortGUIDs: []ib.GUID{d.guid}, Firmware: release.Version,
		Desc: d.Name(), Limits: hca.DefaultLimits()}
}

// NumPorts counts the ports.
func (d *Device) NumPorts() int { return 1 }

// PortInfo is what a manager would say of a port, if Ethernet had one.
func (d *Device) PortInfo(n ib.PortNum) (proto.Port, bool) {
	h := d.Enter()
	defer d.LeaveQuiet()
	p := h.Port(n)
	if p == nil {
		return proto.Port{}, false
	}
	info := mad.PortInfo{PortPhysicalState: ib.PhysLinkUp, MTUCap: p.MTU, LinkWidthActive: ib.Width4x,
		LinkSpeedActive: 1, VLCap: 1, GUIDCap: uint8(min(len(p.GIDs), 255))}
	return proto.Port{Num: n, HCA: *p, Info: info}, true
}

// Stats are what the sockets have counted.
func (d *Device) Stats() *Stats { return &d.link.Stats }

// Close ends the device. Calls that still wait end with an error that matches verbs.ErrClosed.
func (d *Device) Close() error {
	err := d.Member.Close()
	d.link.close()
	return err
}

// overhead is what the headers of IPv6, UDP and the transport, with the longest extended ones, take of a frame, and the
// ICRC.
const overhead = 40 + 8 + 12 + 28 + 4

// portMTU is the largest MTU of InfiniBand that fits into one of Ethernet.
func portMTU(ethernet int) (ib.MTU, error) {
	for m := ib.MTU4096; m >= ib.MTU256; m-- {
		if m.Bytes()+overhead <= ethernet {
			return m, nil
		}
	}
	return 0, fmt.Errorf("%w: its MTU of %d is too small: want %d; next: ip link set mtu 1500", ErrInterface, ethernet,
		ib.MTU256.Bytes()+overhead)
}
