package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// atOnce measures something several times at the same time, and takes the median.
func atOnce(n int, measure func(context.Context) (float64, error)) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		type result struct {
			v   float64
			err error
		}
		results := make(chan result, n)
		for range n {
			go func() {
				v, err := measure(ctx)
				results <- result{v, err}
			}()
		}
		var values []float64
		var errs []error
		for range n {
			r := <-results
			values, errs = append(values, r.v), append(errs, r.err)
		}
		slices.Sort(values)
		return values[n/2], errors.Join(errs...)
	}
}

// busily measures something beside three programs that do nothing but compute.
func busily(measure func(context.Context) (float64, error)) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		loops, stop := context.WithCancel(ctx)
		var ended []func() error
		defer func() {
			stop()
			for _, wait := range ended {
				_ = wait() // they end because they are told to
			}
		}()
		for range 3 {
			cmd := command(loops, nil, "sh", "-c", "while :; do :; done")
			if err := cmd.Start(); err != nil {
				return 0, err
			}
			ended = append(ended, cmd.Wait)
		}
		return measure(ctx)
	}
}

// switched measures something while a cable on the way has a fault, one that changes nothing, so that all packets go
// through the switches one by one.
func (p *programs) switched(measure func(context.Context) (float64, error)) func(context.Context) (float64, error) {
	return func(ctx context.Context) (v float64, err error) {
		if _, err := p.command(ctx, "fault", "link", "h1", "delay=1ns"); err != nil {
			return 0, err
		}
		defer func() {
			_, e := p.command(ctx, "fault", "clear")
			err = errors.Join(err, e)
		}()
		return measure(ctx)
	}
}

// ranks is how many processes an MPI program has unless that is what is measured.
const ranks = 8

// The ways of Open MPI's messages: through softib, its own shared memory, TCP.
var (
	mpiOurs = []string{"--mca", "pml", "ucx", "--mca", "btl", "self", "--mca", "osc", "ucx", "-x", "UCX_TLS=rc_v,self",
		"-x", "UCX_NET_DEVICES=softib0:1"}
	mpiMemory = []string{"--mca", "pml", "ob1", "--mca", "btl", "self,vader"}
	mpiTCP    = []string{"--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"}
)

// collective is how long an operation of all ranks takes, in microseconds.
func (p *programs) collective(way []string, what string, size, times int) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		out, err := p.mpi(ctx, ranks, way, what, strconv.Itoa(size), strconv.Itoa(p.times(times)))
		if err != nil {
			return 0, err
		}
		_, text, _ := strings.Cut(out, what+" ")
		v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil {
			return 0, fmt.Errorf("%s printed no time: %s", what, out)
		}
		return v, nil
	}
}

// starts starts an MPI program of so many ranks ten times, and returns how long the longest took, in seconds.
func (p *programs) starts(world int) func(context.Context) (float64, error) {
	return func(ctx context.Context) (longest float64, err error) {
		times := 10
		if p.smoke {
			times, world = 1, 2
		}
		for i := range times {
			began := time.Now()
			if _, err := p.mpi(ctx, world, mpiOurs, "allreduce", "8", "1"); err != nil {
				return 0, fmt.Errorf("start %d: %w", i+1, err)
			}
			longest = max(longest, time.Since(began).Seconds())
		}
		return longest, nil
	}
}

// mpi runs testdata/collective.c, each rank on the next host if it goes through softib.
func (p *programs) mpi(ctx context.Context, world int, way []string, args ...string) (string, error) {
	if _, err := program("mpirun"); err != nil {
		return "", err
	}
	path, err := p.build(ctx, "collective", "mpicc")
	if err != nil {
		return "", err
	}
	line := slices.Concat([]string{"--oversubscribe", "--bind-to", "none", "-np", strconv.Itoa(world)}, way)
	if slices.Contains(way, "ucx") {
		place, err := p.place()
		if err != nil {
			return "", err
		}
		line = append(line, place)
	}
	env := append(p.env(), "TMPDIR="+p.dir, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	out, err := p.output(ctx, env, "mpirun", slices.Concat(line, []string{path}, args)...)
	return string(out), err
}

// place is a script that runs a rank's program on a host of its own, as long as there are.
func (p *programs) place() (string, error) {
	softib, err := filepath.Abs(p.softib)
	if err != nil {
		return "", err
	}
	path := filepath.Join(p.dir, "place")
	script := fmt.Sprintf("#!/bin/sh\nexec %q exec h$((OMPI_COMM_WORLD_RANK %% %d + 1)) -- \"$@\"\n", softib, ranks)
	return path, os.WriteFile(path, []byte(script), 0o700)
}
