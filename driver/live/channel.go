package live

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"softib/driver/endpoint"
	"softib/internal/descriptors"
	"softib/proto/ib"
)

// Channel is a ring from one process to another, or to or from the fabric itself, where the way is switched.
type Channel struct {
	ID uint32
	chanKey
	f     *Fabric
	from  *Process        // nil is the fabric
	fd    int             // its memory
	payer *Process        // on whose account that is
	own   *endpoint.Local // or that, if both ends are in this process
	inlet *inlet          // if the fabric receives
	head  []byte
	told  bool // the sender knows it
	given bool // the receiver knows it
	left  bool // it has ended, and only its memory is kept
	piped bool // it has pipes
	// pipes are the receiver's ends of them, which it has yet to be given; see Process.Pipes.
	pipes []int
}

// chanKey is what tells channels of a sender apart.
type chanKey struct {
	to   *Process   // nil is the fabric
	port ib.PortNum // of the receiver; of the sender if the fabric receives
	vl   ib.VL
}

// End is one end of a channel, as its process has to know it. The descriptors are copies, the caller's to close.
type End struct {
	// Ring is the channel's memory, Page that of who is at the other end.
	Ring, Page int
	// Port is, for the receiver, the port that the channel leads to.
	Port ib.PortNum
	// PID is the process at the other end, 0 if that is the fabric, and endpoint.OtherUser if it is another user's.
	PID int
	// Origin says, for the receiver, what a sender of another user may be; -1 where the sender is not checked.
	Origin int
}

// Close closes the descriptors.
func (e *End) Close() {
	for _, fd := range e.FDs() {
		unix.Close(fd)
	}
}

// FDs are the descriptors: the ring, the page, and the origin if there is one.
func (e *End) FDs() []int {
	if e.Origin < 0 {
		return []int{e.Ring, e.Page}
	}
	return []int{e.Ring, e.Page, e.Origin}
}

// isWalled reports whether the ends are different users'.
func (c *Channel) isWalled() bool { return c.from != nil && c.to != nil && c.from.UID != c.to.UID }

// pid is by which number one end knows the process at the other.
func (c *Channel) pid(other *Process) int {
	if c.isWalled() {
		return endpoint.OtherUser
	}
	return other.PID
}

// Sender is the end that sends; false if the channel is no more.
func (c *Channel) Sender() (End, bool) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	return c.end(c.to)
}

// Receiver is the end that receives. It is there once also for a channel whose sender has ended meanwhile: what that
// has sent is on its way.
func (c *Channel) Receiver() (End, bool) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	e, ok := c.end(c.from)
	if ok && c.isWalled() {
		var err error
		if e.Origin, err = c.from.dupOrigin(); err != nil {
			e.Close()
			e, ok = End{}, false
		}
	}
	c.given = true
	c.bury()
	return e, ok
}

func dup(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) }

// end is one end of a channel, whose other end is at another process. The fabric's lock is held.
func (c *Channel) end(other *Process) (e End, ok bool) {
	e = End{Port: c.port, Ring: -1, Page: -1, Origin: -1}
	var page int
	switch {
	case c.left:
		page = c.to.FDs[0] // the sender's page is no more, and nobody there needs to be woken
	case c.head == nil:
		return End{}, false
	case other == nil:
		page = c.f.plane.pageFD // nobody reads or writes the fabric's own memory
	default:
		page, e.PID = other.FDs[0], c.pid(other)
	}
	var err error
	if e.Ring, err = dup(c.fd); err != nil {
		return End{}, false
	}
	if e.Page, err = dup(page); err != nil {
		unix.Close(e.Ring)
		return End{}, false
	}
	return e, true
}

// out is the sending end for a program in this process. The fabric's lock is not held.
func (c *Channel) out() (*endpoint.Out, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if c.head == nil {
		return nil, ErrClosed
	}
	ring, page, pid, err := c.ends(c.to)
	if err != nil {
		return nil, err
	}
	return endpoint.NewLocalOut(ring, page, pid)
}

// in is the receiving end. The fabric's lock is held.
func (c *Channel) in() (*endpoint.In, error) {
	from := c.from
	if c.left {
		from = c.to // nobody there needs to be woken
	}
	ring, page, pid, err := c.ends(from)
	c.given = true
	c.bury()
	if err != nil {
		return nil, err
	}
	in, err := endpoint.NewLocalIn(ring, page, pid, c.port)
	if err == nil && c.isWalled() {
		err = c.from.check(in)
	}
	return in, err
}

