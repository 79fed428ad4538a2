package boltfile_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
	bolterr "go.etcd.io/bbolt/errors"

	"softib/internal/boltfile"
)

// TestWhole: nothing that bbolt writes is taken for damage: buckets in buckets, small ones in values, long values, keys
// that come and go, and lists of free pages that need several pages.
func TestWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 11))
	dir := t.TempDir()
	path, copied := filepath.Join(dir, "a.db"), filepath.Join(dir, "copy.db")
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.AllocSize = 64 << 10
	change := func(b *bolt.Bucket, most int) error {
		for range rng.IntN(60) {
			k := []byte(fmt.Sprintf("%0*d", 1+rng.IntN(40), rng.IntN(500)))
			if rng.IntN(3) == 0 {
				if err := b.Delete(k); err != nil && !errors.Is(err, bolterr.ErrIncompatibleValue) {
					return err
				}
			} else if err := b.Put(k, make([]byte, rng.IntN(most))); err != nil &&
				!errors.Is(err, bolterr.ErrIncompatibleValue) {
				return err
			}
		}
		return nil
	}
	for round := range 150 {
		err := db.Update(func(tx *bolt.Tx) error {
			name := []byte(fmt.Sprintf("bucket%d", rng.IntN(6)))
			if rng.IntN(12) == 0 && tx.Bucket(name) != nil {
				return tx.DeleteBucket(name)
			}
			b, err := tx.CreateBucketIfNotExists(name)
			if err != nil {
				return err
			}
			in, err := b.CreateBucketIfNotExists([]byte(fmt.Sprintf("in%d", rng.IntN(30))))
			if err != nil {
				return err
			}
			return errors.Join(change(b, 100), change(in, []int{3, 300, 30_000}[rng.IntN(3)]))
		})
		if err != nil {
			t.Fatal(err)
		}
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied, file, 0o600); err != nil {
			t.Fatal(err)
		}
		var want uint64
		if err := db.View(func(tx *bolt.Tx) error { want = uint64(tx.ID()); return nil }); err != nil {
			t.Fatal(err)
		}
		found, err := boltfile.Check(copied, 0, true)
		if err != nil || found != (boltfile.Found{TxID: want, Both: true}) {
			t.Fatalf("round %d: %+v, %v: want transaction %d", round, found, err, want)
		}
	}
	if _, err := boltfile.Check(path, 0, true); !errors.Is(err, boltfile.ErrLocked) {
		t.Errorf("one that is open: %v: want ErrLocked", err)
	}
	if err := os.Truncate(copied, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := boltfile.Check(copied, 0, false); !errors.Is(err, boltfile.ErrDamaged) {
		t.Errorf("an empty one: %v: want ErrDamaged", err)
	}
}
