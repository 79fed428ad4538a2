package tenant

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"softib/operate/cluster"
)

// Keys is a place that several machines see: values by name, which change together or not at all, and only for who may
// change them. Package etcd of cluster has one.
type Keys interface {
	// Read is all of them.
	Read() (map[string][]byte, error)
	// Write puts some and drops others, and returns when that will be found again. With an error nothing has been
	// written, or nobody knows.
	Write(put map[string][]byte, drop []string) error
}

// tenantPrefix is in front of tenants' names; the book's own values have none.
const tenantPrefix = "tenant/"

// valueMax is more than any value has: a tenant of all the addresses of a subnet, before and after.
const valueMax = 64 << 20

// shared is a store in Keys: the values of the file, deflated, since a request to etcd has 1.5 MB at most and tenants
// of ten thousand members are mostly the same digits.
type shared struct {
	keys   Keys
	now    map[string][]byte // sealed, as they are there
	state  State
	intent *Change
}

// OpenKeys opens the store in a place that several machines see. Closing it leaves the place open.
func OpenKeys(keys Keys) (Store, error) {
	packed, err := keys.Read()
	if err != nil {
		return nil, fmt.Errorf("tenant: store: %w", err)
	}
	s := &shared{keys: keys, now: make(map[string][]byte, len(packed))}
	for name, v := range packed {
		if s.now[name], err = unpack(v); err != nil {
			return nil, fmt.Errorf("tenant: %q: %w: %w", name, ErrCorrupt, err)
		}
	}
	if len(s.now) == 0 {
		return s, nil
	}
	s.state, s.intent, err = parse(func(k []byte) []byte { return s.now[string(k)] }, s.tenants(s.now))
	if err != nil {
		return nil, fmt.Errorf("tenant: %w: %w", ErrCorrupt, err)
	}
	return s, nil
}

// tenants are those among values, in the order of names.
func (s *shared) tenants(values map[string][]byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if k, is := strings.CutPrefix(name, tenantPrefix); is && !yield([]byte(k), values[name]) {
				return
			}
		}
	}
}

// update changes values, and makes the sum right. A first change writes the format too.
func (s *shared) update(put map[string][]byte, drop ...string) error {
	next := maps.Clone(s.now)
	for _, name := range drop {
		delete(next, name)
	}
	put[string(keyFormat)] = seal(keyFormat, []byte{format})
	maps.Copy(next, put)
	put[string(keySum)] = seal(keySum, total(s.tenants(next)))
	next[string(keySum)] = put[string(keySum)]
	packed := make(map[string][]byte, len(put))
	for name, v := range put {
		packed[name] = pack(v)
	}
	drop = slices.DeleteFunc(drop, func(name string) bool { return put[name] != nil })
	if err := s.keys.Write(packed, drop); err != nil {
		if errors.Is(err, cluster.ErrNotMaster) {
			// It was not written, and there is nothing wrong with the store.
			return fmt.Errorf("tenant: another machine makes changes: %w: %w", ErrUnmanaged, err)
		}
		return fmt.Errorf("tenant: %w: %w", ErrStore, err)
	}
	s.now = next
	return nil
}

func (s *shared) State() State    { return s.state }
func (s *shared) Intent() *Change { return s.intent }
func (s *shared) Close() error    { return nil }

func (s *shared) Begin(c Change) error {
	v, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("tenant: intent: %w", err)
	}
	return s.update(map[string][]byte{string(keyIntent): seal(keyIntent, v)})
}

func (s *shared) Commit(c Change) error { return s.settle(c) }

// Abort writes what was before too: a Commit that has failed may have been done all the same.
func (s *shared) Abort(c Change) error { return s.settle(c.inverse()) }

func (s *shared) settle(c Change) error {
	put, drop := map[string][]byte{}, []string{string(keyIntent)}
	if c.Was != nil {
		drop = append(drop, tenantPrefix+c.Was.Name)
	}
	if c.Is != nil {
		v, err := json.Marshal(c.Is)
		if err != nil {
			return err
		}
		put[tenantPrefix+c.Is.Name] = seal([]byte(c.Is.Name), v)
	}
	if c.Template != nil {
		put[string(keyTemplate)] = seal(keyTemplate, []byte(c.Template.Is))
	}
	return s.update(put, drop...)
}

func pack(v []byte) []byte {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.DefaultCompression)
	if err == nil {
		_, err = w.Write(v)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // a buffer takes everything
	}
	return b.Bytes()
}

func unpack(v []byte) ([]byte, error) {
	out, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(v)), valueMax+1))
	if err == nil && len(out) > valueMax {
		err = fmt.Errorf("it is longer than %d bytes", valueMax)
	}
	return out, err
}
