package tenant

import (
	"errors"
	"fmt"
	"hash/crc64"
	"io/fs"
	"os"

	bolt "go.etcd.io/bbolt"

	"softib/internal/files"
)

// acknowledged is how far a store was when somebody was last told: the number of bbolt's transaction, and the sum of
// all that the book and its tenants are then, but for an intent, of which nobody is told.
type acknowledged struct{ tx, sum uint64 }

// acknowledgedBy is what a transaction leaves.
func acknowledgedBy(tx *bolt.Tx) acknowledged {
	a := acknowledged{tx: uint64(tx.ID())}
	add := func(b []byte) { a.sum = crc64.Update(a.sum, ecma, b) }
	for _, k := range [][]byte{keyFormat, keySum, keyTemplate} {
		add(k)
		add(tx.Bucket(bucketBook).Get(k))
	}
	c := tx.Bucket(bucketTenants).Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		add(k)
		add(v[:min(8, len(v))]) // its own sum, which read has compared with the rest
	}
	return a
}

// fits says whether a store that is so far is what was acknowledged last. Without a note of that, in a folder of an
// older version or with a copy of the store alone, both of bbolt's first pages have to be whole: the one that is not
// may have told of what is missing.
func (a acknowledged) fits(last *acknowledged, both bool) error {
	switch {
	case last == nil && !both:
		return errors.New("one of its first pages is damaged, and may have told of a newer state than the other")
	case last == nil:
		return nil
	case a.tx < last.tx:
		return fmt.Errorf("its newest transaction is %d, and %s tells of %d: what was done since is not in it", a.tx,
			LastName, last.tx)
	case a.tx == last.tx && a.sum != last.sum:
		return fmt.Errorf("it is not as %s says that transaction %d left it", LastName, a.tx)
	}
	return nil
}

// text is what the file has. Its end is the sum of the rest.
func (a acknowledged) text() string {
	line := fmt.Sprintf("transaction %d sum %016x", a.tx, a.sum)
	return fmt.Sprintf("%s check %016x\n", line, crc64.Checksum([]byte(line), ecma))
}

func (a acknowledged) write(path string) error { return files.Replace(path, []byte(a.text())) }

// readLast reads what write has written; nil if there is none.
func readLast(path string) (*acknowledged, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var a acknowledged
	// that it is written the same way again says that all of it was understood
	_, err = fmt.Sscanf(string(text), "transaction %d sum %x", &a.tx, &a.sum)
	if err != nil || a.text() != string(text) {
		return nil, fmt.Errorf("%s cannot be read: without it the store is taken as it is", LastName)
	}
	return &a, nil
}
