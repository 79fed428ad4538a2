package main

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestMetric(t *testing.T) {
	const out = "goos: linux\nBenchmarkPermutation/1024-2   \t 2000000\t       486.0 ns/op\t         2.058 " +
		"Mhops/s\t        92.92 MiB\t       0 B/op\t       0 allocs/op\nPASS\n"
	for unit, want := range map[string]float64{"Mhops/s": 2.058, "MiB": 92.92, "allocs/op": 0, "ns/op": 486} {
		if got, err := metric(out, unit); err != nil || got != want {
			t.Errorf("%s is %v, %v; want %v", unit, got, err, want)
		}
	}
	if _, err := metric(out, "furlongs"); err == nil {
		t.Error("a figure that is not there was found")
	}
}

func TestPeersWithin(t *testing.T) {
	for name, f := range map[string]*figure{
		"memcpy": {measure: memcpyBandwidth},
		"TCP":    {measure: tcpLatency},
	} {
		v, err := f.measure(t.Context())
		if err != nil || !(v > 0) || math.IsInf(v, 0) {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
}

func TestMedian(t *testing.T) {
	f := &figure{values: []float64{9, 1, 5}, unit: "µs"}
	if f.value() != 5 || f.text() != "5 µs" {
		t.Errorf("median %v, text %q", f.value(), f.text())
	}
	if f.worst = true; f.value() != 9 {
		t.Errorf("the worst is %v", f.value())
	}
	if g := (&figure{err: errAbsent}); g.text() != "not installed" {
		t.Errorf("an absent peer is %q", g.text())
	}
	if g := (&figure{err: errors.New("a\nlong\nstory")}); strings.Contains(g.text(), "\n") {
		t.Errorf("a failure breaks the table: %q", g.text())
	}
}
