package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"syscall"
	"time"
)

var (
	// ErrDamaged is a file that is not as bbolt leaves it.
	ErrDamaged = errors.New("it is damaged")
	// ErrVersion is a file in a format that this package does not know.
	ErrVersion = errors.New("it is of another version of bbolt's format")
	// ErrLocked is a file that another has open.
	ErrLocked = errors.New("it is open elsewhere")
)

// Found is what the first pages of a file say.
type Found struct {
	// TxID is the newest transaction that can be found.
	TxID uint64
	// Both first pages are whole. If one is not it may have been the newer one.
	Both bool
}

// Check looks at a file: at its first pages, at whether all of it is there, and at the list of free pages; if it is to
// be deep also at every page that is in use, for which it reads all of them. A file that somebody has open is waited
// for as long as patience has it. A file without a byte is an error too: bbolt takes it for a new one.
func Check(path string, patience time.Duration, deep bool) (Found, error) {
	r, err := os.Open(path)
	if err != nil {
		return Found{}, err
	}
	defer r.Close() // and the lock with it
	if err := share(r, patience); err != nil {
		return Found{}, err
	}
	info, err := r.Stat()
	if err != nil {
		return Found{}, err
	}
	c := checker{r: r, size: info.Size()}
	found, err := c.first()
	if err == nil {
		err = c.free()
	}
	if err == nil && deep {
		err = c.all()
	}
	return found, err
}

// share takes the lock that bbolt takes, so that nobody writes meanwhile.
func share(f *os.File, patience time.Duration) error {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return os.NewSyscallError("flock", err)
		case !time.Now().Before(end):
			return ErrLocked
		}
	}
}

func damaged(format string, v ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, v...))
}

// What pages are, by their flags, and where things are in them.
const (
	branchPage   = 1
	leafPage     = 2
	freelistPage = 16

	headLen    = 16 // id 8, flags 2, count 2, how many pages follow that belong to it 4
	elementLen = 16 // leaf: flags 4, position 4, key 4, value 4; branch: position 4, key 4, page 8
	bucketLen  = 16 // root 8, sequence 8
	metaLen    = 64

	magic      = 0xED0CDAED
	version    = 2
	noFreelist = ^uint64(0)

	// bbolt looks for its second page at these places
	pageSizeMin, pageSizeMax = 1 << 10, 1 << 24
)

var order = binary.NativeEndian

// meta is one of the two first pages.
type meta struct {
	pageSize             int64
	root, freelist, high uint64
	txid                 uint64
}

// checker looks at one file.
type checker struct {
	r    io.ReaderAt
	size int64
	meta
	used []bool // by page
}

// readMeta reads a first page.
func (c *checker) readMeta(at int64) (m meta, err error) {
	b := make([]byte, headLen+metaLen)
	if _, err := c.r.ReadAt(b, at); err != nil {
		return m, damaged("its first pages are not there (%d bytes): %v", c.size, err)
	}
	b = b[headLen:] // at which bbolt does not look here
	sum := fnv.New64a()
	_, _ = sum.Write(b[:56])
	switch {
	case order.Uint32(b) != magic, order.Uint64(b[56:]) != sum.Sum64():
		return m, damaged("its first pages are none of bbolt's")
	case order.Uint32(b[4:]) != version:
		return m, fmt.Errorf("%w: %d", ErrVersion, order.Uint32(b[4:]))
	}
	m = meta{int64(order.Uint32(b[8:])), order.Uint64(b[16:]), order.Uint64(b[32:]), order.Uint64(b[40:]),
		order.Uint64(b[48:])}
	if m.pageSize < pageSizeMin || m.pageSize > pageSizeMax || m.pageSize&(m.pageSize-1) != 0 {
		return m, damaged("its pages have %d bytes", m.pageSize)
	}
	return m, nil
}

// first reads both first pages, and chooses as bbolt does.
func (c *checker) first() (Found, error) {
	a, errA := c.readMeta(0)
	b, errB := a, errA
	for at := int64(pageSizeMin); at <= pageSizeMax && at < c.size; at *= 2 {
		if errA == nil {
			at = a.pageSize
		}
		if b, errB = c.readMeta(at); errA == nil || errB == nil && b.pageSize == at {
			break
		}
		if errB == nil {
			errB = damaged("its second page is not where it should be")
		}
	}
	if errA != nil && errB != nil {
		return Found{}, errA
	}
	if c.meta = a; errA != nil || errB == nil && b.txid > a.txid {
		c.meta = b
	}
	if c.high < 2 || c.high > uint64(c.size/c.pageSize) {
		return Found{}, damaged("%d bytes of %d pages are there", c.size, c.high)
	}
	c.used = make([]bool, c.high)
	return Found{TxID: c.txid, Both: errA == nil && errB == nil}, nil
}

// take notes that a page is used, and refuses one that is none, or that was used before.
func (c *checker) take(id, n uint64) error {
	if id < 2 || id >= c.high || n > c.high-id {
		return damaged("page %d and %d behind it are not all there", id, n-1)
	}
	for i := id; i < id+n; i++ {
		if c.used[i] {
			return damaged("page %d is used twice", i)
		}
		c.used[i] = true
	}
	return nil
}

