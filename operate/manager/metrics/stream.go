package metrics

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
)

// blockSize is about how much text is made and written at a time: enough that a write is worth its system call, little
// enough to stay in a core's cache on the way.
const blockSize = 256 << 10

// block is a part of one family.
type block struct {
	f        *family
	from, to int
}

func (k block) append(b []byte, s *snapshot) []byte {
	if k.from == 0 {
		b = appendHead(b, k.f.name, k.f.help, k.f.kind)
	}
	return k.f.lines(b, s, k.from, k.to)
}

// blocks cuts families into blocks. A family without items is left out.
func blocks(list []family) (out []block) {
	for i := range list {
		f := &list[i]
		step := max(blockSize/f.line, 1)
		for from := 0; from < f.count; from += step {
			out = append(out, block{f, from, min(from+step, f.count)})
		}
	}
	return out
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, blockSize+blockSize/8); return &b }}

var zippers = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // a valid level
	return z
}}

// zip appends text as a member of a gzip file: members one after the other are a file too (RFC 1952, 2.2), so that
// several are made at once.
func zip(to, text []byte) []byte {
	out := bytes.NewBuffer(to)
	z := zippers.Get().(*gzip.Writer)
	z.Reset(out)
	z.Write(text) // a Buffer takes everything
	z.Close()
	zippers.Put(z)
	return out.Bytes()
}

// stream makes the text of all blocks, several at once, and writes it in their order. It holds a few buffers, whatever
// there is to write; a writer that is slow, or stuck until its deadline, holds nothing else.
func stream(ctx context.Context, w io.Writer, all []block, s *snapshot, zipped bool) error {
	workers := min(runtime.GOMAXPROCS(0), 4, len(all))
	if workers == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	// Who has a buffer takes the next block. So the blocks under way are never more than there are buffers, and as they
	// are written in their order, no two of them share a place in ready.
	count := 3 * workers
	free := make(chan *[]byte, count)
	ready := make([]chan *[]byte, count)
	for i := range ready {
		free <- buffers.Get().(*[]byte)
		ready[i] = make(chan *[]byte, 1)
	}
	var next atomic.Int64
	var done sync.WaitGroup
	for range workers {
		done.Go(func() {
			for {
				var b *[]byte
				select {
				case b = <-free:
				case <-ctx.Done():
					return
				}
				i := int(next.Add(1)) - 1
				if i >= len(all) {
					free <- b
					return
				}
				*b = all[i].append((*b)[:0], s)
				if zipped {
					z := buffers.Get().(*[]byte)
					*z = zip((*z)[:0], *b)
					b, z = z, b
					buffers.Put(z)
				}
				ready[i%count] <- b
			}
		})
	}
	var err error
	for i := 0; i < len(all) && err == nil; i++ {
		select {
		case b := <-ready[i%count]:
			_, err = w.Write(*b)
			free <- b
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	cancel()
	done.Wait()
	close(free)
	for b := range free {
		buffers.Put(b)
	}
	return err
}
