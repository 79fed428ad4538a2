package hostfiles

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/topo"
)

// tree is the files of one host.
type tree struct {
	root  string
	node  *topo.Node
	users int
	text  map[string]string // what every file has

	ports []*port
	dirs  []string       // of the ports
	refs  []topo.PortRef // of the ports
	count []ib.Counters  // as they were last written
	stats *hca.Stats     // likewise
	err   error          // the first that writing met
}

// put writes a file if it has something else. It is written in place: who has it open sees the new text, and what is
// mounted elsewhere is the file and not its name. A reader at that very moment finds the new text, for an instant
// perhaps with the end of a longer old one.
func (t *tree) put(path, text string) {
	old, known := t.text[path]
	if known && old == text {
		return
	}
	if err := t.write(filepath.Join(t.root, path), old, text, known); err != nil {
		t.err = errors.Join(t.err, err)
		return // and tried again the next time
	}
	t.text[path] = text
}

func (t *tree) write(path, old, text string, known bool) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if errors.Is(err, fs.ErrNotExist) && !known {
		if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
		}
	}
	if err != nil {
		return err
	}
	if text != "" {
		_, err = f.WriteAt([]byte(text), 0)
	}
	if err == nil && len(text) < len(old) {
		err = f.Truncate(int64(len(text)))
	}
	return errors.Join(err, f.Close())
}

func (t *tree) link(path, to string) {
	path = filepath.Join(t.root, path)
	err := os.Symlink(to, path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			err = os.Symlink(to, path)
		}
	}
	t.err = errors.Join(t.err, err)
}

// take returns what writing met since the last take.
func (t *tree) take() error {
	err := t.err
	t.err = nil
	return err
}

// setState writes what has changed of a port.
func (t *tree) setState(i int, p port) {
	if old := t.ports[i]; old != nil {
		if old.info == p.info && slices.Equal(old.gids, p.gids) && slices.Equal(old.pkeys, p.pkeys) {
			return
		}
		// Entries of a table that has become shorter are there, and empty.
		for len(p.gids) < len(old.gids) {
			p.gids = append(p.gids, ib.GID{})
		}
		for len(p.pkeys) < len(old.pkeys) {
			p.pkeys = append(p.pkeys, 0)
		}
	}
	state(t.dirs[i], &p, t.put)
	if t.err == nil {
		t.ports[i] = &p
	}
}

// setCounters writes counters that have changed.
func (t *tree) setCounters(i int, now ib.Counters) {
	first := len(t.count) <= i
	if first {
		t.count = append(t.count, ib.Counters{})
	}
	for _, c := range counterFiles {
		if v := now[c.counter]; first || v != t.count[i][c.counter] {
			t.put(t.dirs[i]+"/"+c.name, counterText(v, c.bits))
		}
	}
	switch {
	case t.err == nil:
		t.count[i] = now
	case first:
		t.count = t.count[:i]
	}
}
