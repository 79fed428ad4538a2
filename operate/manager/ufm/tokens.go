package ufm

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"softib/internal/files"
)

const (
	tokenBytes = 32
	// tokenShown is how many characters of a token tell it from others; the 200 bits behind them are the secret.
	tokenShown = 8
	// tokenLife is UFM's: ten years.
	tokenLife = 315_360_000 * time.Second
	tokensMax = 4096
	// tokensOfUser is how many one may have, so that nobody takes those of others.
	tokensOfUser = 128
	// tokensUnproven is how many are remembered that were given out while the server was open. They open nothing that
	// is not open, so the oldest makes room for the next.
	tokensUnproven = 128
)

// token is an access token that was given out. The token itself is nowhere.
type token struct {
	// ID is how the token begins.
	ID     string    `json:"id"`
	Hash   string    `json:"sha256"`
	User   string    `json:"user"`
	Issued time.Time `json:"issued"`
	// Proof is how the user showed who it was.
	Proof proof `json:"proof"`
}

// tokenShape is what is shown of a token.
type tokenShape struct {
	ID        string `json:"id"`
	Token     string `json:"access_token"`
	Revoked   bool   `json:"revoked"`
	IssuedAt  int64  `json:"issued_at"`
	ExpiresIn int64  `json:"expires_in"`
	User      string `json:"username"`
}

func (t *token) shape(secret string) tokenShape {
	return tokenShape{ID: t.ID, Token: secret, IssuedAt: t.Issued.Unix(), ExpiresIn: int64(tokenLife / time.Second),
		User: t.User}
}

func newSecret() string {
	var b [tokenBytes]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func hashOf(secret string) string {
	h := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(h[:])
}

// issue gives out a token.
func (c *Credentials) issue(who caller, now time.Time) (tokenShape, error) {
	secret := newSecret()
	t := token{ID: secret[:tokenShown], Hash: hashOf(secret), User: who.name, Proof: who.proof,
		Issued: now.UTC().Truncate(time.Second)}
	c.refresh()
	c.mu.Lock()
	defer c.mu.Unlock()
	list := slices.Clone(c.tokens)
	if who.proof == unproven {
		if len(c.users) > 0 {
			return tokenShape{}, refuse(401, "there is a user now: show a user's password")
		}
		if like := func(t token) bool { return t.Proof == unproven }; count(list, like) >= tokensUnproven {
			i := slices.IndexFunc(list, like)
			list = slices.Delete(list, i, i+1)
		}
	} else if n := count(list, func(t token) bool { return t.User == who.name }); n >= tokensOfUser {
		return tokenShape{}, refuse(409, "%s has %d tokens: revoke those that nobody uses", who.name, n)
	}
	if len(list) >= tokensMax {
		return tokenShape{}, refuse(409, "%d tokens were given out: revoke those that nobody uses", len(list))
	}
	list = append(list, t)
	if err := c.saveTokens(list); err != nil {
		return tokenShape{}, err
	}
	c.tokens = list
	return t.shape(secret), nil
}

func count(list []token, is func(token) bool) (n int) {
	for _, t := range list {
		if is(t) {
			n++
		}
	}
	return n
}

// close drops the tokens that were given out while the server was open: with the first user they are worth nothing, and
// would only take places. Who calls it holds the lock. If the file is another one than before, or cannot be written,
// they go when it is read again.
func (c *Credentials) close() {
	if len(c.users) == 0 || c.dir != "" && stampOf(filepath.Join(c.dir, tokensFile)) != c.tokenStamp {
		return
	}
	proven := slices.DeleteFunc(slices.Clone(c.tokens), func(t token) bool { return t.Proof == unproven })
	if len(proven) == len(c.tokens) || c.saveTokens(proven) != nil {
		return
	}
	c.tokens = proven
}

// tokenUser is whose token it is. Every token is compared, and each in the same time. One that was given out while
// everybody could have one is worth nothing once that is over, and one of a user no more than the user.
func (c *Credentials) tokenUser(secret string, now time.Time) (who caller, ok bool) {
	h := []byte(hashOf(secret))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.tokens {
		t := &c.tokens[i]
		_, there := c.users[t.User]
		good := t.Proof == byCertificate || t.Proof == byPassword && there
		if subtle.ConstantTimeCompare(h, []byte(t.Hash)) == 1 && now.Before(t.Issued.Add(tokenLife)) && good {
			who, ok = caller{t.User, t.Proof}, true
		}
	}
	return who, ok
}

// tokensOf are a user's tokens, oldest first. Of each is shown how it begins.
func (c *Credentials) tokensOf(user string) []tokenShape {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := []tokenShape{}
	for i := range c.tokens {
		if t := &c.tokens[i]; t.User == user {
			list = append(list, t.shape(t.ID+"…"))
		}
	}
	return list
}

// revoke takes a user's token back, by the token or by how it begins.
func (c *Credentials) revoke(user, secret string) error {
	id := strings.TrimSuffix(secret, "…")
	n, err := c.dropTokens(func(t *token) bool { return t.User == user && (t.ID == id || t.Hash == hashOf(secret)) })
	if err == nil && n == 0 {
		return &Error{Status: 404, Field: "token", Reason: "no token of yours is this one"}
	}
	return err
}

func (c *Credentials) dropTokens(is func(*token) bool) (n int, err error) {
	c.refresh()
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []token
	for i := range c.tokens {
		if is(&c.tokens[i]) {
			n++
		} else {
			list = append(list, c.tokens[i])
		}
	}
	if n == 0 {
		return 0, nil
	}
	if err := c.saveTokens(list); err != nil {
		return 0, err
	}
	c.tokens = list
	return n, nil
}

func (c *Credentials) saveTokens(list []token) error {
	if c.dir == "" {
		return nil
	}
	path := filepath.Join(c.dir, tokensFile)
	text, err := json.MarshalIndent(list, "", "\t")
	if err == nil {
		err = files.Replace(path, text)
	}
	if err != nil {
		return fmt.Errorf("%w: the tokens cannot be written: %w", ErrCredentials, err)
	}
	c.tokenStamp = stampOf(path)
	return nil
}

// loadTokens reads the file of tokens if it is another one than before: whoever takes a user away in another process
// takes the user's tokens too.
func (c *Credentials) loadTokens() error {
	if c.dir == "" {
		return nil
	}
	path := filepath.Join(c.dir, tokensFile)
	stamp := stampOf(path)
	c.mu.Lock()
	defer c.mu.Unlock()
	if stamp == c.tokenStamp {
		return nil
	}
	var list []token
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	} else if err == nil {
		list, err = parseTokens(text)
	}
	if err != nil {
		return fmt.Errorf("%w: the tokens cannot be read: %w; remove %s, and give out new ones", ErrCredentials, err,
			path)
	}
	c.tokens, c.tokenStamp = list, stamp
	c.close()
	return nil
}

