package umad

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"softib/proto/ib"
)

// ErrNoPort is a machine without the port that was asked for.
var ErrNoPort = errors.New("no such port")

// System is where a machine's ports are found.
type System struct {
	// Root stands before /sys and /dev.
	Root string
	// OpenDevice opens a device by its path; nil opens the machine's own.
	OpenDevice func(path string) (Device, error)
}

func (s System) open(path string) (Device, error) {
	if s.OpenDevice != nil {
		return s.OpenDevice(path)
	}
	return openDevice(path)
}

func (s System) madDir() string            { return filepath.Join(s.Root, "/sys/class/infiniband_mad") }
func (s System) caDir(ca string) string    { return filepath.Join(s.Root, "/sys/class/infiniband", ca) }
func (s System) devPath(dev string) string { return filepath.Join(s.Root, "/dev/infiniband", dev) }

// LocalPort is what the machine says about one of its ports.
type LocalPort struct {
	CA     string // mlx5_0
	Port   int
	Device string // umad0

	NodeType   ib.NodeType
	NodeGUID   ib.GUID
	SystemGUID ib.GUID
	PortGUID   ib.GUID
	NodeDesc   string

	State     ib.PortState
	PhysState ib.PhysState
	LID       ib.LID
	LMC       uint8
	SMLID     ib.LID
	SMSL      ib.SL
	CapMask   uint32
	LinkLayer string // InfiniBand or Ethernet; only the first has subnet management
	Rate      string // as the kernel words it: 100 Gb/sec (4X EDR)
	GIDs      []ib.GID
	PKeys     []ib.PKey
}

// Ports are the machine's ports that have a management device, in the order of the devices.
func (s System) Ports() ([]LocalPort, error) {
	if v, err := readUint(filepath.Join(s.madDir(), "abi_version"), 32); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("umad: %s: %w: the kernel has no umad devices; load its module: modprobe ib_umad",
				s.madDir(), ErrNoPort)
		}
		return nil, err
	} else if v != abiVersion {
		return nil, fmt.Errorf("umad: the kernel's ABI version is %d, want %d; use a softib for this kernel", v,
			abiVersion)
	}
	entries, err := os.ReadDir(s.madDir())
	if err != nil {
		return nil, fmt.Errorf("umad: %w", err)
	}
	type found struct {
		n   int
		dev string
	}
	var devs []found
	for _, e := range entries {
		if num, ok := strings.CutPrefix(e.Name(), "umad"); ok {
			if n, err := strconv.Atoi(num); err == nil {
				devs = append(devs, found{n, e.Name()})
			}
		}
	}
	slices.SortFunc(devs, func(a, b found) int { return a.n - b.n })
	var ports []LocalPort
	for _, d := range devs {
		ca, err := readLine(filepath.Join(s.madDir(), d.dev, "ibdev"))
		if err != nil {
			return nil, err
		}
		port, err := readUint(filepath.Join(s.madDir(), d.dev, "port"), 8)
		if err != nil {
			return nil, err
		}
		p, err := s.port(ca, int(port), d.dev)
		if err != nil {
			return nil, err
		}
		ports = append(ports, p)
	}
	return ports, nil
}

// Find is the port of an adapter. Without an adapter's name, or with port 0, it is the first that fits: an
// active one before one that is up, and that before one that is not.
func (s System) Find(ca string, port int) (LocalPort, error) {
	ports, err := s.Ports()
	if err != nil {
		return LocalPort{}, err
	}
	best := -1
	var names []string
	for i, p := range ports {
		names = append(names, fmt.Sprintf("%s/%d", p.CA, p.Port))
		if ca != "" && p.CA != ca || port > 0 && p.Port != port || p.LinkLayer != linkInfiniBand {
			continue
		}
		if best < 0 || p.rank() > ports[best].rank() {
			best = i
		}
	}
	if best >= 0 {
		return ports[best], nil
	}
	want := "any port"
	if ca != "" {
		want = ca
	}
	if port > 0 {
		want += fmt.Sprintf(" port %d", port)
	}
	if len(names) == 0 {
		return LocalPort{}, fmt.Errorf("umad: %s: %w: this machine has none", want, ErrNoPort)
	}
	return LocalPort{}, fmt.Errorf("umad: %s: %w with InfiniBand; this machine has %s", want, ErrNoPort,
		strings.Join(names, ", "))
}

