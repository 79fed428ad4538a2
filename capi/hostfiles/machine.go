package hostfiles

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sysDir is where Linux shows its devices.
const sysDir = "/sys"

// machine is what an adapter's folder says of the machine that it is in.
type machine struct {
	cpus  string // online ones, as a list
	numa  string // the memory that is near
	buses []pciBus
}

// pciBus is one of the machine's own: a link of class pci_bus.
type pciBus struct{ name, to string }

func lookAround(sys string) *machine {
	m := &machine{cpus: text(filepath.Join(sys, "devices/system/cpu/online"), "0"), numa: "-1"}
	// The adapter is as near as the machine's own PCI devices: -1 in most virtual machines. Were it at another node
	// than they are, NCCL would take it to be behind another processor.
	if first, _ := filepath.Glob(filepath.Join(sys, "bus/pci/devices/*/numa_node")); len(first) > 0 {
		m.numa = text(first[0], m.numa)
	}
	dir := filepath.Join(sys, "class/pci_bus")
	entries, _ := os.ReadDir(dir) // not every machine has PCI
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			m.buses = append(m.buses, pciBus{e.Name(), to})
		}
	}
	return m
}

// freeDomain is a PCI domain that the machine has not. Firmware numbers them from 0 on.
func freeDomain(sys string) uint16 {
	for d := uint16(0xffff); d > 0; d-- {
		if used, _ := filepath.Glob(filepath.Join(sys, fmt.Sprintf("devices/pci%04x:*", d))); len(used) == 0 {
			return d
		}
	}
	return 0
}

// text is a file of one line.
func text(path, otherwise string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return otherwise
	}
	return strings.TrimSpace(string(b))
}
