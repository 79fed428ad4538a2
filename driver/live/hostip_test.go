package live

import (
	"net/netip"
	"testing"

	"softib/proto/topo"
)

func TestHostIP(t *testing.T) {
	for _, c := range []struct {
		i      int
		v4, v6 string
	}{
		{1, "198.18.0.1", "fd53:6f66:7469:6200::1"},
		{255, "198.18.0.255", "fd53:6f66:7469:6200::ff"},
		{256, "198.18.1.0", "fd53:6f66:7469:6200::100"},
		{65536, "198.19.0.0", "fd53:6f66:7469:6200::1:0"},
	} {
		if got := HostIP(c.i).String(); got != c.v4 {
			t.Errorf("host %d: %s, want %s", c.i, got, c.v4)
		}
		if got := HostIP6(c.i).String(); got != c.v6 {
			t.Errorf("host %d: %s, want %s", c.i, got, c.v6)
		}
	}
}

func TestHostByIP(t *testing.T) {
	g, err := topo.ParseSpec("star:3")
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(g, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, h := range f.Hosts() {
		mapped := netip.AddrFrom16(h.IP().As16())
		for _, a := range []netip.Addr{h.IP(), h.IP6(), mapped, h.IP6().WithZone("eth0")} {
			if got, ok := f.HostByIP(a); !ok || got != h {
				t.Errorf("%v is not host %d", a, i+1)
			}
		}
	}
	for _, a := range []string{"198.18.0.0", "198.18.0.4", "198.20.0.1", "127.0.0.1", "fd53:6f66:7469:6200::",
		"fd53:6f66:7469:6200::4",
		"fd53:6f66:7469:6200:1::1", "fd53:6f66:7469:6201::1", "::", "0.0.0.0"} {
		if h, ok := f.HostByIP(netip.MustParseAddr(a)); ok {
			t.Errorf("%s is %s", a, h.Name())
		}
	}
	if h, ok := f.HostByIP(netip.Addr{}); ok {
		t.Errorf("no address is %s", h.Name())
	}
}