// ends is the channel's memory for an end in this process, and who is at the other one.
func (c *Channel) ends(other *Process) (ring *endpoint.Local, page *endpoint.Page, pid int, err error) {
	ring = c.own
	if ring == nil {
		if ring, err = endpoint.MapLocal(c.fd, endpoint.RingBytes); err != nil {
			return nil, nil, 0, err
		}
	}
	if other == nil {
		page = c.f.plane.page
	} else if page, pid = other.share.Page, c.pid(other); !other.isLocal() {
		page, err = endpoint.MapPage(other.FDs[0])
	}
	if page == nil && err == nil {
		err = ErrClosed
	}
	return ring, page, pid, err
}

// channel is the ring to a process, made when first needed.
func (p *Process) channel(k chanKey) (*Channel, error) {
	if c := p.out[k]; c != nil {
		return c, nil
	}
	c, err := p.f.newChannel(p, k)
	if err != nil {
		return nil, err
	}
	if k.to != nil {
		c.announce()
	} else if err := p.f.plane.addInlet(c, p.host.ports[k.port]); err != nil {
		c.close()
		return nil, err
	}
	p.out[k] = c
	return c, nil
}

// announce tells the receiver.
func (c *Channel) announce() {
	c.to.in = append(c.to.in, c)
	c.to.tell(Note{Incoming: c})
}

func (f *Fabric) newChannel(from *Process, k chanKey) (*Channel, error) {
	c := &Channel{f: f, from: from, chanKey: k, fd: -1}
	var err error
	if (from == nil || from.isLocal()) && (k.to == nil || k.to.isLocal()) {
		if c.own, err = endpoint.NewLocalRing(); err == nil {
			c.head = c.own.Mem
		}
	} else if err = errors.Join(from.openDoor(), k.to.openDoor()); err == nil {
		if c.isWalled() {
			err = from.shareOrigin()
		}
		if err == nil {
			err = c.allocate()
		}
	}
	if err != nil {
		return nil, err
	}
	f.channels++
	c.ID = f.channels
	return c, nil
}

// allocate makes memory for two processes, on the account of who sends, or of who receives from this process.
func (c *Channel) allocate() (err error) {
	payer := c.from
	if payer == nil || payer.isLocal() {
		payer = c.to
	}
	if err := c.charge(payer); err != nil {
		return fmt.Errorf("live: %w", err)
	}
	if c.fd, c.head, err = endpoint.NewMemory("ring", endpoint.RingBytes); err != nil {
		c.repay()
	}
	return err
}

// charge puts the channel's descriptor on a process's account. What is in this process has none.
func (c *Channel) charge(p *Process) error {
	c.repay()
	if p == nil || p.isLocal() {
		return nil
	}
	if err := descriptors.Programs.Take(p.holder(), 1); err != nil {
		return err
	}
	c.payer = p
	return nil
}

// repay is for a descriptor that is closed.
func (c *Channel) repay() {
	if c.payer != nil {
		descriptors.Programs.Give(c.payer.holder(), 1)
		c.payer = nil
	}
}

// holder is whose descriptors those of a process are.
func (p *Process) holder() descriptors.Holder { return descriptors.Holder{PID: p.PID, UID: p.UID} }

// pipedMax bounds for how many of its rings a process has pipes: they are descriptors of the process, and Linux counts
// what pipes could hold against the user (fs.pipe-user-pages-soft).
const pipedMax = 32

// Pipes makes pipes for one of the process's rings, whose receiver cannot read its memory, and tells the receiver. The
// descriptors are the caller's, for the process; there are none if it can have none. Programs of different users get
// none: what is not in a ring is not checked.
func (p *Process) Pipes(id uint32) []int {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	var c *Channel
	for _, o := range p.out {
		if o.ID == id {
			c = o
		}
	}
	if c == nil || c.head == nil || c.piped || c.to == nil || c.to.isLocal() || c.isWalled() ||
		max(p.piped, c.to.piped) >= pipedMax {
		return nil
	}
	fds, err := endpoint.MakePipes()
	if err != nil {
		return nil // the user may have no more of them; payloads are copied
	}
	if c.pipes, err = c.keepPipes(fds[:endpoint.PipeFDs/2]); err != nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil
	}
	c.piped = true
	p.piped++
	c.to.piped++
	c.to.tell(Note{Piped: c})
	return fds
}

