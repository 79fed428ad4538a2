package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"softib/internal/descriptors"
	"softib/internal/packetsock"
	"softib/internal/patience"
)

const (
	// RequestMax bounds what a client may say.
	RequestMax = 64 << 10
	// requestPatience is how long it may take to say it, on an idle machine: nobody holds a descriptor for nothing.
	requestPatience = 10 * time.Second
)

// Server answers on a fabric's socket.
type Server struct {
	// Others is the error of operations that it does not have.
	Others error

	l     *net.UnixListener
	names []string
	ops   map[string]func(context.Context, *voice, json.RawMessage) (end func(), err error)
	wg    sync.WaitGroup
	door  packetsock.Door
}

// Listen makes the socket, for its owner and for who has rights. Nobody is answered before Serve.
func Listen(path string, rights *packetsock.Rights) (*Server, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := rights.Open(path); err != nil {
		l.Close()
		return nil, err
	}
	return &Server{l: l, ops: map[string]func(context.Context, *voice, json.RawMessage) (func(), error){},
		door: packetsock.Door{Book: descriptors.Control, Holds: 1, Rights: rights}}, nil
}

// Handle has do answer an operation. It comes before Serve.
func Handle[Q, A any](s *Server, o Op[Q, A], do func(context.Context, Q, *Reply[A]) error) {
	s.names = append(s.names, o.Name)
	s.ops[o.Name] = func(ctx context.Context, v *voice, ask json.RawMessage) (func(), error) {
		r := &Reply[A]{Conn: v.conn, Cred: v.cred, voice: v}
		var q Q
		if ask != nil {
			if err := json.Unmarshal(ask, &q); err != nil {
				return nil, unreadable(err)
			}
		}
		err := do(ctx, q, r)
		return r.end, err
	}
}

// Serve answers until ctx ends. It returns at once.
func (s *Server) Serve(ctx context.Context) {
	s.wg.Go(func() {
		for {
			conn, err := s.l.AcceptUnix()
			if err != nil {
				if ctx.Err() != nil {
					return
				}
				time.Sleep(100 * time.Millisecond) // out of descriptors, say: others may finish
				continue
			}
			cred, leave, ok, refused := s.door.Enter(conn)
			if !ok {
				conn.Close()
				continue
			}
			s.wg.Go(func() {
				defer leave()
				defer conn.Close()
				v := &voice{conn: conn, cred: cred}
				end, err := s.answer(ctx, v, refused)
				if end != nil {
					defer end()
				}
				last := line{OK: err == nil}
				if err != nil {
					last.Refusal = refusalOf(err)
				}
				if text, err := json.Marshal(last); err == nil {
					_ = v.say(append(text, '\n')) // a client that has hung up wants no answer
				}
			})
		}
	})
}

// Close stops listening and waits for answers under way, which end with Serve's context.
func (s *Server) Close() {
	s.l.Close()
	s.wg.Wait()
}

// answer serves one connection, up to the last line. Why is the reason for which it is not let in.
func (s *Server) answer(ctx context.Context, v *voice, why error) (end func(), err error) {
	conn := v.conn
	_ = conn.SetReadDeadline(time.Now().Add(patience.For(requestPatience)))
	// A fabric that ends does not wait for who has asked nothing.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var r request
	err = json.NewDecoder(io.LimitReader(conn, RequestMax)).Decode(&r)
	if !stop() {
		return nil, errEnding
	}
	if err != nil {
		return nil, unreadable(err)
	}
	if why != nil { // when its words are read: else it would not hear ours
		return nil, why
	}
	_ = conn.SetReadDeadline(time.Time{})
	if r.Version != Version {
		return nil, &refused{fmt.Errorf("the request is of protocol %d: this fabric speaks %d", r.Version, Version),
			ErrVersion, "restart the fabric with the softib that you use now: softib down, softib up -d"}
	}
	do := s.ops[r.Op]
	if do == nil && s.Others != nil {
		return nil, s.Others
	}
	if do == nil {
		return nil, &refused{fmt.Errorf("the request's operation is %q: want one of %s", r.Op,
			strings.Join(s.names, ", ")), ErrRequest, ""}
	}
	if r.Beat {
		done := make(chan struct{})
		defer close(done)
		s.wg.Go(func() { v.beats(done) })
	}
	return do(ctx, v, r.Ask)
}

var errEnding = errors.New("the fabric is ending")

func unreadable(err error) error {
	return &refused{fmt.Errorf("the request cannot be read: %w", err), ErrRequest, ""}
}

// Reply is the answer to one request.
type Reply[A any] struct {
	// Conn is for those who hear more than a request. What a handler says goes through Say.
	Conn *net.UnixConn
	// Cred is who asks.
	Cred  *syscall.Ucred
	voice *voice
	end   func()
}

// Say says one thing.
func (r *Reply[A]) Say(a A) error { return r.SayFiles(a) }

// SayFiles says one thing, and hands descriptors over with it.
func (r *Reply[A]) SayFiles(a A, files ...*os.File) error {
	text, err := json.Marshal(a)
	if err == nil {
		text, err = json.Marshal(line{Say: text})
	}
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if len(files) == 0 {
		return r.voice.say(text)
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	r.voice.mu.Lock()
	defer r.voice.mu.Unlock()
	_, _, err = r.Conn.WriteMsgUnix(text, syscall.UnixRights(fds...), nil)
	runtime.KeepAlive(files)
	return err
}

// Write sends bytes as they are.
func (r *Reply[A]) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	text, err := json.Marshal(line{Bytes: int64(len(b))})
	if err == nil {
		err = r.voice.say(append(text, '\n'), b)
	}
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

// Doing has f say with each beat what takes so long, and how far it is.
func (r *Reply[A]) Doing(f func() string) {
	r.voice.mu.Lock()
	defer r.voice.mu.Unlock()
	r.voice.doing = f
}

// Hush has nothing said any more but by the handler: for one whose client hears something else than lines next.
func (r *Reply[A]) Hush() {
	r.voice.mu.Lock()
	defer r.voice.mu.Unlock()
	r.voice.hush = true
}

// Finally has f called when the last line is out.
func (r *Reply[A]) Finally(f func()) { r.end = f }

// Heard is a context that ends when the client has said anything more, or has hung up, which is how it says that it has
// had enough.
func (r *Reply[A]) Heard(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		var b [1]byte
		_, _ = r.Conn.Read(b[:])
		cancel()
	}()
	return ctx, cancel
}
