package ufm

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"softib/internal/files"
)

// Files of the credentials, in the folder of a manager's state.
const (
	usersFile  = "rest-users"
	tokensFile = "rest-tokens.json"
)

// ErrCredentials is matched where credentials cannot be read, or cannot be as asked.
var ErrCredentials = errors.New("ufm: credentials")

const (
	passwordMin = 8
	passwordMax = 1024
	saltLen     = 16
	hashName    = "pbkdf2-sha256"
)

// passwordRounds is the work of one guess: what OWASP asks for PBKDF2 with SHA-256. Only a test has another.
var passwordRounds = 600_000

// Credentials are who may use the interface: users with passwords, in a file of a line each, and the tokens that were
// given out.
//
// The files may be changed by another process (softib's own command, or an editor); they are read again when they are
// others.
type Credentials struct {
	dir string // empty is in memory only

	mu     sync.Mutex
	users  map[string]password
	stamp  fileStamp
	tokens []token
	// tokenStamp is that of the file which tokens are from.
	tokenStamp fileStamp
	secret     [32]byte            // of this process, for proven
	proven     map[[32]byte]proven // passwords that were right a moment ago
}

type password struct {
	rounds     int
	salt, hash []byte
}

// fileStamp tells a file from the one that was there before: files are replaced here, so that a new one is another in
// the file system too.
type fileStamp struct {
	inode uint64
	size  int64
	at    time.Time
}

// proven is a user and password that need not be worked out again until then.
type proven struct {
	name  string
	until time.Time
}

const (
	provenFor = 5 * time.Minute
	provenMax = 4096
)

// OpenCredentials reads the credentials in a folder; those of no folder are kept in memory.
func OpenCredentials(dir string) (*Credentials, error) {
	c := &Credentials{dir: dir, users: map[string]password{}, proven: map[[32]byte]proven{}}
	rand.Read(c.secret[:])
	if dir == "" {
		return c, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: no folder for them: %w", ErrCredentials, err)
	}
	if err := c.reload(); err != nil {
		return nil, err
	}
	return c, c.loadTokens()
}

// Dir is the folder that they are kept in; empty if they are in memory.
func (c *Credentials) Dir() string { return c.dir }

// Any reports whether there is a user. Tokens alone are none: somebody has to be able to revoke them.
func (c *Credentials) Any() bool {
	c.reload() // what was read before stays if the file is damaged now
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.users) > 0
}