// parseTokens reads the file of tokens.
func parseTokens(text []byte) (list []token, err error) {
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	for i, t := range list {
		switch {
		case len(t.ID) != tokenShown:
			return nil, fmt.Errorf("token %d: id %q: want %d characters", i, clip(t.ID), tokenShown)
		case len(t.Hash) != 2*sha256.Size:
			return nil, fmt.Errorf("token %d: sha256 of %d characters: want %d", i, len(t.Hash), 2*sha256.Size)
		case t.User == "":
			return nil, fmt.Errorf("token %d: user: want a name", i)
		}
	}
	return list, nil
}

// sessions are those who logged in, by the hash of their cookie. They end with the process, when nobody has used them
// for a while, and after a day.
type sessions struct {
	mu   sync.Mutex
	list map[string]*session
}

type session struct {
	user string
	// mark is that of the user's password when the session began; empty without one, where the server was open.
	mark       string
	born, used time.Time
}

const (
	sessionIdle = 30 * time.Minute
	sessionLife = 24 * time.Hour
	sessionsMax = 4096
	// sessionsOfUser is how many a user may have, so that nobody ends those of others.
	sessionsOfUser = 64
)

// open begins a session and returns its cookie's value.
func (s *sessions) open(user, mark string, now time.Time) string {
	secret := newSecret()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil {
		s.list = map[string]*session{}
	}
	s.sweep(now, sessionsOfUser, func(x *session) bool { return x.user == user })
	s.sweep(now, sessionsMax, func(*session) bool { return true })
	s.list[hashOf(secret)] = &session{user: user, mark: mark, born: now, used: now}
	return secret
}

// sweep makes room for one more where there may be so many: those that have ended go, and the one that was idle for
// longest if that is not enough.
func (s *sessions) sweep(now time.Time, most int, among func(*session) bool) {
	var oldest string
	n := 0
	for k, x := range s.list {
		if x.over(now) {
			delete(s.list, k)
		} else if among(x) {
			n++
			if oldest == "" || x.used.Before(s.list[oldest].used) {
				oldest = k
			}
		}
	}
	if n >= most {
		delete(s.list, oldest)
	}
}

func (x *session) over(now time.Time) bool {
	return now.Sub(x.used) > sessionIdle || now.Sub(x.born) > sessionLife
}

// user is whose session a cookie is. A session ends when its user is taken away or has another password, which mark
// shows.
func (s *sessions) user(secret string, now time.Time, mark func(user string) string) (string, bool) {
	k := hashOf(secret)
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.list[k]
	if !ok || x.over(now) || x.mark == "" || x.mark != mark(x.user) {
		delete(s.list, k)
		return "", false
	}
	x.used = now
	return x.user, true
}

// end ends a session.
func (s *sessions) end(secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.list, hashOf(secret))
}
