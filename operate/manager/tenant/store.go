package tenant

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterr "go.etcd.io/bbolt/errors"

	"softib/internal/boltfile"
	"softib/internal/files"
)

// Store keeps a state through the end of its process, however that comes. One caller at a time.
type Store interface {
	// State is what was committed when the store was opened, and Intent the change that had begun then and was not
	// committed; nil if there is none.
	State() State
	Intent() *Change
	// Begin notes a change that is about to be made, Commit that it is made, and Abort that it is not. Each returns
	// when that will be found again.
	Begin(Change) error
	Commit(Change) error
	Abort(Change) error
	Close() error
}

// FileName is the store's file in its folder, and LastName the one that says how new that has to be.
const (
	FileName = "tenants.db"
	LastName = "tenants.last"
)

// OpenStore opens the store in a folder, and makes it if there is none. Without a folder it is in memory.
func OpenStore(dir string) (Store, error) {
	if dir == "" {
		return &memory{}, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("tenant: store: %w", err)
	}
	return openFile(filepath.Join(dir, FileName))
}

// memory is a store that ends with its process.
type memory struct {
	state  State
	intent *Change
}

func (m *memory) State() State         { return m.state }
func (m *memory) Intent() *Change      { return m.intent }
func (m *memory) Begin(c Change) error { m.intent = &c; return nil }
func (m *memory) Abort(Change) error   { m.intent = nil; return nil }
func (m *memory) Close() error         { return nil }
func (m *memory) Commit(c Change) error {
	m.state, m.intent = m.state.with(c), nil
	return nil
}

// file is a store in a file of bbolt's:
//
//	tenants   name -> the tenant as JSON
//	book      format -> 1, intent -> a change as JSON, template -> a name, sum -> how many tenants there are, and the exclusive or of their sums
//
// Each value begins with its own sum (CRC-64, ECMA), because bbolt keeps sums of its first pages only, and a tenant
// that has lost a member to a bad disk must not be believed.
//
// Beside it lies a file that says which transaction was the last that somebody was told of, and the sum of all that was
// then kept (last). bbolt alone would go on with what was before that transaction, if the page is damaged that tells of
// it: a tenant that was deleted is there again then.
type file struct {
	db     *bolt.DB
	path   string
	state  State
	intent *Change
}

var (
	bucketTenants = []byte("tenants")
	bucketBook    = []byte("book")

	keyFormat   = []byte("format")
	keyIntent   = []byte("intent")
	keyTemplate = []byte("template")
	keySum      = []byte("sum")
)

// format is how this version writes the file.
const format = 1

// lockPatience is how long a process that is just ending may still have the file.
const lockPatience = time.Second

var ecma = crc64.MakeTable(crc64.ECMA)

// seal puts a value's sum before it.
func seal(key, value []byte) []byte {
	return append(binary.BigEndian.AppendUint64(nil, sumOf(key, value)), value...)
}

func sumOf(key, value []byte) uint64 { return crc64.Update(crc64.Checksum(key, ecma), ecma, value) }

// unseal is a value whose sum is right.
func unseal(key, sealed []byte) ([]byte, error) {
	if len(sealed) < 8 || binary.BigEndian.Uint64(sealed) != sumOf(key, sealed[8:]) {
		return nil, fmt.Errorf("the sum of %q is not right", key)
	}
	return sealed[8:], nil
}

