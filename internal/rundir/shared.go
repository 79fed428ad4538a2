package rundir

import (
	"cmp"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A fabric that is shared has a second folder, which others can go through and not list. It is known by its owner:
// whoever names the fabric names him too, as OWNER/NAME, and a folder of somebody else's at that place is refused.

// SharedDir is the folder of a user's fabrics that others may use.
func SharedDir(uid int) string {
	return filepath.Join(cmp.Or(os.Getenv("SOFTIB_SHARED_DIR"), "/tmp"), "softib-shared-"+strconv.Itoa(uid))
}

// MakeShared makes this user's, if it is not there, and refuses one of somebody else's.
func MakeShared() (string, error) {
	dir := SharedDir(os.Geteuid())
	if err := os.Mkdir(dir, 0o711); err != nil && !os.IsExist(err) {
		return "", err
	}
	if err := checkShared(dir, os.Geteuid()); err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711) // whatever the umask took
}

// Shared is the folder and the name of a fabric that is named OWNER/NAME; ok is false for a name without an owner.
func Shared(name string) (dir, base string, ok bool, err error) {
	owner, base, ok := strings.Cut(name, "/")
	if !ok {
		return "", name, false, nil
	}
	uid, err := UserID(owner)
	if err != nil {
		return "", base, true, err
	}
	dir = SharedDir(int(uid))
	return dir, base, true, checkShared(dir, int(uid))
}

// UserID finds a user of this machine by name or number.
func UserID(who string) (uint32, error) {
	id := who
	if u, err := user.Lookup(who); err == nil {
		id = u.Uid
	}
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil || n == 1<<32-1 { // which is nobody's: it means "leave it"
		return 0, fmt.Errorf("this machine has no user %q", who)
	}
	return uint32(n), nil
}

// UserName is the name of a user, or the number of one that has none.
func UserName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

func checkShared(dir string, uid int) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if s, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(s.Uid) != uid ||
		info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s has mode %v: want a folder that user %d has and nobody else can write to", dir,
			info.Mode(), uid)
	}
	return nil
}
