package perf

import (
	"fmt"

	"softib/proto/ib"
)

// Limits of what may be asked for.
const (
	MaxSize  = 1 << 30
	MaxIters = 100_000_000
	MaxQPs   = 1024
	MaxDepth = 1 << 14
	// memoryMax bounds the buffers of one side.
	memoryMax = 4 << 30
)

const (
	// inlineMax is the size up to which data go with the request.
	inlineMax = 64
	// cqMod is how many requests share one completion.
	cqMod = 16
	// recvDepth is how many receives a side of a send test keeps posted.
	recvDepth = 512
)

// Config says what to measure.
type Config struct {
	Test Test `json:"test"`
	// Sizes of messages in bytes, one row each; the test's own size if empty.
	Sizes []int `json:"sizes,omitempty"`
	// Iters is how many messages make a row, for each queue pair; chosen by
	// size if 0.
	Iters int `json:"iters,omitempty"`
	// QPs is how many queue pairs share the work; 1 if 0.
	QPs int `json:"qps,omitempty"`
	// TxDepth is how many requests of a bandwidth test are in flight on each
	// queue pair; 128 if 0.
	TxDepth int `json:"tx_depth,omitempty"`
	// PostList is how many requests of a bandwidth test are posted in one call; 1
	// if 0.
	PostList int `json:"post_list,omitempty"`
	// MTU of the path; the port's own if 0.
	MTU ib.MTU `json:"mtu,omitempty"`
	// Routers are there where the two sides are in different subnets: the LID of the router that leads to the other
	// one, by the prefix of the subnet that it is in.
	Routers map[uint64]ib.LID `json:"routers,omitempty"`
}

// AllSizes are the sizes of perftest's -a: 2 bytes to 8 MiB.
func AllSizes() []int {
	var sizes []int
	for s := 2; s <= 8<<20; s *= 2 {
		sizes = append(sizes, s)
	}
	return sizes
}

// ConfigError refuses a test that cannot be run as asked.
type ConfigError struct {
	Option string
	Got    any
	Want   string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("perf: %s is %v: want %s", e.Option, e.Got, e.Want)
}

// Check refuses what cannot be run.
func (c Config) Check() error {
	_, err := c.complete()
	return err
}

// complete fills in what was left open and refuses what cannot be.
func (c Config) complete() (Config, error) {
	if c.Test >= NumTest {
		return c, &ConfigError{"test", uint8(c.Test), "a test that exists"}
	}
	if len(c.Sizes) == 0 {
		c.Sizes = []int{c.Test.DefaultSize()}
	}
	for _, s := range c.Sizes {
		switch {
		case c.Test == AtomicLat && s != atomicSize:
			return c, &ConfigError{"size", s, "8 bytes, which is what an atomic operation works on"}
		case s < 1 || s > MaxSize:
			return c, &ConfigError{"size", s, fmt.Sprintf("1 to %d bytes", MaxSize)}
		}
	}
	for _, o := range []struct {
		name   string
		v      *int
		low    int
		high   int
		absent int
	}{
		{"iterations", &c.Iters, 0, MaxIters, 0},
		{"qps", &c.QPs, 1, MaxQPs, 1},
		{"tx-depth", &c.TxDepth, 1, MaxDepth, 128},
		{"post-list", &c.PostList, 1, MaxDepth, 1},
	} {
		if *o.v == 0 {
			*o.v = o.absent
		}
		if *o.v < o.low || *o.v > o.high {
			return c, &ConfigError{o.name, *o.v, fmt.Sprintf("%d to %d", max(o.low, 1), o.high)}
		}
	}
	if c.Test.IsLatency() && c.QPs > 1 {
		return c, &ConfigError{"qps", c.QPs, "1: a latency test uses one queue pair"}
	}
	if c.PostList > c.TxDepth {
		return c, &ConfigError{"post-list", c.PostList, fmt.Sprintf("at most the %d of tx-depth", c.TxDepth)}
	}
	if need := c.maxSize() * 2 * c.QPs; need > memoryMax {
		return c, &ConfigError{"size", c.maxSize(),
			fmt.Sprintf("less: %d queue pairs of this size need %d MiB on each side", c.QPs, need>>20)}
	}
	if c.MTU != 0 && !c.MTU.IsValid() {
		return c, &ConfigError{"mtu", uint8(c.MTU), "256, 512, 1024, 2048 or 4096"}
	}
	return c, nil
}

func (c Config) maxSize() int {
	m := 0
	for _, s := range c.Sizes {
		m = max(m, s)
	}
	return m
}

// iters is how many messages of a size are measured on each queue pair.
func (c Config) iters(size int) int {
	if c.Iters > 0 {
		return c.Iters
	}
	// Enough for a steady figure, few enough to stay under a second a row.
	if c.Test.IsLatency() {
		return min(max((256<<20)/size, 100), 20_000)
	}
	return max(min(max((2<<30)/size, 100), 500_000)/c.QPs, 1)
}

// warmup is how many messages of a size go before those that are measured.
func warmup(size, iters int) int {
	return min(max((64<<20)/size, 1), 5000, iters/2+1)
}