// keepPipes copies descriptors for the receiver, on the account of the sender.
func (c *Channel) keepPipes(fds []int) (kept []int, err error) {
	if err := descriptors.Programs.Take(c.from.holder(), len(fds)); err != nil {
		return nil, err
	}
	for i, fd := range fds {
		n, err := dup(fd)
		if err != nil {
			for _, fd := range kept {
				unix.Close(fd)
			}
			descriptors.Programs.Give(c.from.holder(), len(fds))
			return nil, fmt.Errorf("live: pipe %d: %w", i, err)
		}
		kept = append(kept, n)
	}
	return kept, nil
}

// TakePipes are the receiver's ends of the channel's pipes, the caller's to close, once.
func (c *Channel) TakePipes() []int {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	fds := c.pipes
	c.forgetPipes()
	return fds
}

// forgetPipes is for descriptors that are somebody else's now, or closed.
func (c *Channel) forgetPipes() {
	if c.pipes != nil {
		descriptors.Programs.Give(c.from.holder(), len(c.pipes))
		c.pipes = nil
	}
}

// close gives back what the fabric holds of a channel.
func (c *Channel) close() {
	endpoint.Revoke(c.head)
	for _, fd := range c.pipes {
		unix.Close(fd)
	}
	c.forgetPipes()
	for _, p := range [...]*Process{c.from, c.to} {
		if p != nil {
			p.share.Page.Knock()
		} else {
			c.f.plane.knock()
		}
	}
	if c.own == nil {
		endpoint.Unmap(c.head)
	}
	c.head = nil
	c.left = true
	if c.given || c.to == nil || c.to.ended {
		c.bury()
	} else {
		c.to.keep(c)
	}
}

// keptMax bounds the channels that are kept for a process that has not heard of them before their senders ended. One
// that is stopped hears of none, and senders come and go.
const keptMax = 64

// keep keeps what is left of a channel for its receiver, on whose account it is from now on. The oldest goes if there
// are too many, and this one if the receiver may have no more: what they bring is lost, as in an adapter whose program
// does not look. The fabric's lock is held.
func (p *Process) keep(c *Channel) {
	if p.isLocal() {
		return // it is about to hear
	}
	p.kept = append(p.kept, c)
	if c.charge(p) != nil {
		p.giveUp(c)
	}
	if len(p.kept) > keptMax {
		p.giveUp(p.kept[0])
	}
}

// giveUp keeps a channel no more, and tells the process nothing of it.
func (p *Process) giveUp(c *Channel) {
	c.bury()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notes = slices.DeleteFunc(p.notes, func(n Note) bool { return n.Incoming == c || n.Gone == c })
}

// bury closes what was kept of a channel for its receiver, who has not heard of it before its sender ended.
func (c *Channel) bury() {
	if c.left {
		c.left = false
		if c.to != nil {
			c.to.kept = without(c.to.kept, c)
		}
		if c.own == nil {
			unix.Close(c.fd)
			c.repay()
		}
	}
}

// openDoor makes the page by which other processes wake a program of this one. They cannot wake a goroutine, so that a
// thread waits for them. The fabric's lock is held.
func (p *Process) openDoor() error {
	if p == nil || !p.isLocal() || p.door != nil {
		return nil
	}
	fd, door, err := newSharedPage()
	if err == nil {
		p.FDs, p.door = []int{fd}, door
		go p.attendDoor()
	}
	return err
}

// attendDoor passes on what wakes the page of other processes.
func (p *Process) attendDoor() {
	for p.door.Rest(); !p.leaving.Load(); p.door.Rest() {
		p.share.Page.Knock() // somebody may have come before it was said that nobody looks
		p.door.Wait(dozeTime)
		if !p.door.Attended() {
			p.share.Page.Knock() // or have been seen too late; see endpoint.Page.Wait
			p.door.Wait(ib.Never)
		}
	}
}

// newSharedPage makes a page that other processes can be handed. It stays as long as somebody here refers to it.
func newSharedPage() (fd int, p *endpoint.Page, err error) {
	fd, mem, err := endpoint.NewMemory("page", endpoint.PageBytes)
	if err != nil {
		return -1, nil, err
	}
	endpoint.Unmap(mem)
	if p, err = endpoint.MapPage(fd); err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	return fd, p, nil
}
