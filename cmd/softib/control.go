package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"softib/operate/manager"
	"softib/operate/status"
	"softib/subnet/survey"
)

// The protocol between a running fabric and the commands that talk to it, on
// the Unix socket NAME.sock. Both directions are JSON, one object a line.
//
//	client:  {"v":1,"op":"status"}
//	fabric:  {"status":{…}}  {"ok":true}
//
//	client:  {"v":1,"op":"down"}
//	fabric:  {"ok":true}                       and it ends
//
//	client:  {"v":1,"op":"pair","hosts":["h1","h2"]}
//	fabric:  {"pair":{…}}                      the hosts are the client's to measure between until it hangs up
//
//	client:  {"v":1,"op":"host","host":"h1"}
//	fabric:  {"ok":true}                       if it has such a node
//
//	client:  {"v":1,"op":"enter","host":"h1"}
//	fabric:  {"entry":{…}}                      with the descriptor of a user namespace, where one is needed
//	client:  one byte, with a descriptor of a file system that ends with the program
//
//	client:  {"v":1,"op":"sm","sm":{"host":"h5","options":{…}}}
//	fabric:  {"line":"…"}  {"line":"…"} …        until the client hangs up
//
//	client:  {"v":1,"op":"log","log":{"lines":20,"follow":true}}
//	fabric:  {"line":"…"}  {"line":"…"} …        with follow until the client hangs up
//
//	client:  {"v":1,"op":"show","route":{"switch":"leaf1"}}
//	fabric:  {"switch":{…}} …  {"ok":true}
//
//	client:  {"v":1,"op":"trace","route":{"from":"h1","to":"h9","both":true}}
//	fabric:  {"trace":{…}}  {"trace":{…}}  {"ok":true}
//
//	client:  {"v":1,"op":"tables"}
//	fabric:  {"wiring":{…}}  {"table":{…}}  {"table":{…}} …  {"ok":true}
//
//	client:  {"v":1,"op":"partition","partition":{"reload":true,"file":"/…/partitions.conf"}}
//	fabric:  {"line":"…"}  {"line":"…"} …  {"ok":true}   the partitions that are then in force
//
//	client:  {"v":1,"op":"fault","fault":{"link":["leaf1","spine1"],"words":["down"]}}
//	fabric:  {"faults":[…]}  {"ok":true}       those that are then set
//
//	client:  {"v":1,"op":"capture","capture":{"what":["h1"]}}
//	fabric:  {"bytes":4096} and so many bytes, again and again until the client shuts its side down; then {"captured":{…}}  {"ok":true}
//
//	client:  {"v":1,"op":"top","top":{"by":"traffic","lines":20}}
//	fabric:  {"top":{…}} …                     with each sample until the client hangs up; it may send t, e or w meanwhile
//
//	client:  {"v":1,"op":"tenant","tenant":{"do":"create","name":"red","hosts":["h1-h8"]}}
//	fabric:  {"tenants":[{…}]}  {"ok":true}    the tenant as it is in force; with do list all of them, some a line
//
//	client:  {"v":1,"op":"qos","qos":{"apply":"classic"}}
//	fabric:  {"line":"classic"}  {"ok":true}   the template that is then in force; empty if there is none
//
//	client:  {"v":1,"op":"survey","survey":{"host":"h1","interval_ms":2000}}
//	fabric:  {"progress":{…}} …  {"chunk":"…"} …  {"ok":true}   the chunks together are an examination, as gob writes it
//
//	client:  {"v":1,"op":"mgmt","host":"h1"}    and nothing behind its brace
//	fabric:  {"line":"ready"}                  then both speak gob: mgmtSaid and mgmtHeard, until the client hangs up
//
// One connection carries one request. An answer ends with "ok" or with
// {"error":"…","next":"…"}. The kernel says who the client is (SO_PEERCRED): only the fabric's
// owner and root are answered.
const protocolVersion = 1

// Operations of the protocol.
const (
	opStatus = "status"
	opDown   = "down"
	opPair   = "pair"
	opHost   = "host"
	opEnter  = "enter"
	opSM     = "sm"
	opLog    = "log"
	opShow   = "show"
	opTrace  = "trace"
	opTables = "tables"

	opPartition = "partition"
	opSurvey    = "survey"
	opFault     = "fault"
	opCapture   = "capture"
	opTop       = "top"
	opNames     = "names"
	opTenant    = "tenant"
	opQoS       = "qos"
	opMgmt      = "mgmt"
)

