package rdmacm

import (
	"errors"
	"net"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"softib/proto/ib"
)

// event is one record for the program, and whom it is about.
type event struct {
	seq   uint32
	about *ident      // of a connection request: the listener
	group *membership // of the events of multicast groups
	fresh *ident      // of a connection request: the new ID
	rec   [eventSize]byte
}

// Places in struct rdma_ucm_event_resp.
const (
	evUID      = 0
	evID       = 8
	evEvent    = 12
	evStatus   = 16
	evParam    = 20
	evReserved = 324 // carries the event's number here, so that what is taken back is known again
	evECE      = 328
)

// channel is a program's event channel: its IDs, and the events that it has not read yet. All is guarded by the host's
// lock.
type channel struct {
	number uint64
	host   *host
	ports  []ib.PortNum  // of the host's, those that the program sees: all if nil
	conn   *net.UnixConn // commands

	ids    map[uint32]*ident
	groups map[uint32]*membership

	events *net.UnixConn   // nil until the program has connected it
	raw    syscall.RawConn // of events
	farEnd int             // the program's end of events, -1 if there is none
	queue  []*event        // not written yet
	sent   []*event        // written; the first of them may have been read
	seq    uint32
	waits  bool // a goroutine waits for room in the socket
	ended  bool
}

func newChannel(h *host, ports []ib.PortNum, number uint64, conn *net.UnixConn) *channel {
	return &channel{number: number, host: h, ports: ports, conn: conn, ids: map[uint32]*ident{},
		groups: map[uint32]*membership{}, farEnd: -1}
}

// adapter is what the program sees of the host's, as it is now.
func (c *channel) adapter() (Adapter, error) {
	a, err := c.host.adapter()
	return a.seen(c.ports), err
}

// sees reports whether the program sees a port.
func (c *channel) sees(n ib.PortNum) bool { return c.ports == nil || slices.Contains(c.ports, n) }

// meets reports whether two programs see a port that is the same.
func (c *channel) meets(o *channel) bool {
	return c.ports == nil || o.ports == nil || slices.ContainsFunc(c.ports, o.sees)
}

// attach gives the channel its event connection, and takes over the program's end of it.
func (c *channel) attach(conn *net.UnixConn, farEnd int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	c.events, c.raw, c.farEnd = conn, raw, farEnd
	c.flush()
	return nil
}

// detach ends what attach began.
func (c *channel) detach() {
	if c.farEnd >= 0 {
		syscall.Close(c.farEnd)
		c.farEnd = -1
	}
	if c.events != nil {
		c.events.Close()
	}
}

// push queues an event and writes what it can.
func (c *channel) push(e *event) {
	if c.ended {
		return
	}
	c.seq++
	e.seq = c.seq
	native.PutUint32(e.rec[evReserved:], e.seq)
	c.queue = append(c.queue, e)
	c.flush()
}

// sentMax is how many written events are remembered before it is looked up how many of them were read.
const sentMax = 64

// flush writes events until the socket is full. The kernel bounds how many records wait in one, so most of a long queue
// stays here.
func (c *channel) flush() {
	for len(c.queue) > 0 && c.raw != nil && !c.ended {
		var err error
		if cerr := c.raw.Control(func(fd uintptr) {
			err = unix.Send(int(fd), c.queue[0].rec[:], unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		}); cerr != nil {
			return
		}
		switch {
		case err == nil:
			c.sent = append(c.sent, c.queue[0])
			c.queue = c.queue[1:]
			if len(c.sent) > sentMax {
				c.settle()
			}
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			if !c.waits {
				c.waits = true
				go c.flushLater()
			}
			return
		default:
			return // the program has closed it; its commands will end too
		}
	}
}

// flushLater waits for room in the socket.
func (c *channel) flushLater() {
	_ = c.raw.Write(func(uintptr) bool {
		c.host.mu.Lock()
		defer c.host.mu.Unlock()
		c.waits = true // so that flush starts no second one
		c.flush()
		done := len(c.queue) == 0 || c.ended
		c.waits = !done
		return done
	})
}

// settle finds out which of the written events were read.
func (c *channel) settle() {
	if c.farEnd < 0 {
		return
	}
	n, err := unix.IoctlGetInt(c.farEnd, unix.TIOCINQ)
	if err != nil {
		return
	}
	c.read(len(c.sent) - n/eventSize)
}

// read notes that the program has read the first n events.
func (c *channel) read(n int) {
	for ; n > 0; n-- {
		e := c.sent[0]
		c.sent = c.sent[1:]
		e.wasRead()
	}
}

// wasRead counts an event for whom it is about, as the library will count it when it is acknowledged.
func (e *event) wasRead() {
	e.about.reported++
	if e.fresh != nil {
		e.about.unread--
	}
	if e.group != nil {
		e.group.reported++
	}
}

// takeBack makes unread events unwritten again. What the program reads at the same moment is read.
func (c *channel) takeBack() {
	if c.farEnd < 0 || len(c.sent) == 0 {
		return
	}
	var back []*event
	var buf [eventSize]byte
	for {
		n, _, err := unix.Recvfrom(c.farEnd, buf[:], unix.MSG_DONTWAIT)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			break
		}
		seq := native.Uint32(buf[evReserved:])
		if i := slices.IndexFunc(c.sent, func(e *event) bool { return e.seq == seq }); n == eventSize && i >= 0 {
			back = append(back, c.sent[i])
			c.sent = slices.Delete(c.sent, i, i+1)
		}
	}
	c.read(len(c.sent))
	c.queue = append(back, c.queue...)
}

// withdraw takes all events out of the queue that the caller wants, in order. Written ones that were not read are among
// them.
func (c *channel) withdraw(mine func(*event) bool) (out []*event) {
	if len(c.sent) == 0 && !slices.ContainsFunc(c.queue, mine) {
		return nil
	}
	if slices.ContainsFunc(c.sent, mine) {
		c.takeBack()
	}
	kept := c.queue[:0:0]
	for _, e := range c.queue {
		if mine(e) {
			out = append(out, e)
		} else {
			kept = append(kept, e)
		}
	}
	c.queue = kept
	c.flush()
	return out
}
