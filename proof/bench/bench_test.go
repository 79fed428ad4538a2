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

func TestNumbers(t *testing.T) {
	for line, want := range map[string]int{
		" 8       500     26.54     73901.60    54.62   \t   301.77   \t-nan \t\t3699.27 \t\t73901.60\n": 9,
		"2 1000 0.79 1.5":                                          4,
		" #bytes #iterations    t_min[usec]":                       0,
		" local address: LID 0x02 QPN 0x8000 PSN 0x19d7ab":         0,
		"--------------------------------------------------------": 0,
		"": 0,
	} {
		if got := numbers(line); len(got) != want {
			t.Errorf("%q: %d numbers, want %d", line, len(got), want)
		}
	}
}
