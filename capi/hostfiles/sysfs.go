package hostfiles

import (
	"fmt"
	"strconv"
	"strings"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// Config is what all adapters of a fabric say of themselves.
type Config struct {
	Device             string // name of the adapter: softib0
	Model, Board       string
	Firmware, Hardware string
	// Interface is the one of Ethernet that the adapter's port is at; empty in a fabric.
	Interface string
	// Place is the adapter's among those of the machine, from 0.
	Place int
	// Domain is that of the adapters' PCI addresses.
	Domain uint16
}

// The adapter's folders. Programs look for an adapter's place in the machine by the name of its folder (NCCL, UCX,
// hwloc), which they take for a PCI address, and NCCL goes up from there to the processors. So it has such an
// address, in a domain that the machine has not. NCCL sets device and function to 0, to join functions of one adapter;
// hence a bus for each.
const (
	classDir = "sys/class"
	toSys    = "../../../../../" // from parentDir/class/device
	busClass = classDir + "/pci_bus"
)

func (c *Config) bus() string       { return fmt.Sprintf("%04x:%02x", c.Domain, c.Place) }
func (c *Config) slot() string      { return c.bus() + ":00.0" }
func (c *Config) rootDir() string   { return "sys/devices/pci" + c.bus() }
func (c *Config) parentDir() string { return c.rootDir() + "/" + c.slot() }

// Numbers of Linux's devices (Documentation/admin-guide/devices.txt) and of its interfaces.
const (
	devMajor     = 231
	devISSM      = 64       // minor of the first
	devUverbs    = 192      // minor of the first
	abiUverbs    = 6        // IB_USER_VERBS_ABI_VERSION
	abiUmad      = 5        // IB_USER_MAD_ABI_VERSION
	abiDriver    = 1        // of the adapter's own driver
	pciClass     = 0x020700 // an InfiniBand controller
	pciSpeed     = "32.0 GT/s PCIe\n"
	pciWidth     = "16\n"
	lifespanMs   = 1000
	lifespanFile = "lifespan"
)

// port is a port as sysfs shows it.
type port struct {
	num   ib.PortNum
	info  mad.PortInfo
	gids  []ib.GID
	pkeys []ib.PKey
	iface string // of Ethernet
}

// device calls put for every file that does not change, and link for every symbolic link.
func device(c Config, n *topo.Node, m *machine, put func(path, text string), link func(path, to string)) {
	parentDir := c.parentDir()
	for _, f := range [...][2]string{
		{"uevent", fmt.Sprintf("DRIVER=softib\nPCI_CLASS=%X\nPCI_SLOT_NAME=%s\n", pciClass, c.slot())},
		{"class", fmt.Sprintf("0x%06x\n", pciClass)},
		// What a link of 400 Gb/s needs. No vendor and no device: the PCI-SIG gives these numbers, and gave none.
		{"max_link_speed", pciSpeed}, {"current_link_speed", pciSpeed},
		{"max_link_width", pciWidth}, {"current_link_width", pciWidth},
		{"numa_node", m.numa + "\n"}, {"local_cpulist", m.cpus + "\n"}, {"local_cpus", cpuMask(m.cpus) + "\n"},
	} {
		put(parentDir+"/"+f[0], f[1])
	}
	link(parentDir+"/subsystem", "../../../bus/pci")
	put(c.rootDir()+"/pci_bus/"+c.bus()+"/cpulistaffinity", m.cpus+"\n")
	link(busClass+"/"+c.bus(), "../../"+strings.TrimPrefix(c.rootDir(), "sys/")+"/pci_bus/"+c.bus())
	if c.Place == 0 {
		for _, b := range m.buses {
			link(busClass+"/"+b.name, b.to)
		}
	}

	if c.Interface != "" { // programs look there for the interface of an adapter
		link(parentDir+"/net/"+c.Interface, "../../../../../class/net/"+c.Interface)
	}

	// add makes a device of a class, and returns its folder.
	add := func(class, name string) string {
		dir := parentDir + "/" + class + "/" + name
		link(dir+"/device", "../../../"+c.slot())
		link(dir+"/subsystem", toSys+"class/"+class)
		link(classDir+"/"+class+"/"+name, "../../"+strings.TrimPrefix(dir, "sys/"))
		return dir
	}
	character := func(dir, name string, minor int) {
		put(dir+"/ibdev", c.Device+"\n")
		put(dir+"/dev", fmt.Sprintf("%d:%d\n", devMajor, minor))
		put(dir+"/uevent", fmt.Sprintf("MAJOR=%d\nMINOR=%d\nDEVNAME=infiniband/%s\n", devMajor, minor, name))
	}

	ibdev := add("infiniband", c.Device)
	put(ibdev+"/node_type", nodeType(n.Type)+"\n")
	put(ibdev+"/node_guid", guid(n.GUID)+"\n")
	put(ibdev+"/sys_image_guid", guid(n.SystemGUID)+"\n")
	put(ibdev+"/node_desc", n.Desc+"\n")
	put(ibdev+"/fw_ver", c.Firmware+"\n")
	put(ibdev+"/hw_rev", c.Hardware+"\n")
	put(ibdev+"/hca_type", c.Model+"\n")
	put(ibdev+"/board_id", c.Board+"\n")
	put(ibdev+"/uevent", "NAME="+c.Device+"\n")

	put(classDir+"/infiniband_mad/abi_version", fmt.Sprintf("%d\n", abiUmad))
	for i, p := range ports(n) {
		if c.Interface != "" {
			put(fmt.Sprintf("%s/ports/%d/link_layer", ibdev, p), "Ethernet\n")
			continue // and programs do not speak management there
		}
		put(fmt.Sprintf("%s/ports/%d/link_layer", ibdev, p), "InfiniBand\n")
		put(fmt.Sprintf("%s/ports/%d/hw_counters/%s", ibdev, p, lifespanFile), fmt.Sprintf("%d\n", lifespanMs))
		for _, kind := range []struct {
			name  string
			minor int
		}{{"umad", i}, {"issm", devISSM + i}} {
			name := kind.name + strconv.Itoa(i)
			dir := add("infiniband_mad", name)
			put(dir+"/port", fmt.Sprintf("%d\n", p))
			character(dir, name, kind.minor)
		}
	}
	put(classDir+"/infiniband_verbs/abi_version", fmt.Sprintf("%d\n", abiUverbs))
	if !n.IsSwitch() { // a switch has no queue pairs but those of management
		// UCX looks whether there is a character device that it may use, and leaves it to libibverbs to use it.
		name := "uverbs" + strconv.Itoa(c.Place)
		link("dev/infiniband/"+name, "../null")
		if c.Place == 0 {
			link("dev/infiniband/rdma_cm", "../null")
		}
		dir := add("infiniband_verbs", name)
		put(dir+"/abi_version", fmt.Sprintf("%d\n", abiDriver))
		character(dir, name, devUverbs+c.Place)
	}
}

// ports are the numbers of the ports that a node's own programs see: a switch's are those of its port 0.
func ports(n *topo.Node) []ib.PortNum {
	if n.IsSwitch() {
		return []ib.PortNum{0}
	}
	all := make([]ib.PortNum, n.NumPorts())
	for i := range all {
		all[i] = ib.PortNum(i + 1)
	}
	return all
}

// portDir is the folder of a port.
func portDir(c Config, p ib.PortNum) string {
	return c.parentDir() + "/infiniband/" + c.Device + "/ports/" + strconv.Itoa(int(p))
}

// state calls put for every file of a port that management changes.
func state(dir string, p *port, put func(path, text string)) {
	pi := &p.info
	put(dir+"/state", fmt.Sprintf("%d: %s\n", pi.PortState, stateName(pi.PortState)))
	put(dir+"/phys_state", fmt.Sprintf("%d: %s\n", pi.PortPhysicalState, physName(pi.PortPhysicalState)))
	put(dir+"/rate", rate(pi.Rate())+"\n")
	put(dir+"/lid", fmt.Sprintf("0x%x\n", uint16(pi.LID)))
	put(dir+"/lid_mask_count", fmt.Sprintf("%d\n", pi.LMC))
	put(dir+"/sm_lid", fmt.Sprintf("0x%x\n", uint16(pi.MasterSMLID)))
	put(dir+"/sm_sl", fmt.Sprintf("%d\n", pi.MasterSMSL))
	put(dir+"/cap_mask", fmt.Sprintf("0x%08x\n", uint32(pi.CapabilityMask)))
	for i, g := range p.gids {
		put(fmt.Sprintf("%s/gids/%d", dir, i), g.String()+"\n")
		kind, iface := "IB/RoCE v1\n", "" // no network interface belongs to it
		if p.iface != "" {
			kind, iface = "RoCE v2\n", p.iface+"\n"
		}
		if g.IsZero() {
			kind, iface = "", "" // where the kernel says EINVAL
		}
		put(fmt.Sprintf("%s/gid_attrs/types/%d", dir, i), kind)
		put(fmt.Sprintf("%s/gid_attrs/ndevs/%d", dir, i), iface)
	}
	for i, k := range p.pkeys {
		put(fmt.Sprintf("%s/pkeys/%d", dir, i), fmt.Sprintf("0x%04x\n", uint16(k)))
	}
}

// counterFiles are the counters of a port by the kernel's names, as wide as it shows them.
var counterFiles = []struct {
	name    string
	counter ib.Counter
	bits    uint
}{
	{"counters/symbol_error", ib.SymbolErrorCounter, 16},
	{"counters/link_error_recovery", ib.LinkErrorRecoveryCounter, 8},
	{"counters/link_downed", ib.LinkDownedCounter, 8},
	{"counters/port_rcv_errors", ib.PortRcvErrors, 16},
	{"counters/port_rcv_remote_physical_errors", ib.PortRcvRemotePhysicalErrors, 16},
	{"counters/port_rcv_switch_relay_errors", ib.PortRcvSwitchRelayErrors, 16},
	{"counters/port_xmit_discards", ib.PortXmitDiscards, 16},
	{"counters/port_xmit_constraint_errors", ib.PortXmitConstraintErrors, 8},
	{"counters/port_rcv_constraint_errors", ib.PortRcvConstraintErrors, 8},
	{"counters/local_link_integrity_errors", ib.LocalLinkIntegrityErrors, 4},
	{"counters/excessive_buffer_overrun_errors", ib.ExcessiveBufferOverrunErrors, 4},
	{"counters/VL15_dropped", ib.VL15Dropped, 16},
	{"counters/port_xmit_data", ib.PortXmitData, 64},
	{"counters/port_rcv_data", ib.PortRcvData, 64},
	{"counters/port_xmit_packets", ib.PortXmitPkts, 64},
	{"counters/port_rcv_packets", ib.PortRcvPkts, 64},
	{"counters/port_xmit_wait", ib.PortXmitWait, 32},
	{"counters/unicast_xmit_packets", ib.PortUnicastXmitPkts, 64},
	{"counters/unicast_rcv_packets", ib.PortUnicastRcvPkts, 64},
	{"counters/multicast_xmit_packets", ib.PortMulticastXmitPkts, 64},
	{"counters/multicast_rcv_packets", ib.PortMulticastRcvPkts, 64},
	// What drivers show beyond the standard's counters: here the details behind some of them.
	{"hw_counters/port_local_physical_errors", ib.PortLocalPhysicalErrors, 64},
	{"hw_counters/port_malformed_packet_errors", ib.PortMalformedPacketErrors, 64},
	{"hw_counters/port_buffer_overrun_errors", ib.PortBufferOverrunErrors, 64},
	{"hw_counters/port_dlid_mapping_errors", ib.PortDLIDMappingErrors, 64},
	{"hw_counters/port_vl_mapping_errors", ib.PortVLMappingErrors, 64},
	{"hw_counters/port_looping_errors", ib.PortLoopingErrors, 64},
	{"hw_counters/port_inactive_discards", ib.PortInactiveDiscards, 64},
	{"hw_counters/port_neighbor_mtu_discards", ib.PortNeighborMTUDiscards, 64},
	{"hw_counters/qp1_dropped", ib.QP1Dropped, 64},
}

// counterText is a counter as a file of so many bits has it: it stays at the largest value (IBA 16.1.3.5).
func counterText(v uint64, bits uint) string {
	if bits < 64 {
		v = min(v, 1<<bits-1)
	}
	return strconv.FormatUint(v, 10) + "\n"
}

// stateName is a port's state in the kernel's words.
func stateName(s ib.PortState) string {
	switch s {
	case ib.PortNoChange:
		return "NOP"
	case ib.PortDown:
		return "DOWN"
	case ib.PortInit:
		return "INIT"
	case ib.PortArmed:
		return "ARMED"
	case ib.PortActive:
		return "ACTIVE"
	}
	return "UNKNOWN"
}

// physName is a physical state in the kernel's words.
func physName(s ib.PhysState) string {
	switch {
	case s == ib.PhysTest:
		return "Phy Test"
	case s > ib.PhysNoChange && s < ib.NumPhysState:
		return s.String()
	}
	return "<unknown>"
}

func nodeType(t ib.NodeType) string {
	name := "<unknown>"
	switch t {
	case ib.NodeCA:
		name = "CA"
	case ib.NodeSwitch:
		name = "switch"
	case ib.NodeRouter:
		name = "router"
	}
	return fmt.Sprintf("%d: %s", t, name)
}

// guid is a GUID as four groups.
func guid(g ib.GUID) string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", uint16(g>>48), uint16(g>>32), uint16(g>>16), uint16(g))
}

