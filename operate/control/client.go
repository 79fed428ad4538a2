package control

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// Call asks, and hands what is said to each until the answer ends or each returns an error. Where the answer ends with
// an error, that is a *Refusal. The connection is closed when ctx ends, else by the caller.
func (o Op[Q, A]) Call(ctx context.Context, conn net.Conn, q Q, each func(A) error) error {
	return o.CallTo(ctx, conn, q, io.Discard, each)
}

// CallTo is Call for answers with bytes between the lines, which go to w.
func (o Op[Q, A]) CallTo(ctx context.Context, conn net.Conn, q Q, w io.Writer, each func(A) error) error {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	doing, _ := ctx.Value(doingKey{}).(func(string))
	if doing == nil {
		doing = func(string) {}
	}
	defer doing("")
	err := o.ask(conn, q)
	ear := newEar(ctx, conn, o.Name)
	in := bufio.NewReaderSize(ear, 64<<10)
	for err == nil {
		var text []byte
		if text, err = in.ReadBytes('\n'); err != nil {
			break
		}
		var l line
		var a A
		var said bool
		if l, said, err = read(text, &a); err != nil || l.OK {
			return err
		}
		if l.Doing != "" {
			ear.doing = l.Doing
			doing(l.Doing)
		}
		if l.Bytes > 0 {
			if _, err = io.CopyN(w, in, l.Bytes); err != nil {
				return err // the writer's, say
			}
		}
		if said {
			if err := each(a); err != nil {
				return err
			}
		}
	}
	return lost(ctx, err)
}

// ask sends the request. Nothing comes after its brace. Who does not listen any more may have said why before.
func (o Op[Q, A]) ask(conn net.Conn, q Q) error {
	text, err := json.Marshal(q)
	if err == nil {
		text, err = json.Marshal(request{Version: Version, Op: o.Name, Ask: text, Beat: true})
	}
	if err == nil {
		_, err = conn.Write(text)
	}
	if hungUp(err) {
		return nil
	}
	return err
}

// read takes a line apart, and reports whether it says something. A refusal is its error.
func read(text []byte, a any) (l line, said bool, err error) {
	if err := json.Unmarshal(text, &l); err != nil {
		return l, false, fmt.Errorf("an answer that cannot be read: %w", err)
	}
	if l.Text != "" {
		return l, false, &l.Refusal
	}
	if l.Say == nil {
		return l, false, nil
	}
	if err := json.Unmarshal(l.Say, a); err != nil {
		return l, false, fmt.Errorf("an answer that cannot be read: %w", err)
	}
	return l, true, nil
}

// lost is what a connection that failed means.
func lost(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case hungUp(err):
		return ErrHungUp
	}
	return err
}

// hungUp reports whether an error is what one sees whose other side has closed, in the middle of whatever.
func hungUp(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// First asks, and returns the first thing that is said with the descriptors that come with it. The connection stays
// open for what follows.
func (o Op[Q, A]) First(ctx context.Context, conn *net.UnixConn, q Q) (a A, files []*os.File, err error) {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	err = o.ask(conn, q)
	ear := newEar(ctx, conn, o.Name)
	var text []byte
	for err == nil {
		first, rest, whole := bytes.Cut(text, []byte{'\n'}) // the end of the answer may have come as well
		if whole {
			l, said, err := read(first, &a)
			if err == nil && !said && l.OK {
				err = errors.New("the answer says nothing")
			}
			if said || err != nil {
				return a, files, err
			}
			ear.doing = cmp.Or(l.Doing, ear.doing)
			text = rest
			continue
		}
		b := make([]byte, 4096)
		var n int
		var more []*os.File
		err = ear.listen(func() (err error) {
			n, more, err = ReadFiles(conn, b)
			return err
		})
		text, files = append(text, b[:n]...), append(files, more...)
		if err == nil && n == 0 {
			err = ErrHungUp
		}
	}
	return a, files, lost(ctx, err)
}

// ReadFiles reads from a connection, and the descriptors that come along.
func ReadFiles(conn *net.UnixConn, b []byte) (n int, files []*os.File, err error) {
	oob := make([]byte, syscall.CmsgSpace(4*4))
	n, oobn, _, _, err := conn.ReadMsgUnix(b, oob)
	if err != nil {
		return 0, nil, err // and n may be -1
	}
	messages, err := syscall.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return n, nil, err
	}
	for i := range messages {
		fds, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			continue // credentials, say
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return n, files, nil
}