func openFile(path string) (_ *file, err error) {
	f := &file{path: path}
	last, err := readLast(f.last())
	if err != nil {
		return nil, f.damaged(err)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if last != nil {
			return nil, f.damaged(fmt.Errorf("it is gone, and %s tells of transaction %d in it", LastName, last.tx))
		}
		if err := create(path); err != nil {
			return nil, fmt.Errorf("tenant: %s: %w: %w", path, ErrStore, err)
		}
	}
	found, err := boltfile.Check(path, lockPatience, true)
	switch {
	case errors.Is(err, boltfile.ErrLocked):
		return nil, fmt.Errorf("tenant: %s: %w", path, ErrLocked)
	case errors.Is(err, boltfile.ErrDamaged), errors.Is(err, boltfile.ErrVersion):
		return nil, f.damaged(err)
	case err != nil:
		return nil, fmt.Errorf("tenant: store: %w", err)
	}
	defer func() {
		if err != nil && f.db != nil {
			_ = f.db.Close()
		}
	}()
	// bbolt believes its pages. What was just looked at is as it should be, but may be another's by now.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			// its locks may be held for ever: it is left to the end of the process
			f.db, err = nil, f.damaged(fmt.Errorf("%v", p))
		}
	}()
	f.db, err = bolt.Open(path, 0o600, &bolt.Options{Timeout: lockPatience})
	var sys *fs.PathError
	switch {
	case errors.Is(err, bolterr.ErrTimeout):
		return nil, fmt.Errorf("tenant: %s: %w", path, ErrLocked)
	case errors.As(err, &sys):
		return nil, fmt.Errorf("tenant: store: %w", err)
	case err != nil:
		return nil, f.damaged(err)
	}
	// again, since whoever had the file till now may have written
	if last, err = readLast(f.last()); err != nil {
		return nil, f.damaged(err)
	}
	var is acknowledged
	err = f.db.View(func(tx *bolt.Tx) error {
		if err := f.read(tx); err != nil {
			return err
		}
		is = acknowledgedBy(tx)
		return is.fits(last, found.Both)
	})
	if err != nil {
		return nil, f.damaged(err)
	}
	// What is served from now on must be found again too, whether its caller was told or not.
	if last == nil || *last != is {
		if err := is.write(f.last()); err != nil {
			return nil, fmt.Errorf("tenant: %s: %w: %w", f.last(), ErrStore, err)
		}
	}
	return f, nil
}

func (f *file) last() string { return filepath.Join(filepath.Dir(f.path), LastName) }

func (f *file) damaged(err error) error {
	return fmt.Errorf("tenant: %s: %w: %w", f.path, ErrCorrupt, err)
}

// create makes a file with nothing in it. It gets its name when it is whole, so that a file that has the name and is
// not was damaged later.
func create(path string) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, FileName+".new*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if err := tmp.Close(); err != nil {
		return err
	}
	db, err := bolt.Open(tmp.Name(), 0o600, nil)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		if _, err := tx.CreateBucket(bucketTenants); err != nil {
			return err
		}
		b, err := tx.CreateBucket(bucketBook)
		if err != nil {
			return err
		}
		if err := b.Put(keyFormat, seal(keyFormat, []byte{format})); err != nil {
			return err
		}
		return putSum(tx)
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	// A link, not a renaming: who else makes one at this moment keeps his.
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return files.SyncDir(dir)
}

// read takes everything from the file and believes nothing.
func (f *file) read(tx *bolt.Tx) (err error) {
	tenants, book := tx.Bucket(bucketTenants), tx.Bucket(bucketBook)
	if tenants == nil || book == nil {
		return errors.New("a part of it is missing")
	}
	f.state, f.intent, err = parse(book.Get, cells(tenants))
	return err
}

// cells are the keys and values of a bucket, in the order of the keys.
func cells(b *bolt.Bucket) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		c := b.Cursor()
		for k, v := c.First(); k != nil && yield(k, v); k, v = c.Next() {
		}
	}
}

