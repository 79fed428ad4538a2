// Command kv is a key-value store whose server does nothing: clients on other
// hosts read and change its memory with RDMA READ, RDMA WRITE and
// compare-and-swap.
//
//	softib up -d
//	go run ./examples/kv
//
// One program is on four hosts here, as if it were four processes.
//
// The server registers a table and tells its address and key. From then on only
// its adapter works, and that checks every access: the key, the bounds, the rights.
//
// The table is an array of slots of 64 bytes:
//
//	offset 0   version   even: free, odd: somebody is writing
//	offset 8   key       16 bytes, zero-filled
//	offset 24  value     32 bytes, zero-filled
//	offset 56  version again, written last
//
// A reader fetches a slot with one READ and takes it if both versions are the same
// and even. A writer makes the version odd with a compare-and-swap, which only
// one of several can, writes the slot with the next even version, and is done.
// Of all this the server learns nothing.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"os/signal"
	"strconv"
	"sync"

	"softib/verbs"
	"softib/verbs/attach"
)

const (
	slots    = 256
	slotSize = 64

	versionAt = 0
	keyAt     = 8
	keyMax    = 16
	valueAt   = 24
	valueMax  = 32
	againAt   = 56
)

func main() {
	name := flag.String("name", "", "the fabric, as softib up --name had it")
	rounds := flag.Int("n", 200, "how often each client counts")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := run(ctx, *name, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "kv:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name string, rounds int) error {
	// h1 holds the table; h2, h3 and h4 use it.
	var devices []*attach.Device
	for _, host := range []string{"h1", "h2", "h3", "h4"} {
		d, err := attach.Open(attach.Options{Name: name, Host: host})
		if err != nil {
			return err
		}
		defer d.Close()
		devices = append(devices, d)
	}
	srv, err := newServer(devices[0])
	if err != nil {
		return err
	}
	var clients []*client
	for _, d := range devices[1:] {
		c, err := newClient(d, srv)
		if err != nil {
			return err
		}
		clients = append(clients, c)
	}

	// What one writes, another reads.
	if err := clients[0].put(ctx, "colour", "ultramarine"); err != nil {
		return err
	}
	value, err := clients[1].get(ctx, "colour")
	if err != nil {
		return err
	}
	fmt.Printf("%s put colour, %s got %q\n", clients[0].name, clients[1].name, value)
	if _, err := clients[2].get(ctx, "flavour"); !errors.Is(err, errNoKey) {
		return fmt.Errorf("a key that nobody put: got %v, want %w", err, errNoKey)
	}

	// All of them count in one place at once. Every increment must be there in
	// the end: that is what the compare-and-swap is for.
	if err := clients[0].put(ctx, "count", "0"); err != nil {
		return err
	}
	errs := make([]error, len(clients))
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			for range rounds {
				if errs[i] = c.update(ctx, "count", increment); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if value, err = clients[0].get(ctx, "count"); err != nil {
		return err
	}
	fmt.Printf("%d clients counted %d times each: %s\n", len(clients), rounds, value)
	if want := strconv.Itoa(len(clients) * rounds); value != want {
		return fmt.Errorf("the count is %s, want %s", value, want)
	}

	// The adapter guards what was not offered.
	if err := clients[0].overreach(ctx); err != nil {
		return err
	}
	fmt.Println("a read past the table's end was refused:", verbs.WCRemAccessErr)
	return nil
}

func increment(old string) (string, error) {
	n, err := strconv.Atoi(old)
	return strconv.Itoa(n + 1), err
}

// server owns the table. It has a queue pair for every client, because that is
// what a connection is, but it never posts to one.
type server struct {
	pd    *verbs.PD
	table *verbs.MR
	cq    *verbs.CQ
}

func newServer(d verbs.Device) (*server, error) {
	s := &server{}
	ctx := verbs.Open(d)
	var err error
	if s.pd, err = ctx.AllocPD(); err != nil {
		return nil, err
	}
	// The rights say what a peer may do with this memory.
	rights := verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	if s.table, err = s.pd.RegMR(make([]byte, slots*slotSize), rights); err != nil {
		return nil, err
	}
	s.cq, err = ctx.CreateCQ(1)
	return s, err
}

// client reaches the table from another host.
type client struct {
	name string
	qp   *verbs.QP
	cq   *verbs.CQ
	buf  *verbs.MR // a slot as read, a slot to write, and the result of an atomic
	wc   [1]verbs.WC

	// Where the table is: all that a client has to be told.
	addr uint64
	rkey uint32
}

// Parts of a client's memory.
const (
	readAt   = 0
	writeAt  = slotSize
	resultAt = 2 * slotSize
)

func newClient(d verbs.Device, s *server) (*client, error) {
	ctx := verbs.Open(d)
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, err
	}
	c := &client{name: d.Name(), addr: s.table.Addr(), rkey: s.table.RKey()}
	if c.buf, err = pd.RegMR(make([]byte, 3*slotSize), verbs.AccessLocalWrite); err != nil {
		return nil, err
	}
	if c.cq, err = ctx.CreateCQ(16); err != nil {
		return nil, err
	}
	if c.qp, err = pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: c.cq, RecvCQ: c.cq,
		Caps: verbs.DefaultCaps}); err != nil {
		return nil, err
	}
	// The server's end of the connection.
	far, err := s.pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.cq, Caps: verbs.DefaultCaps})
	if err != nil {
		return nil, err
	}
	mine, err := c.qp.Info(1, 100)
	if err != nil {
		return nil, err
	}
	theirs, err := far.Info(1, 200)
	if err != nil {
		return nil, err
	}
	if err := c.qp.Connect(mine, theirs, verbs.DefaultConnect); err != nil {
		return nil, err
	}
	return c, far.Connect(theirs, mine, verbs.DefaultConnect)
}