// signalDeciGb is what one lane signals, in tenths of Gb/s, which is what the kernel shows.
var signalDeciGb = [ib.NumSpeed]int{
	ib.SDR: 25, ib.DDR: 50, ib.QDR: 100, ib.FDR10: 100, ib.FDR: 140, ib.EDR: 250, ib.HDR: 500, ib.NDR: 1000,
	ib.XDR: 2000,
}

// rate is a link's rate; what it cannot be is shown as the least, as the kernel does.
func rate(r ib.LinkRate) string {
	if !r.Speed.IsValid() {
		r.Speed = ib.SDR
	}
	lanes := max(r.Width.Lanes(), 1)
	deci, half := signalDeciGb[r.Speed]*lanes, ""
	if deci%10 != 0 {
		half = ".5"
	}
	return fmt.Sprintf("%d%s Gb/sec (%dX %s)", deci/10, half, lanes, r.Speed)
}

// cpuMask turns a list of processors ("0-3,8") into a mask, in groups of 32 bits.
func cpuMask(list string) string {
	var mask []uint32
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.Atoi(first)
		b, errB := strconv.Atoi(last)
		if errA != nil || errB != nil || a < 0 || b < a || b >= cpusMax {
			continue
		}
		for ; a <= b; a++ {
			for len(mask) <= a/32 {
				mask = append(mask, 0)
			}
			mask[a/32] |= 1 << (a % 32)
		}
	}
	if len(mask) == 0 {
		return "0"
	}
	text := fmt.Sprintf("%x", mask[len(mask)-1])
	for i := len(mask) - 2; i >= 0; i-- {
		text += fmt.Sprintf(",%08x", mask[i])
	}
	return text
}

// cpusMax is more processors than Linux can be built for.
const cpusMax = 1 << 16
