package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"softib/proof/workload/perf"
)

type row = perf.Row

// perf runs softib perf, which is two processes, on a fabric of two hosts and a switch.
func (b *bench) perf(ctx context.Context, test string, size int) (row, error) {
	out, err := output(ctx, nil, b.softib, "perf", test, "-s", strconv.Itoa(size), "--json", "star:2")
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

// simRate runs the simulator's benchmark; its other figures come from the
// same run.
func (b *bench) simRate(ctx context.Context) (float64, error) {
	var err error
	if b.simOutput, err = b.goBench(ctx, "./driver/sim", "Permutation/1024$", "2000000x"); err != nil {
		return 0, err
	}
	return metric(b.simOutput, "Mhops/s")
}

func (b *bench) simAllocs(context.Context) (float64, error) { return metric(b.simOutput, "allocs/op") }
func (b *bench) simMemory(context.Context) (float64, error) { return metric(b.simOutput, "MiB") }

func (b *bench) liveAllocs(ctx context.Context) (float64, error) {
	out, err := b.goBench(ctx, "./driver/live", "SendLat8", "100000x")
	if err != nil {
		return 0, err
	}
	return metric(out, "allocs/op")
}

// goBench runs a benchmark of this module.
func (b *bench) goBench(ctx context.Context, pkg, name, times string) (string, error) {
	out, err := output(ctx, nil, b.goTool, "test", "-run", "^$", "-bench", name, "-benchtime", times, "-benchmem", pkg)
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

// output runs a command with more environment and returns what it printed.
func output(ctx context.Context, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, tail(out), tail(errs.Bytes()))
	}
	return out, nil
}

// tail is the end of what a command printed.
func tail(text []byte) []byte {
	const most = 1000
	if len(text) > most {
		text = text[len(text)-most:]
	}
	return text
}