// do posts one request and waits for its end.
func (c *client) do(ctx context.Context, wr verbs.SendWR) error {
	wr.Flags |= verbs.SendSignaled
	wr.RKey = c.rkey
	if err := c.qp.PostSend(&wr); err != nil {
		return err
	}
	if _, err := c.cq.Wait(ctx, c.wc[:]); err != nil {
		return err
	}
	return c.wc[0].Err()
}

var (
	errNoKey = errors.New("no such key")
	errFull  = errors.New("the table is full")
	errLong  = fmt.Errorf("a key has 1 to %d bytes and a value at most %d", keyMax, valueMax)
)

// slot is a slot as a client sees it.
type slot []byte

func (s slot) version() uint64 { return binary.LittleEndian.Uint64(s[versionAt:]) }
func (s slot) isWhole() bool {
	return s.version()%2 == 0 && s.version() == binary.LittleEndian.Uint64(s[againAt:])
}
func (s slot) isFree() bool       { return s[keyAt] == 0 }
func (s slot) has(k string) bool  { return text(s[keyAt:keyAt+keyMax]) == k }
func (s slot) value() string      { return text(s[valueAt : valueAt+valueMax]) }
func text(b []byte) string        { return string(bytes.TrimRight(b, "\x00")) }
func (c *client) at(i int) uint64 { return c.addr + uint64(i)*slotSize }

// read fetches a slot, again and again while somebody writes it.
func (c *client) read(ctx context.Context, i int) (slot, error) {
	for {
		err := c.do(ctx, verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: c.buf.SGEs(readAt, slotSize),
			RemoteAddr: c.at(i)})
		if err != nil {
			return nil, err
		}
		if s := slot(c.buf.Bytes()[readAt : readAt+slotSize]); s.isWhole() {
			return s, nil
		}
	}
}

// find walks from the key's own place to the slot that has it, or to the
// first free one.
func (c *client) find(ctx context.Context, key string) (int, slot, error) {
	if len(key) == 0 || len(key) > keyMax {
		return 0, nil, errLong
	}
	h := fnv.New32a()
	h.Write([]byte(key))
	for n := range slots {
		i := (int(h.Sum32()%slots) + n) % slots
		s, err := c.read(ctx, i)
		if err != nil {
			return 0, nil, err
		}
		if s.isFree() || s.has(key) {
			return i, s, nil
		}
	}
	return 0, nil, errFull
}

func (c *client) get(ctx context.Context, key string) (string, error) {
	_, s, err := c.find(ctx, key)
	if err != nil {
		return "", err
	}
	if s.isFree() {
		return "", errNoKey
	}
	return s.value(), nil
}

func (c *client) put(ctx context.Context, key, value string) error {
	return c.update(ctx, key, func(string) (string, error) { return value, nil })
}

// update replaces a value by what change makes of it, with nobody in between.
func (c *client) update(ctx context.Context, key string, change func(string) (string, error)) error {
	for {
		i, s, err := c.find(ctx, key)
		if err != nil {
			return err
		}
		old := s.version()
		value, err := change(s.value())
		if err != nil {
			return err
		}
		if len(value) > valueMax {
			return errLong
		}
		// Take the slot: its version is still what was read, and becomes odd. The
		// answer is what the adapter found there.
		err = c.do(ctx, verbs.SendWR{
			Opcode: verbs.WRAtomicCmpSwap, SGList: c.buf.SGEs(resultAt, 8), RemoteAddr: c.at(i) + versionAt,
			CompareAdd: old, Swap: old + 1,
		})
		if err != nil {
			return err
		}
		if binary.LittleEndian.Uint64(c.buf.Bytes()[resultAt:]) != old {
			continue // somebody else was faster
		}
		// The slot is ours. Key and value first, then the two versions: the requests
		// of one connection take effect in their order.
		out := c.buf.Bytes()[writeAt : writeAt+slotSize]
		clear(out)
		copy(out[keyAt:], key)
		copy(out[valueAt:], value)
		binary.LittleEndian.PutUint64(out[versionAt:], old+2)
		binary.LittleEndian.PutUint64(out[againAt:], old+2)
		for _, part := range [][2]int{{keyAt, againAt}, {againAt, slotSize}, {versionAt, keyAt}} {
			err := c.do(ctx, verbs.SendWR{
				Opcode: verbs.WRRDMAWrite, SGList: c.buf.SGEs(writeAt+part[0], part[1]-part[0]), RemoteAddr: c.at(i) +
					uint64(part[0]),
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// overreach reads beyond the table. The server's adapter refuses that, and the
// connection is over, as with real hardware.
func (c *client) overreach(ctx context.Context) error {
	err := c.do(ctx, verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: c.buf.SGEs(readAt, slotSize),
		RemoteAddr: c.at(slots)})
	if s, ok := errors.AsType[*verbs.StatusError](err); ok && s.Status == verbs.WCRemAccessErr {
		return nil
	}
	return fmt.Errorf("a read past the table's end: got %v, want %v", err, verbs.WCRemAccessErr)
}
