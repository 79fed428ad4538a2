package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"softib/internal/boltfile"
	"softib/proto/ib"
)

// The file is a bbolt database:
//
//	about/version        the format's
//	ports/GUID port      a port's number
//	pending/key          chunks of minutes that no chunk of tens has yet
//	raw, minute, ten     chunks, each a bucket under its key:
//	    m                what the chunk is (appendMeta)
//	    b number         a block of ports (appendBlock)
//	    s name           a series without a port (appendScalars)
//
// A chunk is written in one transaction with all that follows from it, so it is there as a whole or not at all.
var (
	bucketAbout   = []byte("about")
	bucketPorts   = []byte("ports")
	bucketPending = []byte("pending")
	keyVersion    = []byte("version")
	keyMeta       = []byte("m")
)

// fileVersion goes up when older code could not read the file any more.
const fileVersion = 1

// lockWait is how long another process may take to let go of the file.
const lockWait = 2 * time.Second

// guard runs what touches the file. The file is mapped into memory: where it was cut short or damaged, a look at it
// faults or runs into one of bbolt's assertions, which is an error here and must not end the process.
func (s *Store) guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w (%v)", ErrCorrupt, p)
		}
	}()
	return do()
}

// openFile opens the database and learns what is in it.
func (s *Store) openFile() error {
	o := &bolt.Options{Timeout: lockWait, FreelistType: bolt.FreelistMapType}
	if s.path == "" {
		// A file without a disk: one way to keep things, tested once.
		o.NoSync = true
		o.OpenFile = func(string, int, os.FileMode) (*os.File, error) {
			fd, err := unix.MemfdCreate("softib-history", unix.MFD_CLOEXEC)
			if err != nil {
				return nil, os.NewSyscallError("memfd_create", err)
			}
			return os.NewFile(uintptr(fd), "softib-history"), nil
		}
	} else if err := s.check(); err != nil {
		return err
	}
	err := s.guard(func() (err error) {
		if s.db, err = bolt.Open(s.name(), 0o600, o); err != nil {
			return fileTrouble(err)
		}
		s.pageSize = int64(s.db.Info().PageSize) // now, because to ask is not safe while somebody writes
		// A file that has all of it is not written to before it is known that it can be read.
		begun := false
		if err = s.db.View(func(tx *bolt.Tx) error { begun = hasAll(tx); return nil }); err != nil {
			return err
		}
		if !begun {
			if err = s.db.Update(s.begin); err != nil {
				return err
			}
		}
		return s.db.View(s.learn)
	})
	if err != nil && s.db != nil {
		db := s.db
		err = errors.Join(err, s.guard(db.Close))
	}
	return err
}

// fileTrouble says what an error of bbolt's means here.
func fileTrouble(err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return ErrInUse
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum),
		errors.Is(err, bolterrors.ErrInvalidMapping):
		return fmt.Errorf("%w (%v)", ErrCorrupt, err)
	case errors.Is(err, bolterrors.ErrVersionMismatch):
		return fmt.Errorf("%w (%v)", ErrNewer, err)
	}
	return err
}

// check refuses a file that is damaged where bbolt would believe it, before bbolt takes it and writes to it: one that
// was cut short, or whose list of free pages is wrong. Pages with history are looked at when they are asked for, as
// there may be gigabytes of them.
func (s *Store) check() error {
	info, err := os.Stat(s.path)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = boltfile.Check(s.path, lockWait, false)
	switch {
	case errors.Is(err, boltfile.ErrLocked):
		return ErrInUse
	case errors.Is(err, boltfile.ErrDamaged):
		return fmt.Errorf("%w (%v)", ErrCorrupt, err)
	case errors.Is(err, boltfile.ErrVersion):
		return fmt.Errorf("%w (%v)", ErrNewer, err)
	}
	return err
}

// hasAll says whether a file has what every file has.
func hasAll(tx *bolt.Tx) bool {
	for t := range tiers {
		if tx.Bucket([]byte(tiers[t].name)) == nil {
			return false
		}
	}
	return tx.Bucket(bucketAbout) != nil && tx.Bucket(bucketPorts) != nil && tx.Bucket(bucketPending) != nil
}

// checkVersion refuses a file that this version cannot read.
func checkVersion(about *bolt.Bucket) error {
	if v := about.Get(keyVersion); len(v) != 1 || v[0] == 0 {
		return fmt.Errorf("%w (it has no version)", ErrCorrupt)
	} else if v[0] > fileVersion {
		return fmt.Errorf("%w (%d, and this is %d)", ErrNewer, v[0], fileVersion)
	}
	return nil
}

// begin makes what every file has.
func (s *Store) begin(tx *bolt.Tx) error {
	about := tx.Bucket(bucketAbout)
	if about == nil {
		// A database that has other things in it is somebody else's.
		if k, _ := tx.Cursor().First(); k != nil {
			return fmt.Errorf("%w (it is another program's database)", ErrCorrupt)
		}
		var err error
		if about, err = tx.CreateBucket(bucketAbout); err != nil {
			return err
		}
		if err = about.Put(keyVersion, []byte{fileVersion}); err != nil {
			return err
		}
	}
	if err := checkVersion(about); err != nil {
		return err
	}
	for _, name := range [][]byte{bucketPorts, bucketPending} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	for t := range tiers {
		if _, err := tx.CreateBucketIfNotExists([]byte(tiers[t].name)); err != nil {
			return err
		}
	}
	return nil
}

