package endpoint

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/wire"
)

// Who sends. An adapter of silicon writes a packet's source itself: the address, the key and the GID are the port's,
// and a datagram's source queue pair is the one that sends. Here a process writes its packets, and what it writes is
// what it likes. Between processes of one user that is no loss, since they can write each other's memory as well. A
// ring between processes of two users is checked: the fabric says what its sender may be, and the receiver compares
// every packet with that. It lies in memory that only the fabric can write, so that what management has taken from the
// sender's port holds for the next packet, whether the sender knows of it or not.
//
// Payloads by reference and writing ahead are not for such rings: either end would need the other's memory.

// Origin is what the ports of one process may send.
type Origin struct {
	Block uint16 // of its queue pair numbers
	Ports []OriginPort
}

// OriginPort is the same of one port; one without an address sends nothing.
type OriginPort struct {
	LID  ib.LID
	LMC  uint8
	Keys []ib.PKey
	GIDs []ib.GID
}

// Sends reports whether a packet can be from there.
func (o *Origin) Sends(p *wire.Packet) bool {
	for i := range o.Ports {
		if o.Ports[i].Sends(o.Block, p) {
			return true
		}
	}
	return false
}

// Sends reports whether a packet can be from a process with a block of queue pair numbers at this port.
func (x *OriginPort) Sends(block uint16, p *wire.Packet) bool {
	switch {
	case x.LID == 0 || p.LRH.SLID>>x.LMC != x.LID>>x.LMC:
		return false
	case p.LRH.LNH < wire.LNHLocal:
		return true // raw: there is nothing else to say who sent it
	}
	return slices.Contains(x.Keys, p.BTH.PKey) &&
		(p.LRH.LNH != wire.LNHGlobal || slices.Contains(x.GIDs, p.GRH.SGID)) &&
		(p.BTH.Opcode.Info().Ext&wire.ExtDETH == 0 || uint16(p.DETH.SrcQP>>BlockBits) == block)
}

// originHead is an Origin in shared memory, with its ports behind it.
type originHead struct {
	seq   uint32 // odd while it is being written
	block uint16
	ports uint16
	_     [56]byte
}

type originPort struct {
	lid        ib.LID
	lmc        uint8
	_          uint8
	keys, gids uint16
	key        [hca.PartitionCap]ib.PKey
	gid        [hca.GUIDCap]ib.GID
}

// OriginBytes is the size of the memory for an adapter of so many ports.
func OriginBytes(ports int) int {
	n := int(unsafe.Sizeof(originHead{})) + ports*int(unsafe.Sizeof(originPort{}))
	return (n + PageBytes - 1) &^ (PageBytes - 1)
}

// SharedOrigin is an Origin that the fabric writes and others can only read.
type SharedOrigin struct {
	FD  int
	mem []byte
	is  Origin
}

// ShareOrigin makes one for an adapter of so many ports. The descriptor is as good as a copy of what it leads to:
// whoever has it can map it to read, and nobody can map it to write.
func ShareOrigin(ports int) (*SharedOrigin, error) {
	fd, mem, err := newMemory("origin", OriginBytes(ports), unix.F_SEAL_FUTURE_WRITE)
	if err != nil {
		return nil, err
	}
	return &SharedOrigin{FD: fd, mem: mem}, nil
}

// Close gives it back. Who has mapped it keeps what was last written.
func (s *SharedOrigin) Close() {
	Unmap(s.mem)
	unix.Close(s.FD)
}

// Set writes what holds from now on.
func (s *SharedOrigin) Set(o Origin) {
	if s.is.equal(o) {
		return
	}
	s.is = o
	h, ports := originAt(s.mem)
	seq := atomic.AddUint32(&h.seq, 1)
	h.block, h.ports = o.Block, uint16(min(len(o.Ports), len(ports)))
	for i := range ports[:h.ports] {
		x, p := &ports[i], &o.Ports[i]
		x.lid, x.lmc = p.LID, p.LMC
		x.keys, x.gids = uint16(copy(x.key[:], p.Keys)), uint16(copy(x.gid[:], p.GIDs))
	}
	atomic.StoreUint32(&h.seq, seq+1)
}

func (o *Origin) equal(x Origin) bool {
	return o.Block == x.Block && slices.EqualFunc(o.Ports, x.Ports, func(a, b OriginPort) bool {
		return a.LID == b.LID && a.LMC == b.LMC && slices.Equal(a.Keys, b.Keys) && slices.Equal(a.GIDs, b.GIDs)
	})
}

func originAt(mem []byte) (*originHead, []originPort) {
	base := unsafe.Pointer(unsafe.SliceData(mem))
	const head, each = unsafe.Sizeof(originHead{}), unsafe.Sizeof(originPort{})
	return (*originHead)(base), unsafe.Slice((*originPort)(unsafe.Add(base, head)), (uintptr(len(mem))-head)/each)
}

// OriginReader is a SharedOrigin as a receiver has it.
type OriginReader struct {
	mem []byte
	seq uint32 // of what it is; odd: that was not read yet
	is  Origin
}

// ReadOrigin maps what the fabric has shared, until nobody refers to the reader any more.
func ReadOrigin(fd int) (*OriginReader, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size < int64(OriginBytes(1)) || st.Size > int64(OriginBytes(255)) {
		return nil, fmt.Errorf("endpoint: what a sender may be, %d bytes: %w", st.Size, ErrMemory)
	}
	if err := checkMemory(fd, int(st.Size)); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("endpoint: what a sender may be: %w", err)
	}
	r := &OriginReader{mem: mem, seq: 1}
	runtime.AddCleanup(r, Unmap, mem)
	return r, nil
}

// Sends reports whether a packet can be from there as of now. While the fabric writes, nothing can.
func (r *OriginReader) Sends(p *wire.Packet) bool {
	h, ports := originAt(r.mem)
	seq := atomic.LoadUint32(&h.seq)
	if seq != r.seq {
		if r.seq = 1; seq&1 != 0 || !r.load(h, ports, seq) {
			return false
		}
	}
	return r.is.Sends(p)
}

// load copies what is there. It must not have changed meanwhile.
func (r *OriginReader) load(h *originHead, ports []originPort, seq uint32) bool {
	r.is = Origin{Block: h.block}
	for i := range ports[:min(int(h.ports), len(ports))] {
		x := &ports[i]
		r.is.Ports = append(r.is.Ports, OriginPort{x.lid, x.lmc, slices.Clone(x.key[:min(int(x.keys), len(x.key))]),
			slices.Clone(x.gid[:min(int(x.gids), len(x.gid))])})
	}
	if atomic.LoadUint32(&h.seq) != seq {
		return false
	}
	r.seq = seq
	return true
}
