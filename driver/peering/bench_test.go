package peering

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"softib/internal/netpair"
	"softib/internal/pki"
	"softib/node/tunnel"
)

// sideEnv makes this program one side of a benchmark, in a namespace of its own: server or client, and of what.
const (
	sideEnv = "SOFTIB_PEERING_SIDE"
	dirEnv  = "SOFTIB_PEERING_DIR"
	mtuEnv  = "SOFTIB_PEERING_MTU"
	longEnv = "SOFTIB_PEERING_LONG" // empty: only see that it runs

	benchPort = 7471
	eachBytes = 4096
	pingBytes = 64
)

// bulkFor and pings are how much a client does.
func bulkFor() time.Duration {
	if os.Getenv(longEnv) == "" {
		return 50 * time.Millisecond
	}
	return 2 * time.Second
}

func pings() int {
	if os.Getenv(longEnv) == "" {
		return 100
	}
	return 5000
}

func TestMain(m *testing.M) {
	side := map[string]func(dir string, mtu int) error{
		"peering-server": peeringServer, "peering-client": peeringClient,
		"tcp-server": tcpServer, "tcp-client": tcpClient, "tls-server": tlsServer, "tls-client": tlsClient,
		"watch-client": watchClient,
	}[os.Getenv(sideEnv)]
	if side == nil {
		os.Exit(m.Run())
	}
	mtu, _ := strconv.Atoi(os.Getenv(mtuEnv))
	if err := side(os.Getenv(dirEnv), mtu); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// result is what a client says at the end.
type result struct {
	GBps   float64
	PingUs float64 // half of the median round trip
	Bytes  uint64
	Stats  tunnel.Stats

	cpu time.Duration // of both sides
}

// BenchmarkMachines is messages of 4 KiB from one network namespace to another, and a ping-pong of 64 bytes, through a
// tunnel and through TCP and TLS of the same Go. On a machine that others use, what it costs (both sides' processors)
// says more than how fast it is.
func BenchmarkMachines(b *testing.B) {
	pair, err := netpair.New()
	if err != nil {
		b.Skip(err)
	}
	defer pair.Close()
	dir := certificates(b)
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	for _, mtu := range []int{1500, 9000} {
		for machine := range 2 {
			out, err := pair.Command(b.Context(), machine, "ip", "link", "set", netpair.Device, "mtu",
				strconv.Itoa(mtu)).CombinedOutput()
			if err != nil {
				b.Fatalf("%v: %s", err, out)
			}
		}
		for _, what := range []string{"peering", "tls", "tcp"} {
			b.Run(fmt.Sprintf("%s/mtu=%d", what, mtu), func(b *testing.B) {
				var r result
				for b.Loop() {
					r = sides(b, pair, self, dir, what, mtu)
				}
				b.ReportMetric(r.GBps, "GB/s")
				b.ReportMetric(r.PingUs, "us-ping")
				b.ReportMetric(float64(r.cpu.Nanoseconds())/float64(r.Bytes), "cpu-ns/B")
				b.ReportMetric(0, "ns/op")
				if what == "peering" {
					b.Logf("%+v", r.Stats)
				}
			})
		}
	}
}

// sides runs both sides of a measurement.
func sides(b *testing.B, pair *netpair.Machines, self, dir, what string, mtu int) (r result) {
	side := func(machine int, name string) *exec.Cmd {
		c := pair.Command(b.Context(), machine, self)
		c.Env = append(os.Environ(), sideEnv+"="+what+"-"+name, dirEnv+"="+dir, mtuEnv+"="+strconv.Itoa(mtu-48))
		if !testing.Short() {
			c.Env = append(c.Env, longEnv+"=1")
		}
		c.Stderr = os.Stderr
		return c
	}
	server := side(0, "server")
	in, err := server.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		in.Close()
		_ = server.Wait()
		r.cpu += server.ProcessState.UserTime() + server.ProcessState.SystemTime()
	}()
	for end := time.Now().Add(testPatience); !pair.Listens(0, benchPort); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.Fatal("the server does not listen")
		}
	}
	c := side(1, "client")
	out, err := c.Output()
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	r.cpu += c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	return r
}

func say(bytes uint64, took time.Duration, trips []time.Duration, st tunnel.Stats) error {
	slices.Sort(trips)
	return json.NewEncoder(os.Stdout).Encode(result{float64(bytes) / float64(took.Nanoseconds()),
		float64(trips[len(trips)/2].Nanoseconds()) / 2000, bytes, st, 0})
}

// untilClosed waits until the benchmark needs this side no more.
func untilClosed() { _, _ = io.Copy(io.Discard, os.Stdin) }

// Streams of the benchmark's messages.
const (
	streamBulk = iota
	streamPing
	streamEnd
)

// benchSide is a handler of either side.
type benchSide struct {
	up    chan *Peer
	room  chan struct{}
	back  chan uint64
	bytes uint64
	echo  bool
	err   chan error
}

func (s *benchSide) Up(p *Peer) { s.up <- p }
func (s *benchSide) Room(*Peer) { s.room <- struct{}{} }
func (s *benchSide) Down(_ *Peer, why error) {
	if !s.echo {
		s.err <- why
	}
}
func (s *benchSide) Trouble(_ string, err error) { fmt.Fprintln(os.Stderr, err) }
func (s *benchSide) Messages(p *Peer, batch []Message) {
	for _, m := range batch {
		switch {
		case m.Stream == streamBulk:
			s.bytes += uint64(len(m.Data))
		case !s.echo:
			s.back <- binary.BigEndian.Uint64(m.Data)
		default:
			if m.Stream == streamEnd {
				binary.BigEndian.PutUint64(m.Data, s.bytes)
			}
			_ = p.Send(m.Stream, m.Data)
			p.Flush()
		}
	}
}