// parse reads sealed values, wherever they are kept: of the book by their keys, of tenants by their names in order.
func parse(book func(key []byte) []byte, tenants iter.Seq2[[]byte, []byte]) (s State, intent *Change, err error) {
	v, err := unseal(keyFormat, book(keyFormat))
	if err != nil {
		return s, nil, err
	}
	if len(v) != 1 || v[0] != format {
		return s, nil, fmt.Errorf("its format is %v: want %d", v, format)
	}
	if v, err = unseal(keySum, book(keySum)); err != nil {
		return s, nil, err
	}
	if string(v) != string(total(tenants)) {
		return s, nil, errors.New("there are not as many tenants as there should be")
	}
	for k, sealed := range tenants {
		v, err := unseal(k, sealed)
		if err != nil {
			return s, nil, err
		}
		var t Tenant
		if err := json.Unmarshal(v, &t); err != nil {
			return s, nil, fmt.Errorf("%q: %w", k, err)
		}
		if t.Name != string(k) {
			return s, nil, fmt.Errorf("%q is called %q", k, t.Name)
		}
		if o, taken := s.ByKey(t.Key); taken {
			return s, nil, fmt.Errorf("%s and %s both have pkey %v", o.Name, t.Name, t.Key)
		}
		s.Tenants = append(s.Tenants, t)
	}
	if sealed := book(keyTemplate); sealed != nil {
		if v, err = unseal(keyTemplate, sealed); err != nil {
			return s, nil, err
		}
		s.Template = string(v)
	}
	if sealed := book(keyIntent); sealed != nil {
		if v, err = unseal(keyIntent, sealed); err != nil {
			return s, nil, err
		}
		if err := json.Unmarshal(v, &intent); err != nil {
			return s, nil, fmt.Errorf("intent: %w", err)
		}
	}
	return s, intent, nil
}

// total is what has to be right of all tenants together: none may have gone.
func total(tenants iter.Seq2[[]byte, []byte]) []byte {
	var n, sum uint64
	for _, v := range tenants {
		n++
		if len(v) >= 8 {
			sum ^= binary.BigEndian.Uint64(v)
		}
	}
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, n), sum)
}

func putSum(tx *bolt.Tx) error {
	return tx.Bucket(bucketBook).Put(keySum, seal(keySum, total(cells(tx.Bucket(bucketTenants)))))
}

func (f *file) State() State    { return f.state }
func (f *file) Intent() *Change { return f.intent }

// update writes, and returns when it is on the disk.
func (f *file) update(write func(*bolt.Tx) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("tenant: %s: %w: %v", f.path, ErrStore, p)
		}
	}()
	if err := f.db.Update(write); err != nil {
		return fmt.Errorf("tenant: %s: %w: %w", f.path, ErrStore, err)
	}
	return nil
}

func (f *file) Begin(c Change) error {
	v, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("tenant: intent: %w", err)
	}
	return f.update(func(tx *bolt.Tx) error { return tx.Bucket(bucketBook).Put(keyIntent, seal(keyIntent, v)) })
}

func (f *file) Commit(c Change) error { return f.settle(c) }

// Abort writes what was before too: a Commit that has failed may have been done all the same.
func (f *file) Abort(c Change) error { return f.settle(c.inverse()) }

// settle writes what a change leaves and takes the intent away.
func (f *file) settle(c Change) error {
	var is acknowledged
	err := f.update(func(tx *bolt.Tx) error {
		tenants, book := tx.Bucket(bucketTenants), tx.Bucket(bucketBook)
		if c.Was != nil {
			if err := tenants.Delete([]byte(c.Was.Name)); err != nil {
				return err
			}
		}
		if c.Is != nil {
			v, err := json.Marshal(c.Is)
			if err != nil {
				return err
			}
			k := []byte(c.Is.Name)
			if err := tenants.Put(k, seal(k, v)); err != nil {
				return err
			}
		}
		if c.Template != nil {
			if err := book.Put(keyTemplate, seal(keyTemplate, []byte(c.Template.Is))); err != nil {
				return err
			}
		}
		if err := book.Delete(keyIntent); err != nil {
			return err
		}
		if err := putSum(tx); err != nil {
			return err
		}
		is = acknowledgedBy(tx)
		return nil
	})
	if err != nil {
		return err
	}
	// After the transaction, and before anybody is told: who is killed in between leaves a file that is newer than it
	// has to be, which is a change that was made and not acknowledged.
	if err := is.write(f.last()); err != nil {
		return fmt.Errorf("tenant: %s: %w: %w", f.last(), ErrStore, err)
	}
	return nil
}

func (f *file) Close() error { return f.db.Close() }