var operations = []string{opStatus, opDown, opPair, opHost, opEnter, opSM, opLog, opShow, opTrace, opTables,
	opPartition, opSurvey, opFault, opCapture, opTop, opNames, opTenant, opQoS, opMgmt}

type request struct {
	Version   int               `json:"v"`
	Op        string            `json:"op"`
	Host      string            `json:"host,omitempty"`
	Hosts     []string          `json:"hosts,omitempty"` // the first two if empty
	Plain     bool              `json:"plain,omitempty"` // enter without namespaces
	SM        *smRequest        `json:"sm,omitempty"`
	Log       *logRequest       `json:"log,omitempty"`
	Route     *routeRequest     `json:"route,omitempty"`
	Partition *partitionRequest `json:"partition,omitempty"`
	Survey    *surveyRequest    `json:"survey,omitempty"`
	Fault     *faultRequest     `json:"fault,omitempty"`
	Capture   *captureRequest   `json:"capture,omitempty"`
	Top       *topRequest       `json:"top,omitempty"`
	Names     *namesRequest     `json:"names,omitempty"`
	Tenant    *tenantRequest    `json:"tenant,omitempty"`
	QoS       *qosRequest       `json:"qos,omitempty"`
}

// pair is two hosts to measure between.
type pair struct {
	Hosts [2]string `json:"hosts"` // the active and the passive one
	Hops  int       `json:"hops"`  // switches between the two
	Where string    `json:"fabric"`
}

type answer struct {
	Status *status.Status `json:"status,omitempty"`
	Pair   *pair          `json:"pair,omitempty"`
	Entry  *entry         `json:"entry,omitempty"`
	Line   string         `json:"line,omitempty"` // of a log
	Switch *switchShown   `json:"switch,omitempty"`
	Trace  *traced        `json:"trace,omitempty"`
	Wiring *wiring        `json:"wiring,omitempty"`
	Table  *tableRow      `json:"table,omitempty"`

	Progress *survey.Progress `json:"progress,omitempty"`
	Chunk    []byte           `json:"chunk,omitempty"` // of an examination

	Faults   []manager.Fault `json:"faults,omitempty"`
	Bytes    int64           `json:"bytes,omitempty"` // of a capture, which follow
	Captured *captured       `json:"captured,omitempty"`
	Top      *topShown       `json:"top,omitempty"`
	Names    []string        `json:"names,omitempty"`

	Partition *partitionShown `json:"partition,omitempty"`
	Tenants   []tenantShown   `json:"tenants,omitempty"`

	OK    bool   `json:"ok,omitempty"`
	Error string `json:"error,omitempty"`
	Next  string `json:"next,omitempty"`
	Usage bool   `json:"usage,omitempty"` // the error is one of usage
}

// refusal is an error as an answer.
func refusal(err error) answer {
	return answer{Error: err.Error(), Next: nextOf(err), Usage: exitCode(err) == exitUsage}
}

// err is the error that an answer brings.
func (a answer) err() error {
	if a.Error == "" {
		return nil
	}
	err := errors.New(a.Error)
	if a.Usage {
		err = &usageError{err}
	}
	return &hint{err, a.Next}
}

// dialPatience is how long a fabric that holds its name may take to listen:
// it brings its subnet up before it does.
const dialPatience = 10 * time.Second

// call sends one request to a running fabric and hands every answer but the
// last to each.
func (p place) call(ctx context.Context, r request, each func(answer) error) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return p.callOn(ctx, conn, r, each)
}

// callOn is call on a connection that its caller opened, and closes.
func (p place) callOn(ctx context.Context, conn net.Conn, r request, each func(answer) error) error {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	r.Version = protocolVersion
	if err := json.NewEncoder(conn).Encode(r); err != nil {
		return fmt.Errorf("fabric %s: %w", p.name, err)
	}
	for dec := json.NewDecoder(bufio.NewReader(conn)); ; {
		var a answer
		if err := dec.Decode(&a); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
				err = errors.New("it hung up before it had answered")
			}
			return next(fmt.Errorf("fabric %s: %w", p.name, err), "softib status --name %s, or see %s", p.name, p.log())
		}
		if a.OK || a.Error != "" {
			return a.err()
		}
		if err := each(a); err != nil {
			return err
		}
	}
}

// dial connects to the fabric, waiting a while for one that is just starting.
func (p place) dial(ctx context.Context) (net.Conn, error) {
	deadline := time.Now().Add(dialPatience)
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
		if time.Now().After(deadline) {
			return nil, next(fmt.Errorf("fabric %s is starting and does not answer yet: %w", p.name, err),
				"wait until it says that it is up, then try again")
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
