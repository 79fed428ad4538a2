package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"time"

	"softib/internal/patience"
	"softib/node/madrpc"
	"softib/operate/control"
	"softib/operate/forwarding"
	"softib/operate/manager"
	"softib/operate/status"
	"softib/proto/ib"
	"softib/subnet/survey"
)

// What commands ask a running fabric on its socket (package control): what is asked, and what each answer says.
var (
	opStatus = control.Op[control.None, status.Status]{Name: "status"}
	// The fabric ends with the answer.
	opDown = control.Op[control.None, control.None]{Name: "down"}
	// The hosts are the client's to measure between until it hangs up.
	opPair = control.Op[pairRequest, pair]{Name: "pair"}
	// Comes with the descriptor of a user namespace, where one is needed. The client then sends one byte, with a
	// descriptor of a file system that ends with the program.
	opEnter = control.Op[enterRequest, entry]{Name: "enter"}
	// Lines of the manager's log until the client hangs up.
	opSM = control.Op[smRequest, string]{Name: "sm"}
	// With follow until the client hangs up.
	opLog   = control.Op[logRequest, string]{Name: "log"}
	opShow  = control.Op[routeRequest, forwarding.Switch]{Name: "show"}
	opTrace = control.Op[routeRequest, traced]{Name: "trace"}
	// The network first, then a table for each of its switches.
	opTables = control.Op[routeRequest, forwarding.Part]{Name: "tables"}
	// What there is to say of the files, then the partitions that are in force.
	opPartition = control.Op[partitionRequest, partitionSaid]{Name: "partition"}
	// Says how far it is. The bytes are an examination, as gob writes it.
	opSurvey = control.Op[surveyRequest, survey.Progress]{Name: "survey"}
	// Those that are then set.
	opFault = control.Op[faultRequest, []manager.Fault]{Name: "fault"}
	// The bytes are the capture, until the client shuts its side down; then it says how much that was.
	opCapture = control.Op[captureRequest, captured]{Name: "capture"}
	// With each sample until the client hangs up; it may send t, e or w meanwhile.
	opTop   = control.Op[topRequest, topShown]{Name: "top"}
	opNames = control.Op[namesRequest, []string]{Name: "names"}
	// The tenant as it is in force; with do list all of them, some at a time.
	opTenant = control.Op[tenantRequest, []tenantShown]{Name: "tenant"}
	// The template that is then in force; empty if there is none.
	opQoS = control.Op[qosRequest, string]{Name: "qos"}
	// The networks of hosts that there are then.
	opNet = control.Op[netAsk, []netShown]{Name: "net"}
	// The users that there are then.
	opUser = control.Op[userRequest, userList]{Name: "user"}
)

// pairRequest names two hosts to measure between; the first two of the fabric if it names none.
type pairRequest struct {
	Hosts []string `json:"hosts,omitempty"`
}

// pair is two hosts to measure between.
type pair struct {
	Hosts [2]string `json:"hosts"` // the active and the passive one
	Hops  int       `json:"hops"`  // switches between the two
	// Routers lead from one to the other where they are in two subnets, by the prefixes of those.
	Routers map[uint64]ib.LID `json:"routers,omitempty"`
	Where   string            `json:"fabric"`
}

// dialPatience is how long a fabric that holds its name may take to listen:
// it brings its subnet up before it does.
const dialPatience = 10 * time.Second

// askFabric asks a running fabric, and hands what it says to each.
func askFabric[Q, A any](ctx context.Context, p place, op control.Op[Q, A], q Q, each func(A) error) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return p.failed(op.Call(ctx, conn, q, each))
}

// failed adds to an error of a connection whose it was. What the fabric says itself stays as it is.
func (p place) failed(err error) error {
	if errors.Is(err, control.ErrHungUp) {
		return next(fmt.Errorf("fabric %s: %w", p.name, err), "softib status --name %s, or see %s", p.name, p.log())
	}
	if s, ok := errors.AsType[*control.SilentError](err); ok {
		err = fmt.Errorf("fabric %s: %w", p.name, err)
		switch {
		case s.Stopped:
			return next(err, "kill -CONT %d lets it go on, kill -KILL %d ends it", s.PID, s.PID)
		case s.PID > 0:
			return next(err, "try again when the machine has less to do; kill -KILL %d ends it; see %s", s.PID, p.log())
		}
		return next(err, "try again when the machine has less to do; see %s", p.log())
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return fmt.Errorf("fabric %s: %w", p.name, err)
	}
	return err
}

// openMgmt opens a port of a running fabric.
func (p place) openMgmt(ctx context.Context, host string) (madrpc.Transport, error) {
	conn, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	t, err := control.OpenPort(ctx, conn, host)
	if err = p.failed(err); err != nil && ctx.Err() == nil && nextOf(err) == "" {
		err = next(fmt.Errorf("fabric %s: %w", p.name, err),
			"restart the fabric with the softib that you use now: softib down, softib up -d")
	}
	return t, err
}

// dial connects to the fabric, waiting a while for one that is just starting.
func (p place) dial(ctx context.Context) (net.Conn, error) {
	limit := patience.New(dialPatience)
	for {
		if !p.isRunning() {
			return nil, p.notRunning()
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", p.socket())
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.Is(err, fs.ErrPermission) {
			return nil, next(fmt.Errorf("fabric %s is not shared with you: %w", p.name, err),
				"ask %s in which group you have to be", p.owner)
		}
		if limit.Over() {
			return nil, next(fmt.Errorf("fabric %s is starting and does not answer yet, after %v: %w", p.name, limit,
				err), "wait until it says that it is up, then try again")
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
