package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// memcpyBandwidth copies 64 KiB over and over on one core, in GB/s.
func memcpyBandwidth(context.Context) (float64, error) {
	const size, times = 64 << 10, 50_000
	src, dst := make([]byte, size), make([]byte, size)
	for i := range src {
		src[i] = byte(i)
	}
	copy(dst, src)
	started := time.Now()
	for range times {
		copy(dst, src)
	}
	took := time.Since(started)
	runtime.KeepAlive(dst)
	return size * times / took.Seconds() / 1e9, nil
}

// tcpLatency is half of a round trip of 8 bytes over TCP on loopback, the
// median, in microseconds. Both sides block in the kernel on threads of their own:
// Go's poller would add to it.
func tcpLatency(context.Context) (float64, error) {
	const size, warm, rounds = 8, 1000, 20_000
	a, b, err := tcpPair()
	if err != nil {
		return 0, fmt.Errorf("TCP loopback: %w", err)
	}
	defer syscall.Close(a)
	echoed := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer syscall.Close(b)
		var buf [size]byte
		for range warm + rounds {
			if err := exactly(syscall.Read, b, buf[:]); err != nil {
				echoed <- err
				return
			}
			if err := exactly(syscall.Write, b, buf[:]); err != nil {
				echoed <- err
				return
			}
		}
		echoed <- nil
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var buf [size]byte
	samples := make([]float64, 0, rounds)
	base := time.Now()
	last := time.Duration(0)
	for i := range warm + rounds {
		if err := exactly(syscall.Write, a, buf[:]); err != nil {
			return 0, err
		}
		if err := exactly(syscall.Read, a, buf[:]); err != nil {
			return 0, err
		}
		now := time.Since(base)
		if i >= warm {
			samples = append(samples, float64(now-last)/2/1e3)
		}
		last = now
	}
	if err := <-echoed; err != nil {
		return 0, err
	}
	slices.Sort(samples)
	return samples[len(samples)/2], nil
}

// tcpPatience is how long 8 bytes may take over loopback.
const tcpPatience = 10 * time.Second

// tcpPair is a connection over loopback, as two blocking descriptors.
func tcpPair() (a, b int, err error) {
	l, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	defer syscall.Close(l)
	if err := syscall.Bind(l, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, 0, err
	}
	if err := syscall.Listen(l, 1); err != nil {
		return 0, 0, err
	}
	addr, err := syscall.Getsockname(l)
	if err != nil {
		return 0, 0, err
	}
	if a, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0); err != nil {
		return 0, 0, err
	}
	if err := syscall.Connect(a, addr); err != nil {
		return 0, 0, errors.Join(err, syscall.Close(a))
	}
	if b, _, err = syscall.Accept4(l, syscall.SOCK_CLOEXEC); err != nil {
		return 0, 0, errors.Join(err, syscall.Close(a))
	}
	limit := syscall.NsecToTimeval(tcpPatience.Nanoseconds())
	for _, fd := range []int{a, b} {
		if err := errors.Join(syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1),
			syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &limit)); err != nil {
			return 0, 0, errors.Join(err, syscall.Close(a), syscall.Close(b))
		}
	}
	return a, b, nil
}

// exactly reads or writes a whole buffer.
func exactly(f func(int, []byte) (int, error), fd int, buf []byte) error {
	for len(buf) > 0 {
		n, err := f(fd, buf)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return fmt.Errorf("waited %v for 8 bytes over loopback; next: is a firewall between 127.0.0.1 and itself?",
				tcpPatience)
		case err != nil:
			return err
		case n == 0:
			return errors.New("the connection ended")
		default:
			buf = buf[n:]
		}
	}
	return nil
}

// qperfLatency is qperf's tcp_lat for 8 bytes, one way, in microseconds.
func (b *bench) qperfLatency(ctx context.Context) (float64, error) {
	return b.qperf(ctx, b.here("qperf"), "localhost", "tcp_lat", "8", "latency", latencyUnits)
}

var latencyUnits = map[string]float64{"ns": 1e-3, "us": 1, "ms": 1e3}

// qperfBandwidth is qperf's tcp_bw with its own message size, 64 KiB, in GB/s.
func (b *bench) qperfBandwidth(ctx context.Context) (float64, error) {
	return b.qperf(ctx, b.here("qperf"), "localhost", "tcp_bw", "65536", "bw",
		map[string]float64{"KB/sec": 1e-6, "MB/sec": 1e-3, "GB/sec": 1})
}

