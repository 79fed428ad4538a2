package fieldtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"softib/subnet"
	"softib/subnet/sm"
)

// osmtest runs one flow of OpenSM's own test of administrators on a host. It must pass.
func (w *world) osmtest(host, inventory, name string, args ...string) {
	w.Helper()
	dir := w.TempDir() // it leaves files where it stands
	log := filepath.Join(dir, "log")
	cmd := w.command(host, "osmtest", append([]string{"-i", inventory, "-l", log, "-f"}, args...)...)
	cmd.Env = append(cmd.Env, "OSM_TMP_DIR="+dir, "OSM_CACHE_DIR="+dir)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("OSMTEST: TEST %q PASS", name)) {
		text, _ := os.ReadFile(log)
		w.Errorf("osmtest -f %s: %v\n%s\nits log ends in:\n%s", strings.Join(args, " "), err, out,
			tail(string(text), 40))
	}
}

// inventoried waits until the manager has read the tables that it did not write, and administration shows them.
func (w *world) inventoried() {
	w.Helper()
	w.sm.wait(w, "the inventory of lanes", func(m *sm.Manager) bool {
		s, known := m.Subnet(), true
		s.EachEnd(func(r subnet.Ref, p *subnet.Port) { known = known && p.Tables != nil && p.Tables.SLtoVL != nil })
		return known
	})
}

// OpenSM's own test of administrators passes on ours, as it does on OpenSM: inventory, multicast, services and their
// leases, events, tables of lanes, a flood of questions for tables.
func TestOsmtest(t *testing.T) {
	t.Parallel()
	// One of its tests of multicast takes it that no port has more than 300 Gb/s.
	w := up(t, defaultSpec+",speed=HDR")
	inventory := filepath.Join(t.TempDir(), "inventory")
	w.osmtest("h5", inventory, "Create Inventory", "c")
	t.Run("services", func(t *testing.T) {
		t.Parallel() // most of it is waiting for the end of a lease
		w.in(t).osmtest("h6", inventory, "Services Registration", "s")
	})
	t.Run("others", func(t *testing.T) {
		t.Parallel()
		w := w.in(t)
		w.osmtest("h5", inventory, "Validate Inventory", "v")
		w.osmtest("h5", inventory, "Multicast", "m")
		w.osmtest("h7", inventory, "Multicast", "m", "-M", "2")
		w.osmtest("h5", inventory, "Event Forwarding", "e")
		w.inventoried()
		w.osmtest("h5", inventory, "QoS: VLArb and SLtoVL", "q")
		w.osmtest("h5", inventory, "Stress SA", "f", "-s", "3")
	})
}

// So it does where ports have several addresses, and where its questions come with a global header.
func TestOsmtestManyAddresses(t *testing.T) {
	t.Parallel()
	w := up(t, "star:4,speed=HDR", func(c *sm.Config) { c.LMC = 2 })
	inventory := filepath.Join(t.TempDir(), "inventory")
	w.osmtest("h2", inventory, "Create Inventory", "c", "-G")
	w.osmtest("h2", inventory, "Validate Inventory", "v", "-G", "-d1") // it knows of one path for each pair of ports
	w.osmtest("h3", inventory, "Multicast", "m", "-G")
	w.inventoried()
	w.osmtest("h2", inventory, "QoS: VLArb and SLtoVL", "q", "-G")
}

// tail is the last lines of a text.
func tail(text string, n int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-n):], "\n")
}
