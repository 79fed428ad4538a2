package netif

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"softib/node/ipoib"
)

// What Linux 6.18 says on a machine of little endian.
const (
	igmpText = `Idx	Device    : Count Querier	Group    Users Timer	Reporter
1	lo        :     1      V3
				010000E0     1 0:00000000		0
2	ib0       :     2      V3
				030201EF     1 0:00000000		0
				010000E0     1 0:00000000		0
`
	igmp6Text = `1    lo              ff020000000000000000000000000001     1 0000000C 0
2    ib0             ff020000000000000000000000000001     1 0000000C 0
2    ib0             ff150000000000000000000000001234     1 00000004 0
`
)

// Of a listener, a connection of a program, three that their programs have left, one that has ended for us, and one
// that nobody has taken yet.
const tcpText = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1675 1 000024 100 0 0 10 0
   1: 0100007F:A4CC 0100007F:07E8 01 00000000:00000000 00:00000000 00000000     0        0 1702 1 000025 20 4 30 10 -1
   2: 0400C612:AE12 0200C612:232D 04 000E2F3A:00000000 01:00000014 00000000     0        0 0 4 000026 20 4 30 10 -1
   3: 0400C612:AE14 0200C612:232D 05 00000000:00000000 03:00000A14 00000000     0        0 0 3 000027
   4: 0400C612:AE16 0200C612:232D 09 00000001:00000000 01:00000014 00000000     0        0 0 4 000028 20 4 30 10 -1
   5: 0400C612:AE18 0200C612:232D 06 00000000:00000000 03:00000A14 00000000     0        0 0 3 000029
   6: 0400C612:AE1A 0200C612:232D 03 00000000:00000000 01:00000014 00000000     0        0 0 1 00002a
`

func TestLeaving(t *testing.T) {
	if untold, open := leaving([]byte(tcpText)); untold != 2 || open != 3 {
		t.Errorf("%d connections are taking leave, %d are open", untold, open)
	}
}

func TestGroups(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the text is of a machine of little endian")
	}
	want := []netip.Addr{netip.MustParseAddr("239.1.2.3"), netip.MustParseAddr("224.0.0.1")}
	if got := parseIGMP([]byte(igmpText)); !slices.Equal(got["ib0"], want) || len(got) != 2 {
		t.Errorf("igmp: %v", got)
	}
	want = []netip.Addr{netip.MustParseAddr("ff02::1"), netip.MustParseAddr("ff15::1234")}
	if got := parseIGMP6([]byte(igmp6Text)); !slices.Equal(got["ib0"], want) || len(got) != 2 {
		t.Errorf("igmp6: %v", got)
	}
}

func FuzzGroups(f *testing.F) {
	f.Add([]byte(igmpText))
	f.Add([]byte(igmp6Text))
	f.Add([]byte(tcpText))
	f.Fuzz(func(t *testing.T, text []byte) {
		if untold, open := leaving(text); untold+open > bytes.Count(text, []byte{'\n'})+1 {
			t.Errorf("%d and %d connections", untold, open)
		}
		for _, parse := range []func([]byte) map[string][]netip.Addr{parseIGMP, parseIGMP6} {
			for _, all := range parse(text) {
				for _, a := range all {
					if !a.IsMulticast() {
						t.Errorf("%v is no group", a)
					}
				}
			}
		}
	})
}

// addrMessage is a message of rtnetlink about an address.
func addrMessage(addr netip.Addr, bits byte, index uint32) []byte {
	b := make([]byte, syscall.SizeofNlMsghdr+syscall.SizeofIfAddrmsg)
	b[syscall.SizeofNlMsghdr], b[syscall.SizeofNlMsghdr+1] = syscall.AF_INET6, bits
	ne := binary.NativeEndian
	ne.PutUint32(b[syscall.SizeofNlMsghdr+4:], index)
	v := addr.AsSlice()
	b = ne.AppendUint16(b, uint16(4+len(v)))
	b = ne.AppendUint16(b, syscall.IFA_ADDRESS)
	b = append(b, v...)
	ne.PutUint32(b, uint32(len(b)))
	ne.PutUint16(b[4:], syscall.RTM_NEWADDR)
	return b
}

func FuzzAddr(f *testing.F) {
	f.Add(addrMessage(netip.MustParseAddr("fd53::1"), 64, 2))
	f.Add(addrMessage(netip.MustParseAddr("198.18.0.1"), 15, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := syscall.ParseNetlinkMessage(b)
		if err != nil {
			return
		}
		for i := range all {
			if p, _, ok := parseAddr(&all[i]); ok && !p.IsValid() {
				t.Errorf("%v is no prefix", p)
			}
		}
	})
}

func TestAddr(t *testing.T) {
	all, err := syscall.ParseNetlinkMessage(addrMessage(netip.MustParseAddr("fd53::1"), 64, 7))
	if err != nil || len(all) != 1 {
		t.Fatal(err)
	}
	if p, index, ok := parseAddr(&all[0]); !ok || p.String() != "fd53::1/64" || index != 7 {
		t.Errorf("%v, %d, %v", p, index, ok)
	}
}

// What the kernel's header says stays what it was.
func FuzzVnet(f *testing.F) {
	f.Add([]byte{1, 1, 52, 0, 0xC8, 7, 20, 0, 16, 0})
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < vnetSize {
			return
		}
		o := parseVnet(b)
		var again [vnetSize]byte
		putVnet(&again, &o)
		is := parseVnet(again[:])
		if o.Kind == ipoib.Whole {
			o.Size, o.HeaderLen = 0, 0
		}
		if !o.NeedsChecksum {
			o.ChecksumStart, o.ChecksumOffset = 0, 0
		}
		if is != o {
			t.Errorf("%+v, want %+v", is, o)
		}
	})
}
