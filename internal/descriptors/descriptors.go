package descriptors

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
)

// The shares of the limit that the process began with; what they leave is the fabric's own.
var (
	// Programs is for connections of programs and what these share with the fabric.
	Programs = New(limit() / 4 * 3)
	// Control is for those who operate the fabric.
	Control = New(limit() / 32)
	// Page is how many connections the page has.
	Page = limit() / 8
)

// limitElse is for a kernel that does not say.
const limitElse = 1024

func limit() int {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) != nil {
		return limitElse
	}
	return int(min(files.Cur, 1<<30))
}

// Holder is who has descriptors. A process that cannot be seen from here is 0, and counts by its user alone.
type Holder struct {
	PID int
	UID uint32
}

// ErrMany is matched when somebody has as many as it may.
var ErrMany = errors.New("too many descriptors")

// Book is who has how many of a share: a program a quarter at most, and a user all but an eighth, which is for the
// other one that is let in (root, or the fabric's owner).
type Book struct {
	most int

	mu       sync.Mutex
	all      int
	users    map[uint32]int
	programs map[int]int
}

// New makes a book of so many descriptors.
func New(most int) *Book { return &Book{most: most, users: map[uint32]int{}, programs: map[int]int{}} }

// Take gives somebody n descriptors, all or none.
func (b *Book) Take(who Holder, n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case who.PID != 0 && b.programs[who.PID]+n > b.most/4:
		return fmt.Errorf("process %d holds %d of the %d descriptors that it may have of the fabric: %w; next: close "+
			"what it does not use, or give the fabric more: ulimit -n before softib up", who.PID, b.programs[who.PID],
			b.most/4, ErrMany)
	case b.users[who.UID]+n > b.most-b.most/8 || b.all+n > b.most:
		return fmt.Errorf("the programs of user %d hold %d of the %d descriptors that they may have of the fabric: "+
			"%w; next: end some of them, or give the fabric more: ulimit -n before softib up", who.UID,
			b.users[who.UID], b.most-b.most/8, ErrMany)
	}
	b.all += n
	b.users[who.UID] += n
	if who.PID != 0 {
		b.programs[who.PID] += n
	}
	return nil
}

// Give takes them back.
func (b *Book) Give(who Holder, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all -= n
	if b.users[who.UID] -= n; b.users[who.UID] == 0 {
		delete(b.users, who.UID)
	}
	if who.PID != 0 {
		if b.programs[who.PID] -= n; b.programs[who.PID] == 0 {
			delete(b.programs, who.PID)
		}
	}
}