const linkInfiniBand = "InfiniBand"

func (p *LocalPort) rank() int {
	switch {
	case p.State == ib.PortActive:
		return 2
	case p.PhysState == ib.PhysLinkUp:
		return 1
	}
	return 0
}

// port reads what sysfs says about a port.
func (s System) port(ca string, port int, dev string) (LocalPort, error) {
	r := reader{dir: s.caDir(ca)}
	p := LocalPort{CA: ca, Port: port, Device: dev}
	p.NodeType = ib.NodeType(r.enum("node_type"))
	p.NodeGUID, p.SystemGUID = r.guid("node_guid"), r.guid("sys_image_guid")
	p.NodeDesc = r.text("node_desc")
	r.dir = filepath.Join(r.dir, "ports", strconv.Itoa(port))
	p.State, p.PhysState = ib.PortState(r.enum("state")), ib.PhysState(r.enum("phys_state"))
	p.LID, p.LMC = ib.LID(r.number("lid", 16)), uint8(r.number("lid_mask_count", 8))
	p.SMLID, p.SMSL = ib.LID(r.number("sm_lid", 16)), ib.SL(r.number("sm_sl", 8))
	p.CapMask = uint32(r.number("cap_mask", 32))
	p.Rate = r.text("rate")
	p.LinkLayer = linkInfiniBand // kernels before 2.6.38 have no other
	if _, err := os.Stat(filepath.Join(r.dir, "link_layer")); err == nil {
		p.LinkLayer = r.text("link_layer")
	}
	for i := range r.count("gids") {
		p.GIDs = append(p.GIDs, r.gid("gids/"+strconv.Itoa(i)))
	}
	for i := range r.count("pkeys") {
		p.PKeys = append(p.PKeys, ib.PKey(r.number("pkeys/"+strconv.Itoa(i), 16)))
	}
	if len(p.GIDs) > 0 {
		p.PortGUID = p.GIDs[0].GUID()
	}
	return p, r.err
}

// reader reads attributes below a folder and keeps the first error.
type reader struct {
	dir string
	err error
}

func (r *reader) text(name string) string {
	if r.err != nil {
		return ""
	}
	var s string
	s, r.err = readLine(filepath.Join(r.dir, name))
	return s
}

func (r *reader) number(name string, bits int) uint64 {
	if r.err != nil {
		return 0
	}
	var v uint64
	v, r.err = readUint(filepath.Join(r.dir, name), bits)
	return v
}

// enum reads a number with its name behind it: 4: ACTIVE.
func (r *reader) enum(name string) uint64 {
	s := r.text(name)
	if r.err != nil {
		return 0
	}
	num, _, _ := strings.Cut(s, ":")
	v, err := strconv.ParseUint(strings.TrimSpace(num), 10, 8)
	if err != nil {
		r.err = fmt.Errorf("umad: %s: %q, want a number and a name like 4: ACTIVE", filepath.Join(r.dir, name), s)
	}
	return v
}

func (r *reader) guid(name string) ib.GUID {
	s := r.text(name)
	if r.err != nil {
		return 0
	}
	g, err := ib.ParseGUID(s)
	if err != nil {
		r.err = fmt.Errorf("umad: %s: %w", filepath.Join(r.dir, name), err)
	}
	return g
}

func (r *reader) gid(name string) ib.GID {
	s := r.text(name)
	if r.err != nil {
		return ib.GID{}
	}
	g, err := ib.ParseGID(s)
	if err != nil {
		r.err = fmt.Errorf("umad: %s: %w", filepath.Join(r.dir, name), err)
	}
	return g
}

// count is how many entries a table has; one that is missing has none.
func (r *reader) count(name string) int {
	if r.err != nil {
		return 0
	}
	entries, err := os.ReadDir(filepath.Join(r.dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.err = fmt.Errorf("umad: %w", err)
	}
	return len(entries)
}

func readLine(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("umad: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

func readUint(path string, bits int) (uint64, error) {
	s, err := readLine(path)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseUint(s, 0, bits)
	if err != nil {
		return 0, fmt.Errorf("umad: %s: %q, want a number of %d bits", path, s, bits)
	}
	return v, nil
}