// Users are the names of all users, in order.
func (c *Credentials) Users() []string {
	_ = c.reload() // what was read before stays if the file is damaged now
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]string, 0, len(c.users))
	for name := range c.users {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// SetUser gives a user a password, and makes the user if there is none of that name.
func (c *Credentials) SetUser(name, secret string) error {
	if err := checkUserName(name); err != nil {
		return err
	}
	if len(secret) < passwordMin || len(secret) > passwordMax {
		return fmt.Errorf("%w: the password of %s has %d characters: want %d to %d", ErrCredentials, name, len(secret),
			passwordMin, passwordMax)
	}
	p := password{rounds: passwordRounds, salt: make([]byte, saltLen)}
	rand.Read(p.salt)
	var err error
	if p.hash, err = p.of(secret); err != nil {
		return fmt.Errorf("%w: %w", ErrCredentials, err)
	}
	return c.change(func() { c.users[name] = p })
}

// RemoveUser takes a user away, with all tokens of that user.
func (c *Credentials) RemoveUser(name string) error {
	c.refresh()
	c.mu.Lock()
	_, ok := c.users[name]
	c.mu.Unlock()
	if !ok {
		return fmt.Errorf("%w: there is no user %q", ErrCredentials, name)
	}
	if err := c.change(func() { delete(c.users, name) }); err != nil {
		return err
	}
	_, err := c.dropTokens(func(t *token) bool { return t.User == name })
	return err
}

func checkUserName(name string) error {
	if name == "" || len(name) > 64 || strings.ContainsFunc(name,
		func(r rune) bool { return r <= ' ' || r == ':' || r == '#' || r > '~' }) {
		return fmt.Errorf("%w: user %q: want 1 to 64 letters, digits or signs, without colons and spaces",
			ErrCredentials, clip(name))
	}
	return nil
}

// of is the hash of a password with a user's salt.
func (p *password) of(secret string) ([]byte, error) {
	return pbkdf2.Key(sha256.New, secret, p.salt, p.rounds, sha256.Size)
}

// change changes the users and writes them down. With an error everything is as it was.
func (c *Credentials) change(f func()) error {
	if err := c.reload(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was := make(map[string]password, len(c.users))
	for k, v := range c.users {
		was[k] = v
	}
	f()
	clear(c.proven)
	if c.dir == "" {
		c.close()
		return nil
	}
	path := filepath.Join(c.dir, usersFile)
	if err := files.Replace(path, formatUsers(c.users)); err != nil {
		c.users = was
		return fmt.Errorf("%w: the users cannot be written: %w", ErrCredentials, err)
	}
	c.stamp = stampOf(path)
	c.close()
	return nil
}

// reload reads the file of users if it is another one than before. A file that was damaged meanwhile leaves things as
// they were, and is an error.
func (c *Credentials) reload() error {
	if c.dir == "" {
		return nil
	}
	path := filepath.Join(c.dir, usersFile)
	stamp := stampOf(path)
	c.mu.Lock()
	same := stamp == c.stamp
	c.mu.Unlock()
	if same {
		return nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = nil, nil
	}
	if err != nil {
		return fmt.Errorf("%w: the users cannot be read: %w", ErrCredentials, err)
	}
	users, err := parseUsers(text)
	if err != nil {
		return fmt.Errorf("%w; correct %s, or remove it and make the users again", err, path)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users, c.stamp = users, stamp
	clear(c.proven)
	c.close()
	return nil
}

// refresh reads the files again if they are others. One that is damaged leaves things as they were.
func (c *Credentials) refresh() {
	_ = c.reload()
	_ = c.loadTokens()
}

// mark tells a user's password from another of the same user; empty where there is no such user.
func (c *Credentials) mark(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.users[name]; ok {
		return string(p.salt) + string(p.hash)
	}
	return ""
}

func stampOf(path string) (s fileStamp) {
	if i, err := os.Stat(path); err == nil {
		s = fileStamp{size: i.Size(), at: i.ModTime()}
		if x, ok := i.Sys().(*syscall.Stat_t); ok {
			s.inode = x.Ino
		}
	}
	return s
}

// formatUsers writes a line for each user: NAME:pbkdf2-sha256:ROUNDS:SALT:HASH.
func formatUsers(users map[string]password) []byte {
	names := make([]string, 0, len(users))
	for name := range users {
		names = append(names, name)
	}
	slices.Sort(names)
	var b bytes.Buffer
	b.WriteString("# users of softib's REST interface; NAME:" + hashName + ":ROUNDS:SALT:HASH\n")
	for _, name := range names {
		p := users[name]
		fmt.Fprintf(&b, "%s:%s:%d:%s:%s\n", name, hashName, p.rounds, base64.RawStdEncoding.EncodeToString(p.salt),
			base64.RawStdEncoding.EncodeToString(p.hash))
	}
	return b.Bytes()
}

// parseUsers reads what formatUsers writes; empty lines and those that begin with # say nothing.
func parseUsers(text []byte) (map[string]password, error) {
	users := map[string]password{}
	scan := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; scan.Scan(); n++ {
		line := strings.TrimSpace(scan.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		broken := func(field, want string) error {
			return fmt.Errorf("%w: users, line %d, %s: want %s", ErrCredentials, n, field, want)
		}
		f := strings.Split(line, ":")
		if len(f) != 5 {
			return nil, broken("fields", "NAME:"+hashName+":ROUNDS:SALT:HASH")
		}
		if err := checkUserName(f[0]); err != nil {
			return nil, broken("name", "1 to 64 letters, digits or signs")
		}
		if _, twice := users[f[0]]; twice {
			return nil, broken("name", "each user once")
		}
		var p password
		var err error
		if f[1] != hashName {
			return nil, broken("kind", hashName)
		}
		if p.rounds, err = strconv.Atoi(f[2]); err != nil || p.rounds < 1000 || p.rounds > 100_000_000 {
			return nil, broken("rounds", "1000 to 100000000")
		}
		if p.salt, err = base64.RawStdEncoding.DecodeString(f[3]); err != nil || len(p.salt) < 8 {
			return nil, broken("salt", "at least 8 bytes in base64")
		}
		if p.hash, err = base64.RawStdEncoding.DecodeString(f[4]); err != nil || len(p.hash) != sha256.Size {
			return nil, broken("hash", "32 bytes in base64")
		}
		users[f[0]] = p
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("%w: users: %w", ErrCredentials, err)
	}
	return users, nil
}

// known reports whether a user and password were right a moment ago, which costs nothing to find out. As that is
// before anybody waits for a turn, it knows only those that came from the same source: others could guess there.
func (c *Credentials) known(from netip.Addr, name, secret string, now time.Time) bool {
	k := c.fingerprint(from, name, secret)
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.proven[k]
	return ok && p.name == name && now.Before(p.until)
}

func (c *Credentials) fingerprint(from netip.Addr, name, secret string) (k [32]byte) {
	h := hmac.New(sha256.New, c.secret[:])
	fmt.Fprintf(h, "%v %d:%s%s", from, len(name), name, secret)
	h.Sum(k[:0])
	return k
}

// verify works out whether a password is a user's. That takes as long for users that are not there.
func (c *Credentials) verify(from netip.Addr, name, secret string, now time.Time) bool {
	if c.known(from, name, secret, now) { // whoever waited for the same answer
		return true
	}
	c.mu.Lock()
	p, ok := c.users[name]
	c.mu.Unlock()
	if !ok {
		p = password{rounds: passwordRounds, salt: make([]byte, saltLen), hash: make([]byte, sha256.Size)}
	}
	got, err := p.of(secret[:min(len(secret), passwordMax)])
	right := err == nil && subtle.ConstantTimeCompare(got, p.hash) == 1 && ok && len(secret) <= passwordMax
	if !right {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if q, still := c.users[name]; !still || !bytes.Equal(q.hash, p.hash) {
		return false // the password was changed meanwhile
	}
	if len(c.proven) >= provenMax {
		clear(c.proven)
	}
	c.proven[c.fingerprint(from, name, secret)] = proven{name: name, until: now.Add(provenFor)}
	return true
}
