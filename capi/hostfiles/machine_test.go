package hostfiles

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The machine's own buses stay, and its domains are left to it.
func TestMachine(t *testing.T) {
	sys := t.TempDir()
	m := lookAround(sys)
	if m.cpus != "0" || m.numa != "-1" || m.buses != nil || freeDomain(sys) != 0xffff {
		t.Errorf("a machine without PCI: %+v, domain %x", m, freeDomain(sys))
	}
	for path, text := range map[string]string{
		"devices/system/cpu/online": "0-3\n", "bus/pci/devices/0000:00:00.0/numa_node": "1\n",
		"devices/pci0000:00/0000:00:00.0/class": "x", "devices/pciffff:07/ffff:07:00.0/class": "x",
	} {
		if err := os.MkdirAll(filepath.Join(sys, filepath.Dir(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sys, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(sys, "class/pci_bus"), 0o755); err != nil {
		t.Fatal(err)
	}
	bus := pciBus{"0000:00", "../../devices/pci0000:00/pci_bus/0000:00"}
	if err := os.Symlink(bus.to, filepath.Join(sys, "class/pci_bus", bus.name)); err != nil {
		t.Fatal(err)
	}
	m = lookAround(sys)
	if m.cpus != "0-3" || m.numa != "1" || !slices.Equal(m.buses, []pciBus{bus}) || freeDomain(sys) != 0xfffe {
		t.Errorf("%+v, domain %x", m, freeDomain(sys))
	}
}
