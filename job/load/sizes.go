package load

import (
	"sort"
	"strings"
)

// Distributions of flow sizes that were published, as points of their distribution functions: the size in bytes up to
// which so many in a hundred flows are. Between two points sizes grow evenly by their logarithm's powers, that is,
// linearly in the size.
var distributions = map[string][]point{
	// Web search: Alizadeh et al., "Data center TCP (DCTCP)", SIGCOMM 2010, figure 4, as HPCC's authors tabulate it.
	"web": {{1, 0}, {10e3, 15}, {20e3, 20}, {30e3, 30}, {50e3, 40}, {80e3, 53}, {200e3, 60}, {1e6, 70}, {2e6, 80},
		{5e6, 90}, {10e6, 97}, {30e6, 100}},
	// Hadoop: Roy et al., "Inside the social network's (datacenter) network", SIGCOMM 2015, as HPCC's authors tabulate
	// it.
	"hadoop": {{1, 0}, {180, 10}, {216, 20}, {560, 30}, {900, 40}, {1100, 50}, {1870, 60}, {3160, 70}, {10e3, 80},
		{400e3, 90}, {3.16e6, 95}, {100e6, 98}, {1e9, 100}},
	// Storage: messages of a block store with 4 KiB to 4 MiB, after Gao et al., "When cloud storage meets RDMA",
	// NSDI 2021.
	"storage": {{512, 0}, {4096, 40}, {8192, 50}, {16384, 60}, {65536, 75}, {131072, 85}, {524288, 95}, {4194304, 100}},
}

type point struct{ bytes, percent float64 }

// sizes gives the size of one message after the other.
func (m *maker) sizes() func() uint64 {
	points, ok := distributions[m.set["size"]]
	if !ok {
		if strings.Trim(m.set["size"], "0123456789KMGkmgiIbB") != "" {
			m.number("size", 1, 1<<40)
		}
		bytes := m.number("size", 0, 1<<40)
		return func() uint64 { return bytes }
	}
	return func() uint64 {
		u := m.r.Float64() * 100
		i := sort.Search(len(points)-1, func(i int) bool { return points[i].percent >= u })
		if i == 0 {
			return uint64(points[0].bytes)
		}
		a, b := points[i-1], points[i]
		return uint64(a.bytes + (b.bytes-a.bytes)*(u-a.percent)/(b.percent-a.percent))
	}
}