func benchMachine(dir, name string, mtu int, echo bool) (*Machine, *benchSide, error) {
	c, err := pki.Config(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"),
		filepath.Join(dir, pki.CACert))
	if err != nil {
		return nil, nil, err
	}
	s := &benchSide{up: make(chan *Peer, 9), room: make(chan struct{}, 9), back: make(chan uint64, 9), echo: echo,
		err: make(chan error, 9)}
	m, err := New(Config{Name: name, TLS: c, Listen: fmt.Sprint(":", benchPort), MTU: mtu, Handler: s})
	return m, s, err
}

func peeringServer(dir string, mtu int) error {
	m, _, err := benchMachine(dir, "server", mtu, true)
	if err != nil {
		return err
	}
	untilClosed()
	m.Close()
	return nil
}

func peeringClient(dir string, mtu int) error {
	m, s, err := benchMachine(dir, "client", mtu, false)
	if err != nil {
		return err
	}
	if err := m.Connect("server", net.JoinHostPort(netpair.Addresses[0], fmt.Sprint(benchPort))); err != nil {
		return err
	}
	p := <-s.up
	msg := make([]byte, eachBytes)
	begin := time.Now()
	for time.Since(begin) < bulkFor() {
		for range 32 {
			err := p.Send(streamBulk, msg)
			if errors.Is(err, tunnel.ErrFull) {
				p.Flush()
				select {
				case <-s.room:
				case err := <-s.err:
					return err
				}
			} else if err != nil {
				return err
			}
		}
		p.Flush()
	}
	for errors.Is(p.Send(streamEnd, msg[:8]), tunnel.ErrFull) {
		<-s.room
	}
	p.Flush()
	bytes := <-s.back
	took := time.Since(begin)
	var trips []time.Duration
	for range pings() {
		at := time.Now()
		if err := p.Send(streamPing, msg[:pingBytes]); err != nil {
			return err
		}
		p.Flush()
		<-s.back
		trips = append(trips, time.Since(at))
	}
	return say(bytes, took, trips, p.Stats())
}

func tcpServer(dir string, _ int) error { return server(dir, false) }
func tlsServer(dir string, _ int) error { return server(dir, true) }
func tcpClient(dir string, _ int) error { return client(dir, false) }
func tlsClient(dir string, _ int) error { return client(dir, true) }

// server takes one connection: messages with their stream and length, as the tunnel has them.
func server(dir string, secure bool) error {
	l, err := net.Listen("tcp", fmt.Sprint(":", benchPort))
	if err != nil {
		return err
	}
	go func() {
		untilClosed()
		os.Exit(0)
	}()
	c, err := l.Accept()
	if err != nil {
		return err
	}
	if secure {
		conf, err := pki.Config(filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key"),
			filepath.Join(dir, pki.CACert))
		if err != nil {
			return err
		}
		c = tls.Server(c, conf)
	}
	r := bufio.NewReaderSize(c, 64<<10)
	total := uint64(0)
	msg := make([]byte, 6+eachBytes)
	for {
		if _, err := io.ReadFull(r, msg[:6]); err != nil {
			return nil
		}
		n := 6 + int(binary.BigEndian.Uint16(msg[4:]))
		if _, err := io.ReadFull(r, msg[6:n]); err != nil {
			return err
		}
		switch stream := binary.BigEndian.Uint32(msg); stream {
		case streamBulk:
			total += uint64(n - 6)
			continue
		case streamEnd:
			binary.BigEndian.PutUint64(msg[6:], total)
		}
		if _, err := c.Write(msg[:n]); err != nil {
			return err
		}
	}
}

func client(dir string, secure bool) error {
	c, err := net.Dial("tcp", net.JoinHostPort(netpair.Addresses[0], fmt.Sprint(benchPort)))
	if err != nil {
		return err
	}
	if secure {
		conf, err := pki.Config(filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key"),
			filepath.Join(dir, pki.CACert))
		if err != nil {
			return err
		}
		conf.ServerName = "server"
		c = tls.Client(c, conf)
	}
	w := bufio.NewWriterSize(c, 64<<10)
	message := func(stream uint32, n int) []byte {
		b := make([]byte, 6+n)
		binary.BigEndian.PutUint32(b, stream)
		binary.BigEndian.PutUint16(b[4:], uint16(n))
		return b
	}
	bulk, back := message(streamBulk, eachBytes), make([]byte, 6+eachBytes)
	begin := time.Now()
	for time.Since(begin) < bulkFor() {
		for range 32 {
			if _, err := w.Write(bulk); err != nil {
				return err
			}
		}
	}
	if _, err := w.Write(message(streamEnd, 8)); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, back[:14]); err != nil {
		return err
	}
	bytes, took := binary.BigEndian.Uint64(back[6:]), time.Since(begin)
	ping := message(streamPing, pingBytes)
	var trips []time.Duration
	for range pings() {
		at := time.Now()
		if _, err := c.Write(ping); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, back[:len(ping)]); err != nil {
			return err
		}
		trips = append(trips, time.Since(at))
	}
	return say(bytes, took, trips, tunnel.Stats{})
}