// sides runs a server, and when that listens on its port a client, whose output it returns.
type sides func(ctx context.Context, port int, server, client []string) (string, error)

// here runs both sides of a program on this machine.
func (b *bench) here(name string, env ...string) sides {
	return func(ctx context.Context, port int, server, client []string) (string, error) {
		return b.withServer(ctx, env, name, port, server[1:], client[1:])
	}
}

// qperf runs a test of qperf against an address and returns the figure of that name, in the unit that has the factor 1.
func (b *bench) qperf(ctx context.Context, run sides, address, test, size, name string,
	units map[string]float64) (float64, error) {
	if _, err := program("qperf"); err != nil {
		return 0, err
	}
	port, err := freePort()
	if err != nil {
		return 0, err
	}
	lp := strconv.Itoa(port)
	out, err := run(ctx, port, []string{"qperf", "-lp", lp},
		[]string{"qperf", "-lp", lp, "-ws", "5", "-m", size, "-t", "1", address, test})
	if err != nil {
		return 0, err
	}
	_, text, ok := strings.Cut(out, name+" ")
	words := strings.Fields(text)
	if !ok || len(words) < 3 || units[words[2]] == 0 {
		return 0, fmt.Errorf("qperf printed no %s: %s", name, out)
	}
	v, err := strconv.ParseFloat(words[1], 64)
	return v * units[words[2]], err
}

// ucxLatency is UCX's tag_lat for 8 bytes over shared memory, the median, in
// microseconds.
func (b *bench) ucxLatency(ctx context.Context) (float64, error) {
	f, err := b.ucx(ctx, "tag_lat", 8, 200000)
	return f[1], err
}

// ucxMessageRate is UCX's tag_bw for 8 bytes over shared memory, in million
// messages a second.
func (b *bench) ucxMessageRate(ctx context.Context) (float64, error) {
	f, err := b.ucx(ctx, "tag_bw", 8, 2000000)
	return f[7] / 1e6, err
}

// ucxBandwidth is UCX's tag_bw over shared memory, in GB/s; UCX says MB and means 2^20 bytes.
func (b *bench) ucxBandwidth(size, iters int) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		f, err := b.ucx(ctx, "tag_bw", size, iters)
		return f[5] * (1 << 20) / 1e9, err
	}
}

// ucx runs ucx_perftest as two processes and returns its final numbers:
// iterations; latency (median, average, overall); bandwidth (average, overall); message
// rate (average, overall).
func (b *bench) ucx(ctx context.Context, test string, size, iters int) ([8]float64, error) {
	run := b.here("ucx_perftest", "UCX_TLS=self,sm", "UCX_LOG_LEVEL=error")
	return b.ucxBy(ctx, run, "localhost", test, size, iters)
}

// ucxBy is that for any two sides, of which one is at an address.
func (b *bench) ucxBy(ctx context.Context, run sides, address, test string, size, iters int) (figures [8]float64,
	err error) {
	if _, err := program("ucx_perftest"); err != nil {
		return figures, err
	}
	port, err := freePort()
	if err != nil {
		return figures, err
	}
	p := strconv.Itoa(port)
	out, err := run(ctx, port, []string{"ucx_perftest", "-p", p}, []string{"ucx_perftest", address, "-p", p, "-t", test,
		"-s", strconv.Itoa(size), "-n", strconv.Itoa(b.times(iters)), "-f"})
	if err != nil {
		return figures, err
	}
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) != len(figures) {
			continue
		}
		ok := true
		for i, w := range words {
			v, err := strconv.ParseFloat(w, 64)
			figures[i], ok = v, ok && err == nil
		}
		if ok {
			return figures, nil
		}
	}
	return figures, fmt.Errorf("ucx_perftest -t %s printed no figures: %s", test, out)
}

// freePort is a TCP port that nobody listens on, below those that the kernel gives to whoever does not care (32768 and
// more by default): somebody else's connection might take one of them before the program does. Tests, beside which this
// runs, take theirs from 14000 on.
func freePort() (int, error) {
	for range 1000 {
		port := 11000 + rand.IntN(3000)
		if l, err := net.Listen("tcp", ":"+strconv.Itoa(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no port from 11000 to 13999 is free; next: end what listens there")
}
