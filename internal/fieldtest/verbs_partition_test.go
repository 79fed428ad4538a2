package fieldtest

import (
	"fmt"
	"slices"
	"testing"

	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/policy"
	"softib/subnet/sm"
)

// tenants are partitions as an operator writes them: the manager reaches everybody, everybody else only their own.
func (w *world) tenants(members map[ib.PKey][]string) policy.Partitions {
	w.Helper()
	text := "Default=0x7fff : ALL=limited, SELF=full ;\n"
	for key, hosts := range members {
		text += fmt.Sprintf("t%x=%#x : ", key, uint16(key))
		for i, h := range hosts {
			if i > 0 {
				text += ", "
			}
			text += fmt.Sprintf("%#x=full", uint64(w.node(h).PortGUID(1)))
		}
		text += " ;\n"
	}
	p, _, err := policy.ParsePartitions("partitions.conf", []byte(text))
	w.check(err)
	return p
}

// setTenants puts partitions in force.
func (w *world) setTenants(members map[ib.PKey][]string) {
	w.Helper()
	p := w.tenants(members)
	w.check(w.sm.Do(func(m *sm.Manager) { m.SetPartitions(0, p) }))
	for key, hosts := range members {
		for _, n := range w.g.Hosts() {
			w.eventually(fmt.Sprintf("the keys of %s", n.Name), func() bool {
				return slices.Contains(w.PKeys(ref(n, 1)), key|0x8000) == slices.Contains(hosts, n.Name)
			})
		}
	}
}

// keyIndex is where a host has a key, as programs are told.
func (w *world) keyIndex(host string, key ib.PKey) string {
	w.Helper()
	i := slices.Index(w.PKeys(ref(w.node(host), 1)), key|0x8000)
	if i < 0 {
		w.Fatalf("%s has no key %v", host, key)
	}
	return fmt.Sprintf("--pkey_index=%d", i)
}

// refused counts what switches have refused because of its partition, by port.
func (w *world) refused() map[topo.PortRef][2]uint64 {
	all := map[topo.PortRef][2]uint64{}
	for _, n := range w.g.Switches() {
		for p := 1; p <= n.NumPorts(); p++ {
			c := w.Counters(ref(n, p))
			if c[ib.PortRcvConstraintErrors]+c[ib.PortXmitConstraintErrors] > 0 {
				all[ref(n, p)] = [2]uint64{c[ib.PortRcvConstraintErrors], c[ib.PortXmitConstraintErrors]}
			}
		}
	}
	return all
}

// Programs in different partitions do not reach each other, and the switch that stops them counts it.
func TestPartitionVerbs(t *testing.T) {
	t.Parallel()
	w := up(t, "star:5", brisk)
	const red, blue = ib.PKey(0x1), ib.PKey(0x2)
	w.setTenants(map[ib.PKey][]string{red: {"h2", "h3"}, blue: {"h4", "h5"}})
	// Two programs, each in a partition of its own choice.
	start := func(a string, aKey string, b string, bKey string, args ...string) (server, client *program) {
		t.Helper()
		port := freePort(t)
		args = append(args, "-F", "-p", dec(port))
		server = w.start(a, "ib_write_bw", append(args[:len(args):len(args)], aKey)...)
		server.until("listened", func() bool { return listens(port) })
		return server, w.start(b, "ib_write_bw", append(args[:len(args):len(args)], bKey, "127.0.0.1")...)
	}
	works := func(a, aKey, b, bKey string) {
		t.Helper()
		server, client := start(a, aKey, b, bKey, "-n", "20")
		client.finish()
		server.finish()
	}
	fails := func(a, aKey, b, bKey string) {
		t.Helper()
		server, client := start(a, aKey, b, bKey, "-n", "20", "-u", "8")
		wants(t, client.fails(), "Failed status 12:")
		server.kill()
	}

	// Within a partition.
	for _, pair := range []struct {
		a, b string
		key  ib.PKey
	}{{"h2", "h3", red}, {"h4", "h5", blue}} {
		works(pair.a, w.keyIndex(pair.a, pair.key), pair.b, w.keyIndex(pair.b, pair.key))
	}
	same(t, "refused packets", len(w.refused()), 0)

	// From one to the other: h4's first message goes to h2 with blue's key and is stopped at the last port.
	fails("h2", w.keyIndex("h2", red), "h4", w.keyIndex("h4", blue))
	sw := w.g.Switches()[0]
	last := ref(sw, int(w.node("h2").Ports[1].PeerPort))
	got := w.refused()
	if len(got) != 1 || got[last][1] < perftestRetries+1 || got[last][0] != 0 {
		t.Errorf("refused packets, received and sent, by port: %v, want at least %d sent at %v alone", got,
			perftestRetries+1, last)
	}
	// With perfquery.
	s := read(t, w.run("h1", "perfquery", dec(w.lid(sw, 0)), dec(last.Port)))
	same(t, "PortXmitConstraintErrors", s["PortXmitConstraintErrors"], dec(min(got[last][1], 255)))

	// In the partition that both are in as limited members.
	fails("h2", "--pkey_index=0", "h4", "--pkey_index=0")

	// h4 changes sides.
	w.setTenants(map[ib.PKey][]string{red: {"h2", "h3", "h4"}, blue: {"h5"}})
	works("h2", w.keyIndex("h2", red), "h4", w.keyIndex("h4", red))

	// And leaves while messages are under way.
	server, client := start("h2", w.keyIndex("h2", red), "h4", w.keyIndex("h4", red), "-D", "60", "-u", "10")
	w.flows("messages", ref(w.node("h4"), 1))
	w.setTenants(map[ib.PKey][]string{red: {"h2", "h3"}, blue: {"h4", "h5"}})
	wants(t, client.fails(), "Failed status 12:")
	server.kill()
}