// learn reads which ports and chunks there are.
func (s *Store) learn(tx *bolt.Tx) error {
	if err := checkVersion(tx.Bucket(bucketAbout)); err != nil {
		return err
	}
	ports := tx.Bucket(bucketPorts)
	n := 0
	if err := ports.ForEach(func(k, v []byte) error { n++; return nil }); err != nil {
		return err
	}
	s.keys = make([]PortKey, n)
	seen := make([]bool, n)
	err := ports.ForEach(func(k, v []byte) error {
		if len(k) != 9 || len(v) != 4 {
			return damage("ports", uint64(len(k)), "bytes name no port")
		}
		id := binary.BigEndian.Uint32(v)
		if int(id) >= n || seen[id] {
			return damage("ports", uint64(id), "is no number of a port, or two have it")
		}
		seen[id] = true
		s.keys[id] = PortKey{ib.GUID(binary.BigEndian.Uint64(k)), ib.PortNum(k[8])}
		s.ids[s.keys[id]] = id
		return nil
	})
	if err != nil {
		return err
	}
	var set *portSet
	for t := range tiers {
		err := tx.Bucket([]byte(tiers[t].name)).ForEachBucket(func(k []byte) error {
			if len(k) != 8 {
				return damage("chunk", uint64(len(k)), "bytes are no key")
			}
			c, err := readMeta(tx.Bucket([]byte(tiers[t].name)).Bucket(k).Get(keyMeta))
			if err != nil {
				return err
			}
			// Chunks of the same ports share their set.
			if set != nil && set.equal(c.set) {
				c.set = set
			}
			set = c.set
			c.tier, c.key = t, chunkKey(k)
			s.chunks[t] = append(s.chunks[t], c)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return tx.Bucket(bucketPending).ForEach(func(k, v []byte) error {
		if len(k) != 8 {
			return damage("pending", uint64(len(k)), "bytes are no key")
		}
		s.pending[chunkKey(k)] = true
		return nil
	})
}

// Keys are in the order of time, before 1970 too.
func chunkKey(k []byte) int64 { return int64(binary.BigEndian.Uint64(k) ^ 1<<63) }

func keyBytes(key int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(key)^1<<63) }

func blockKey(no uint32) []byte { return binary.BigEndian.AppendUint32([]byte{'b'}, no) }

func scalarKey(name string) []byte { return append([]byte{'s'}, name...) }

// saveKeys writes the numbers of ports from one on.
func (s *Store) saveKeys(from int) error {
	return s.guard(func() error {
		return s.db.Update(func(tx *bolt.Tx) error {
			b := tx.Bucket(bucketPorts)
			for id := from; id < len(s.keys); id++ {
				k := binary.BigEndian.AppendUint64(nil, uint64(s.keys[id].Node))
				k = append(k, byte(s.keys[id].Port))
				if err := b.Put(k, binary.BigEndian.AppendUint32(nil, uint32(id))); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// chunkWriter writes one chunk within a transaction.
type chunkWriter struct {
	c *chunk
	b *bolt.Bucket
}

// newChunk begins a chunk whose key is its first millisecond, or the next that is free.
func newChunk(tx *bolt.Tx, c *chunk) (*chunkWriter, error) {
	tier := tx.Bucket([]byte(tiers[c.tier].name))
	for c.key = c.from; tier.Bucket(keyBytes(c.key)) != nil; c.key++ {
	}
	b, err := tier.CreateBucket(keyBytes(c.key))
	if err != nil {
		return nil, err
	}
	// Records come in the order of their keys and are never added to later.
	b.FillPercent = 1
	return &chunkWriter{c, b}, nil
}

func (w *chunkWriter) put(key, rec []byte) error {
	w.c.bytes += int64(len(key) + len(rec))
	return w.b.Put(key, rec)
}

// close writes what the chunk is.
func (w *chunkWriter) close() error { return w.b.Put(keyMeta, appendMeta(nil, w.c)) }

// sizes are the file's size and how much of it is in use.
func (s *Store) sizes() (file, live int64) {
	err := s.guard(func() error {
		return s.db.View(func(tx *bolt.Tx) error {
			file = tx.Size()
			return nil
		})
	})
	if err != nil {
		return 0, 0
	}
	st := s.db.Stats()
	return file, file - int64(st.FreePageN+st.PendingPageN)*s.pageSize
}

// insertChunk adds a chunk to a list without changing the list that others read.
func insertChunk(list []*chunk, c *chunk) []*chunk {
	i, _ := slices.BinarySearchFunc(list, c.key, func(x *chunk, key int64) int {
		switch {
		case x.key < key:
			return -1
		case x.key > key:
			return 1
		}
		return 0
	})
	return slices.Insert(slices.Clip(slices.Clone(list)), i, c)
}
