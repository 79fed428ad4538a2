package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// TextMax is more than any text about a subnet has: with all of its 49,151 addresses in use, a subnet in
// ibnetdiscover's format has 23 MB.
const TextMax = 256 << 20

var (
	// ErrTooLong is a file that has more than it may have.
	ErrTooLong = errors.New("it is too long")
	// ErrNotText is a file with bytes in it that no text has.
	ErrNotText = errors.New("it is no text")
)

// ReadText reads a file that somebody has named, which may be anything: a device that never ends, a pipe, another
// program's data. It gives up when there are more than max bytes, and at the first one that is zero.
func ReadText(path string, max int64) ([]byte, error) { return read(path, max, true) }

// Read is ReadText for formats that have zeros too, in ordinary files: what is none, such as a device of zeros, has to
// be text.
func Read(path string, max int64) ([]byte, error) { return read(path, max, false) }

func read(path string, max int64, isText bool) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fail := func(err error) error { return &os.PathError{Op: "read", Path: path, Err: err} }
	room := int64(4096)
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		if info.Size() > max {
			return nil, fail(fmt.Errorf("%w: %d bytes, at most %d are read", ErrTooLong, info.Size(), max))
		}
		room = info.Size() + 1 // and one to see its end
	} else {
		isText = true
	}
	text := make([]byte, 0, room)
	for {
		if len(text) == cap(text) {
			text = append(text, 0)[:len(text)]
		}
		n, err := f.Read(text[len(text):min(int64(cap(text)), max+1)])
		if i := bytes.IndexByte(text[len(text):len(text)+n], 0); i >= 0 && isText {
			return nil, fail(fmt.Errorf("%w: byte %d is zero", ErrNotText, len(text)+i+1))
		}
		text = text[:len(text)+n]
		switch {
		case int64(len(text)) > max:
			return nil, fail(fmt.Errorf("%w: at most %d bytes are read", ErrTooLong, max))
		case errors.Is(err, io.EOF):
			return text, nil
		case err != nil:
			return nil, err
		}
	}
}