// page reads a page with those that belong to it.
func (c *checker) page(id uint64) (b []byte, flags uint16, count int, err error) {
	head := make([]byte, headLen)
	if id >= c.high {
		return nil, 0, 0, damaged("there is no page %d", id)
	}
	if _, err = c.r.ReadAt(head, int64(id)*c.pageSize); err != nil {
		return nil, 0, 0, damaged("page %d: %v", id, err)
	}
	if is := order.Uint64(head); is != id {
		return nil, 0, 0, damaged("page %d says that it is %d", id, is)
	}
	n := 1 + uint64(order.Uint32(head[12:]))
	if err := c.take(id, n); err != nil {
		return nil, 0, 0, err
	}
	b = make([]byte, int64(n)*c.pageSize)
	if _, err = c.r.ReadAt(b, int64(id)*c.pageSize); err != nil {
		return nil, 0, 0, damaged("page %d: %v", id, err)
	}
	return b, order.Uint16(head[8:]), int(order.Uint16(head[10:])), nil
}

// free reads the list of free pages. bbolt takes pages from it to write to, so a wrong one costs what is there.
func (c *checker) free() error {
	if c.freelist == noFreelist {
		return damaged("it has no list of free pages")
	}
	b, flags, count, err := c.page(c.freelist)
	if err != nil {
		return err
	}
	if flags != freelistPage {
		return damaged("page %d should have the free pages", c.freelist)
	}
	ids, n := b[headLen:], uint64(count)
	if count == 0xffff {
		n, ids = order.Uint64(ids), ids[8:]
	}
	if n > uint64(len(ids)/8) {
		return damaged("%d pages are free: there is no room for so many", n)
	}
	for i := range n {
		if err := c.take(order.Uint64(ids[8*i:]), 1); err != nil {
			return err
		}
	}
	return nil
}

// all follows every page, and wants each to be in use once or free.
func (c *checker) all() error {
	if err := c.tree(c.root, nil, nil); err != nil {
		return err
	}
	for id := uint64(2); id < c.high; id++ {
		if !c.used[id] {
			return damaged("page %d is neither used nor free", id)
		}
	}
	return nil
}

// tree follows a page whose keys are to lie from low up to, and without, high.
func (c *checker) tree(id uint64, low, high []byte) error {
	b, flags, count, err := c.page(id)
	if err != nil {
		return err
	}
	where := fmt.Sprintf("page %d", id)
	switch flags {
	case leafPage:
		return c.leaf(where, b, count, low, high, false)
	case branchPage:
	default:
		return damaged("%s is of kind %#x", where, flags)
	}
	if count == 0 {
		return damaged("%s leads nowhere", where)
	}
	keys, children := make([][]byte, count), make([]uint64, count)
	for i := range count {
		at := headLen + elementLen*i
		if at+elementLen > len(b) {
			return damaged("%s has no room for %d keys", where, count)
		}
		keys[i], err = part(b, at, order.Uint32(b[at:]), order.Uint32(b[at+4:]))
		if children[i] = order.Uint64(b[at+8:]); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
	}
	if err := inOrder(where, keys, low, high); err != nil {
		return err
	}
	for i, child := range children {
		end := high
		if i+1 < count {
			end = keys[i+1]
		}
		if err := c.tree(child, keys[i], end); err != nil {
			return err
		}
	}
	return nil
}

// leaf looks at a page with values. One within a value of another page has no pages behind it.
func (c *checker) leaf(where string, b []byte, count int, low, high []byte, within bool) error {
	keys := make([][]byte, count)
	for i := range count {
		at := headLen + elementLen*i
		if at+elementLen > len(b) {
			return damaged("%s has no room for %d keys", where, count)
		}
		flags, pos := order.Uint32(b[at:]), order.Uint32(b[at+4:])
		k, v := order.Uint32(b[at+8:]), order.Uint32(b[at+12:])
		both, err := part(b, at, pos, k+v)
		if err != nil || k > k+v {
			return damaged("%s: a key of %d bytes and a value of %d at %d are not in it", where, k, v, pos)
		}
		keys[i] = both[:k]
		switch {
		case flags == 0:
			continue
		case flags != 1 || within || v < bucketLen:
			return damaged("%s: a value is of kind %#x", where, flags)
		}
		bucket := both[k:]
		if root := order.Uint64(bucket); root != 0 {
			err = c.tree(root, nil, nil)
		} else {
			err = c.inline(where, bucket[bucketLen:])
		}
		if err != nil {
			return err
		}
	}
	return inOrder(where, keys, low, high)
}

// inline looks at a bucket that is so small that it lies in a value.
func (c *checker) inline(where string, b []byte) error {
	where = "a bucket in " + where
	if len(b) < headLen {
		return damaged("%s is cut short", where)
	}
	if flags := order.Uint16(b[8:]); flags != leafPage {
		return damaged("%s is of kind %#x", where, flags)
	}
	return c.leaf(where, b, int(order.Uint16(b[10:])), nil, nil, true)
}

// part is n bytes of b at a position that counts from another one.
func part(b []byte, from int, pos, n uint32) ([]byte, error) {
	start := int64(from) + int64(pos)
	end := start + int64(n)
	if end > int64(len(b)) {
		return nil, damaged("%d bytes at %d are not in it", n, start)
	}
	return b[start:end], nil
}

// inOrder wants keys that grow, from low up to, and without, high.
func inOrder(where string, keys [][]byte, low, high []byte) error {
	for i, k := range keys {
		if i > 0 && bytes.Compare(keys[i-1], k) >= 0 || i == 0 && bytes.Compare(low, k) > 0 ||
			high != nil && bytes.Compare(k, high) >= 0 {
			return damaged("%s: its keys are not in order", where)
		}
	}
	return nil
}
