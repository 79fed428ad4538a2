package perf

import (
	"fmt"
	"slices"
	"strings"

	"softib/verbs"
)

// Test is one of the tests.
type Test uint8

// The tests, under perftest's names.
const (
	SendLat Test = iota
	SendBW
	WriteLat
	WriteBW
	ReadLat
	ReadBW
	AtomicLat
	NumTest
)

// tests is what tells one test from another.
var tests = [NumTest]struct {
	name    string
	title   string
	latency bool
	halved  bool // a figure is half of a round trip
	op      verbs.WROpcode
	size    int // unless asked otherwise
}{
	SendLat:   {"send_lat", "Send Latency Test", true, true, verbs.WRSend, 2},
	SendBW:    {"send_bw", "Send BW Test", false, false, verbs.WRSend, 65536},
	WriteLat:  {"write_lat", "RDMA_Write Latency Test", true, true, verbs.WRRDMAWrite, 2},
	WriteBW:   {"write_bw", "RDMA_Write BW Test", false, false, verbs.WRRDMAWrite, 65536},
	ReadLat:   {"read_lat", "RDMA_Read Latency Test", true, false, verbs.WRRDMARead, 2},
	ReadBW:    {"read_bw", "RDMA_Read BW Test", false, false, verbs.WRRDMARead, 65536},
	AtomicLat: {"atomic_lat", "Atomic FETCH_AND_ADD Latency Test", true, false, verbs.WRAtomicFetchAdd, atomicSize},
}

// atomicSize is the operand of every atomic operation (IBA 9.4.5).
const atomicSize = 8

func (t Test) String() string {
	if t < NumTest {
		return tests[t].name
	}
	return fmt.Sprintf("Test(%d)", uint8(t))
}

// Title is what perftest prints above its results.
func (t Test) Title() string { return tests[t].title }

// IsLatency tells the tests of latency from those of bandwidth.
func (t Test) IsLatency() bool { return tests[t].latency }

// DefaultSize is the message size of a test that was given none, in bytes.
func (t Test) DefaultSize() int { return tests[t].size }

// Names lists the tests.
func Names() []string {
	var names []string
	for t := range NumTest {
		names = append(names, t.String())
	}
	return names
}

// ParseTest finds a test by its name; perftest's own ib_send_lat is understood too.
func ParseTest(name string) (Test, error) {
	i := slices.Index(Names(), strings.TrimPrefix(name, "ib_"))
	if i < 0 {
		return 0, &ConfigError{"test", name, "one of " + strings.Join(Names(), ", ")}
	}
	return Test(i), nil
}

// MarshalText writes a test by its name.
func (t Test) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (t *Test) UnmarshalText(text []byte) error {
	v, err := ParseTest(string(text))
	*t = v
	return err
}
