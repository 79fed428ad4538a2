package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"softib/internal/packetsock"
	"softib/operate/manager"
	"softib/operate/status"
)

const (
	// requestMax bounds what a client may say.
	requestMax = 64 << 10
	// requestPatience is how long it may take to say it.
	requestPatience = 10 * time.Second
	// loanPatience is how long a test that has just ended may take to be noticed.
	loanPatience = time.Second
)

// server answers on a fabric's socket.
type server struct {
	f     *fabric
	mgr   *manager.Manager
	world *world
	l     *net.UnixListener
	down  context.CancelFunc // ends the fabric
	wg    sync.WaitGroup
	loan  chan struct{} // full while hosts are lent

	managers managers
}

// serve listens on the socket of a claimed place until ctx ends; down is what
// softib down calls.
func serve(ctx context.Context, p place, f *fabric, mgr *manager.Manager, down context.CancelFunc) (*server, error) {
	w, err := newWorld(p, f.Fabric)
	if err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.socket(), Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(p.socket(), 0o600); err != nil {
		l.Close()
		return nil, err
	}
	s := &server{f: f, mgr: mgr, world: w, l: l, down: down, loan: make(chan struct{}, 1)}
	s.wg.Go(func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				if ctx.Err() != nil {
					return
				}
				time.Sleep(100 * time.Millisecond) // out of descriptors, say: others may finish
				continue
			}
			s.wg.Go(func() {
				defer conn.Close()
				s.answer(ctx, conn)
			})
		}
	})
	return s, nil
}

// close stops listening and waits for answers under way.
func (s *server) close() {
	s.l.Close()
	s.wg.Wait()
	s.world.close()
}

// answer serves one connection.
func (s *server) answer(ctx context.Context, conn *net.UnixConn) {
	out := json.NewEncoder(conn)
	tell := func(a answer) error { return out.Encode(a) }
	if _, err := packetsock.CheckPeer(conn); err != nil {
		_ = tell(refusal(err))
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(requestPatience))
	var r request
	if err := json.NewDecoder(io.LimitReader(conn, requestMax)).Decode(&r); err != nil {
		_ = tell(refusal(fmt.Errorf("the request cannot be read: %w", err)))
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	if r.Version != protocolVersion {
		_ = tell(refusal(next(fmt.Errorf("the request is of protocol %d: this fabric speaks %d", r.Version,
			protocolVersion),
			"restart the fabric with the softib that you use now: softib down, softib up -d")))
		return
	}
	var err error
	switch r.Op {
	case opStatus:
		st := s.status(ctx)
		err = tell(answer{Status: &st})
	case opDown:
		defer s.down()
	case opHost:
		if s.f.Graph().ByName(r.Host) == nil {
			err = s.noNode(r.Host)
		}
	case opEnter:
		err = s.enter(ctx, conn, r.Host, r.Plain)
	case opSM:
		err = s.manage(ctx, conn, r.SM, tell)
	case opLog:
		err = s.showLog(ctx, conn, r.Log, tell)
	case opShow:
		err = s.show(r.Route, tell)
	case opTrace:
		err = s.trace(ctx, r.Route, tell)
	case opTables:
		err = s.tables(ctx, r.Route, tell)
	case opPartition:
		err = s.partitions(r.Partition, tell)
	case opFault:
		err = s.fault(r.Fault, tell)
	case opCapture:
		err = s.capture(ctx, conn, r.Capture, tell)
	case opNames:
		err = s.names(r.Names, tell)
	case opTop:
		err = s.top(ctx, conn, r.Top, tell)
	case opTenant:
		err = s.tenant(ctx, r.Tenant, tell)
	case opQoS:
		err = s.qos(ctx, r.QoS, tell)
	case opSurvey:
		err = s.survey(ctx, conn, r.Survey, tell)
	case opMgmt:
		err = s.mgmt(ctx, conn, r.Host, tell)
	case opPair:
		err = s.lend(ctx, conn, r.Hosts, tell)
	default:
		err = fmt.Errorf("the request's operation is %q: want one of %s", r.Op, strings.Join(operations, ", "))
	}
	if err != nil {
		_ = tell(refusal(err))
		return
	}
	_ = tell(answer{OK: true})
}

// status looks at the fabric.
func (s *server) status(ctx context.Context) status.Status {
	src := status.Source{Fabric: s.f.Fabric, Name: s.f.name, Version: version, Topology: s.f.topology, Page: s.f.page,
		Started: s.f.started}
	for _, r := range s.runners() {
		src.Managers = append(src.Managers, r)
	}
	return status.Gather(ctx, src)
}

// noNode is the error of a node that the fabric does not have.
func (s *server) noNode(name string) error {
	hosts := s.f.Hosts()
	return next(&usageError{fmt.Errorf("fabric %s has no node %q", s.f.name, name)}, "its hosts are %s to %s",
		hosts[0].Name(), hosts[len(hosts)-1].Name())
}

// lend gives a client two hosts to measure between for as long as it stays on the line: two tests at once
// would measure each other.
func (s *server) lend(ctx context.Context, conn net.Conn, hosts []string, tell func(answer) error) error {
	p, err := s.f.pair(hosts)
	if err != nil {
		return err
	}
	select {
	case s.loan <- struct{}{}:
	case <-time.After(loanPatience):
		return next(fmt.Errorf("another perf test is running on fabric %s", s.f.name),
			"wait for it to end, or measure on a fabric of your own: softib perf TEST star:2")
	}
	defer func() { <-s.loan }()
	if err := tell(answer{Pair: p}); err != nil {
		return err
	}
	hungUp := make(chan struct{})
	go func() {
		var b [1]byte
		_, _ = conn.Read(b[:]) // nothing more comes but the end
		close(hungUp)
	}()
	select {
	case <-hungUp:
		return nil
	case <-ctx.Done():
		return next(fmt.Errorf("fabric %s was ended during the test", s.f.name), "softib up -d, then measure again")
	}
}

// pair finds the two hosts of a test and what lies between them.
func (f *fabric) pair(names []string) (*pair, error) {
	hosts := f.Hosts()
	example := fmt.Sprintf("--hosts %s,%s", hosts[0].Name(), hosts[len(hosts)-1].Name())
	switch len(names) {
	case 0:
		if len(hosts) < 2 {
			return nil, next(fmt.Errorf("fabric %s has one host: a test needs two", f.name), "softib perf TEST star:2")
		}
		names = []string{hosts[0].Name(), hosts[1].Name()}
	case 2:
	default:
		return nil, next(&usageError{fmt.Errorf("%d hosts: a test has two", len(names))}, "%s", example)
	}
	var at [2]int
	p := &pair{Where: fmt.Sprintf("%s (%s)", f.name, f.topology)}
	for i := range at {
		h, err := f.Host(names[i])
		if err != nil {
			return nil, next(&usageError{err}, "%s", example)
		}
		p.Hosts[i], at[i] = h.Name(), h.Node().Index
	}
	if at[0] == at[1] {
		return nil, next(&usageError{fmt.Errorf("%s twice: a test goes between two hosts", names[0])}, "%s", example)
	}
	if d := f.Graph().Distances(at[0])[at[1]]; d > 0 {
		p.Hops = int(d) - 1
	}
	return p, nil
}
