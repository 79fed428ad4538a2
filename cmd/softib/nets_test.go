package main

import (
	"fmt"
	"testing"

	"softib/driver/live"
	"softib/proto/ib"
)

// TestChildAddrs: hosts have addresses in each partition, which is a subnet that no other one overlaps.
func TestChildAddrs(t *testing.T) {
	for _, c := range []struct {
		host int
		key  ib.PKey
		want string
	}{
		{3, 0x8001, "[10.0.2.3/23 fd53:6f66:7469:8001::3/64]"},
		{3, 0x0001, "[10.0.2.3/23 fd53:6f66:7469:8001::3/64]"}, // a limited member
		{256, 0x8001, "[10.0.3.0/23 fd53:6f66:7469:8001::100/64]"},
		{1, 0x8002, "[10.0.4.1/23 fd53:6f66:7469:8002::1/64]"},
		{510, 0xFFFF, "[10.255.255.254/23 fd53:6f66:7469:ffff::1fe/64]"},
		{511, 0xFFFF, "[fd53:6f66:7469:ffff::1ff/64]"},
	} {
		if got := fmt.Sprint(childAddrs(live.HostIP6(c.host), c.key)); got != c.want {
			t.Errorf("host %d in %v: %s, want %s", c.host, c.key, got, c.want)
		}
	}
}
