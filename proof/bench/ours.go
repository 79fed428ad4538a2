package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"softib/proof/workload/perf"
)

type row = perf.Row

// perf runs softib perf, which is two processes, on a fabric of two hosts and a switch.
func (b *bench) perf(ctx context.Context, test string, size int) (row, error) {
	args := []string{"perf", test, "-s", strconv.Itoa(size), "--json", "star:2"}
	if b.smoke {
		args = append(args, "-n", strconv.Itoa(smokeTimes))
	}
	out, err := b.output(ctx, nil, b.softib, args...)
	if err != nil {
		return row{}, err
	}
	var result struct {
		Rows []row `json:"rows"`
	}
	if err := json.Unmarshal(out, &result); err != nil || len(result.Rows) != 1 {
		return row{}, fmt.Errorf("softib perf %s printed what is not one row: %w", test, err)
	}
	return result.Rows[0], nil
}

func (b *bench) liveAllocs(ctx context.Context) (float64, error) {
	out, err := b.goBench(ctx, "./driver/live", "SendLat8", 100000)
	if err != nil {
		return 0, err
	}
	return metric(out, "allocs/op")
}

// goBench runs a benchmark of this module.
func (b *bench) goBench(ctx context.Context, pkg, name string, times int) (string, error) {
	out, err := b.output(ctx, nil, b.goTool, "test", "-run", "^$", "-bench", name, "-benchtime",
		strconv.Itoa(b.times(times))+"x", "-benchmem", "-short="+strconv.FormatBool(b.smoke), pkg)
	return string(out), err
}

// metric picks a figure from what a benchmark printed: a result line is a
// name, a count, and then pairs of value and unit.
func metric(out, unit string) (float64, error) {
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		for i := 2; i+1 < len(words); i += 2 {
			if words[i+1] == unit {
				return strconv.ParseFloat(words[i], 64)
			}
		}
	}
	return 0, fmt.Errorf("the benchmark prints no %s", unit)
}
