package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"softib/driver/live"
	"softib/operate/control"
	"softib/operate/manager"
	"softib/operate/status"
	"softib/proto/ib"
	"softib/proto/topo"
)

// loanPatience is how long a test that has just ended may take to be noticed.
const loanPatience = time.Second

// server answers on a fabric's socket.
type server struct {
	f     *fabric
	mgr   *manager.Manager
	world *world
	ops   *control.Server
	wg    sync.WaitGroup // what is done beside answers
	loan  chan struct{}  // full while hosts are lent

	sms smList
}

// serve listens on the socket of a claimed place until ctx ends; down is what
// softib down calls.
func serve(ctx context.Context, p place, f *fabric, mgr *manager.Manager, down context.CancelFunc) (*server, error) {
	w, err := newWorld(p, f.Fabric)
	if err != nil {
		return nil, err
	}
	ops, err := control.Listen(p.socket(), nil)
	if err != nil {
		return nil, err
	}
	s := &server{f: f, mgr: mgr, world: w, ops: ops, loan: make(chan struct{}, 1)}
	control.Handle(ops, opStatus, func(ctx context.Context, _ control.None, r *control.Reply[status.Status]) error {
		return r.Say(s.status(ctx))
	})
	control.Handle(ops, opDown, func(_ context.Context, _ control.None, r *control.Reply[control.None]) error {
		r.Finally(down)
		return nil
	})
	control.Handle(ops, control.Port, s.mgmt)
	control.Handle(ops, opEnter, s.enter)
	control.Handle(ops, opSM, s.runSM)
	control.Handle(ops, opLog, s.showLog)
	control.Handle(ops, opShow, s.show)
	control.Handle(ops, opTrace, s.trace)
	control.Handle(ops, opTables, s.tables)
	control.Handle(ops, opPartition, s.partitions)
	control.Handle(ops, opFault, s.fault)
	control.Handle(ops, opCapture, s.capture)
	control.Handle(ops, opNames, s.names)
	control.Handle(ops, opTop, s.top)
	control.Handle(ops, opTenant, s.tenant)
	control.Handle(ops, opQoS, s.qos)
	control.Handle(ops, opUser, s.user)
	control.Handle(ops, opNet, s.net)
	control.Handle(ops, opSurvey, s.survey)
	control.Handle(ops, opPair, s.lend)
	ops.Serve(ctx)
	return s, nil
}

// close stops listening and waits for answers under way.
func (s *server) close() {
	s.ops.Close()
	s.wg.Wait()
	s.world.close()
}

// mgmt lends a port of this fabric to a client until it hangs up.
func (s *server) mgmt(ctx context.Context, q control.PortRequest, r *control.Reply[control.None]) error {
	ref, err := endPort(s.f.Fabric, q.Host)
	if err != nil {
		return err
	}
	session, err := s.f.OpenMgmt(ref)
	if err != nil {
		return err
	}
	return control.ServePort(ctx, r, session)
}

// status looks at the fabric.
func (s *server) status(ctx context.Context) status.Status {
	src := status.Source{Fabric: s.f.Fabric, Name: s.f.name, Version: version,
		Topology: s.f.topology, Page: s.f.page, Started: s.f.started, Start: s.f.steps, Managers: s.subnets()}
	if s.f.joined != nil {
		src.Machines = s.f.joined.machines()
	}
	if x := s.f.others; x != nil {
		src.Shared, src.As = x.group, x.place.owner+"/"+x.place.name
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
func (s *server) lend(ctx context.Context, q pairRequest, r *control.Reply[pair]) error {
	p, err := s.f.pair(q.Hosts)
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
	if err := r.Say(*p); err != nil {
		return err
	}
	heard, cancel := r.Heard(ctx)
	defer cancel()
	<-heard.Done()
	if ctx.Err() != nil {
		return next(fmt.Errorf("fabric %s was ended during the test", s.f.name), "softib up -d, then measure again")
	}
	return nil
}

// pair finds the two hosts of a test and what lies between them.
func (f *fabric) pair(names []string) (*pair, error) {
	hosts := f.hostsHere()
	if len(hosts) == 0 {
		return nil, next(fmt.Errorf("this machine has no host of fabric %s", f.name), "run it on another machine")
	}
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
		if errors.Is(err, live.ErrElsewhere) {
			return nil, next(&usageError{err}, "choose two hosts of this machine; between machines run perftest")
		}
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
	if f.subnets == nil {
		return p, nil
	}
	prefix := func(i int) uint64 { return f.Graph().Prefix(f.subnets.Of(topo.PortRef{Node: at[i], Port: 1})) }
	if a, b := prefix(0), prefix(1); a != b {
		routes := f.routes()
		p.Routers = map[uint64]ib.LID{}
		for _, way := range [][2]uint64{{a, b}, {b, a}} {
			if len(routes[way]) == 0 {
				return nil, next(fmt.Errorf("no router leads from %s to %s", p.Hosts[0], p.Hosts[1]),
					"softib route trace %s %s says where it ends", p.Hosts[0], p.Hosts[1])
			}
			p.Routers[way[0]] = routes[way][0]
		}
	}
	return p, nil
}
