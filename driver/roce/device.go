package roce

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"softib/driver/endpoint"
	"softib/internal/release"
	"softib/node/agent"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/verbs"
	"softib/verbs/attach/proto"
)

// Device is an adapter whose port is an Ethernet interface of this machine, for the programs of this process.
type Device struct {
	*endpoint.Member
	link    *link
	guid    ib.GUID
	release func() // tells who has lent the sockets
	once    sync.Once
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
	// Index is the interface's, and Hardware its address.
	Index    int
	Hardware net.HardwareAddr
	// Mbps is how fast the interface is; 0 if it does not say.
	Mbps int64
	// Down says that it does not run: it was set down, or has no carrier.
	Down bool
}

// speed is in bits a second. It is where a queue pair begins that is told to slow down.
func (c *Config) speed() int64 {
	const usual = 10_000
	if c.Mbps <= 0 {
		return usual * 1_000_000
	}
	return c.Mbps * 1_000_000
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
	c := Config{Name: name, MTU: i.MTU, Index: i.Index, Hardware: i.HardwareAddr, Down: !runs(i.Index)}
	if b, err := os.ReadFile(filepath.Join("/sys/class/net", name, "speed")); err == nil {
		c.Mbps, _ = strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	}
	for _, v4 := range []bool{true, false} {
		for _, a := range list {
			p, err := netip.ParsePrefix(a.String())
			if err != nil || p.Addr().Is4() != v4 || !v4 && withoutIPv6() {
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
	c.Addrs = c.Addrs[:min(len(c.Addrs), tableLength)]
	return c, nil
}

// runs reports whether an interface is up and has a carrier, as Linux's rxe looks at it. What the interface is said to
// be in operation (RUNNING) comes up to a second later.
func runs(index int) bool {
	const wants = unix.IFF_UP | unix.IFF_LOWER_UP
	rib, err := syscall.NetlinkRIB(unix.RTM_GETLINK, unix.AF_UNSPEC)
	if err != nil {
		return true
	}
	list, err := syscall.ParseNetlinkMessage(rib)
	for i := 0; err == nil && i < len(list); i++ {
		if m := &list[i]; m.Header.Type == unix.RTM_NEWLINK && len(m.Data) >= unix.SizeofIfInfomsg {
			if info := (*unix.IfInfomsg)(unsafe.Pointer(&m.Data[0])); int(info.Index) == index {
				return info.Flags&wants == wants
			}
		}
	}
	return true
}

// window is how many packets a queue pair has under way. A socket's buffer, as large as Linux makes it unless told
// otherwise, holds some 180 of the length that fits into Ethernet's usual frames, if they come one by one, and 50 of
// the longest.
func window(m ib.MTU) int { return min(windowMax, windowBytes/m.Bytes()) }

const (
	windowMax   = 128
	windowBytes = 192 << 10
)

// newDevice makes a device of what it is told, and of sockets, which it takes over. What it counts is in the account.
func newDevice(t terms, fds []int, a account) (*Device, error) {
	c := &t.State.Config
	mtu, err := portMTU(c.MTU)
	var share endpoint.Share
	if err == nil {
		share, err = endpoint.NewShare()
		share.Ledger = a.ledger
	}
	d := &Device{guid: t.GUID, release: func() {}}
	if err == nil {
		d.link, err = newLink(share.Page, a.stats, t.Block, window(mtu)/4)
	}
	if err == nil {
		err = d.link.apply(&t.State, fds)
	} else {
		closeFDs(fds)
	}
	if err != nil {
		return nil, fmt.Errorf("roce: %s: %w", c.Name, err)
	}
	d.Member, err = endpoint.NewMember(endpoint.Config{Name: c.Name, Router: d, Block: t.Block, Wire: d.link,
		Engine: hca.Config{NodeGUID: d.guid, Ports: 1, PortGUID: []ib.GUID{d.guid},
			RoCE: hca.RoCE{On: true, ByGID: true, Window: window(mtu), DCQCN: hca.DCQCN{On: true}}}}, share)
	if err != nil {
		d.link.close()
		return nil, err
	}
	d.link.engine = d.Enter()
	d.LeaveQuiet()
	d.SetPort(1, d.port(&t.State))
	d.ForgetEvents() // the port's first state is no news
	d.link.watcher.Start()
	d.Plug()
	return d, nil
}

// port is the port that the engine has in a state.
func (d *Device) port(st *state) hca.Port {
	info := st.Config.portInfo()
	p := hca.Port{State: info.PortState, LID: hca.LIDPort, MTU: info.NeighborMTU, PKeys: []ib.PKey{ib.PKeyDefault},
		GUID: d.guid, CableRate: st.Config.speed()}
	for i := range st.Table {
		var g ib.GID
		if !st.Table[i].Lost {
			g = st.Table[i].Addr.As16()
		}
		p.GIDs = append(p.GIDs, g)
	}
	return p
}

// hear makes the device what it is told, and takes over the sockets that come with it. Programs get the events that
// kernels' drivers raise: the engine finds out what has changed.
func (d *Device) hear(st *state, fds []int) {
	d.Later(func() {
		d.Enter()
		err := d.link.apply(st, fds)
		d.LeaveQuiet()
		if err == nil {
			d.SetPort(1, d.port(st))
		}
	})
}

// Route is never asked for: all ways lead into the network.
func (d *Device) Route(endpoint.Key) (*endpoint.Route, error) { return nil, verbs.ErrClosed }

// Violated is for packets with a wrong key, which the engine has counted; there is no manager to tell.
func (d *Device) Violated(agent.Notice) {}

// Adapter is what the device is. It is for the drop-in library, as NumPorts and PortInfo are.
func (d *Device) Adapter() proto.Adapter {
	return proto.Adapter{NodeGUID: d.guid, SystemGUID: d.guid, PortGUIDs: []ib.GUID{d.guid}, Firmware: release.Version,
		VendorID: topo.VendorID, DeviceID: topo.DeviceHCA, Desc: d.Name(), Limits: hca.DefaultLimits()}
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
	return proto.Port{Num: n, HCA: *p, Info: portInfo(p.State, p.MTU)}, true
}

// portInfo is what a manager would say of a port. Its table has room for addresses that come later.
func portInfo(s ib.PortState, m ib.MTU) mad.PortInfo {
	phys := ib.PhysLinkUp
	if s != ib.PortActive {
		phys = ib.PhysDisabled // as Linux's rxe has it
	}
	return mad.PortInfo{PortState: s, PortPhysicalState: phys, MTUCap: m, NeighborMTU: m,
		LinkWidthActive: ib.Width4x, LinkSpeedActive: 1, VLCap: 1, GUIDCap: tableLength}
}

// portInfo is the port of an interface. One whose MTU has become too small for the transport is as good as down.
func (c *Config) portInfo() mad.PortInfo {
	m, err := portMTU(c.MTU)
	if err != nil {
		return portInfo(ib.PortDown, ib.MTU256)
	}
	if c.Down {
		return portInfo(ib.PortDown, m)
	}
	return portInfo(ib.PortActive, m)
}

// down is the end of who holds the port: nobody says any more which of the machine's programs a datagram is for. The
// sockets are let go of, so that somebody else can hold it.
func (d *Device) down() {
	d.hear(&state{Config: Config{MTU: ib.MTU256.Bytes() + overhead, Down: true}}, nil)
}

// Stats are what the sockets have counted.
func (d *Device) Stats() *Stats { return d.link.Stats }

// Close ends the device. Calls that still wait end with an error that matches verbs.ErrClosed.
func (d *Device) Close() error {
	err := d.Member.Close()
	d.once.Do(func() {
		d.link.end()
		d.release()
		d.link.done.Wait()
		d.Settle() // what was heard before
		d.link.close()
	})
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
