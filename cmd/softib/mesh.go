package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"softib/driver/live"
	"softib/internal/patience"
	"softib/proto/ib"
	"softib/verbs"
)

const (
	meshSize = 256
	grhBytes = 40 // a datagram's buffer begins with room for a GRH (IBA 11.4.1.2)
	meshQKey = ib.QKey(0x11111111)
	// meshPairsMax bounds the pairs that are tried: each pair has a channel with
	// buffers of its own until the mesh ends. It is enough for 128 hosts.
	meshPairsMax = 1 << 14
	// meshHostsMax bounds the hosts that take part, for the same reason.
	meshHostsMax = 1 << 12
)

// meshPatience is how long a message may take on an idle machine; the slowest one is much faster. Tests have less.
var meshPatience = 10 * time.Second

// meshResult is what a mesh of messages came to.
type meshResult struct {
	Pairs    int           `json:"pairs"`    // ordered pairs that carried a message
	Possible int           `json:"possible"` // ordered pairs that there are
	Took     time.Duration `json:"took_ns"`
}

// meshError says between whom no message went, or no right one.
type meshError struct {
	bad []string
}

func (e *meshError) Error() string {
	const shown = 4
	list := e.bad
	more := ""
	if len(list) > shown {
		list, more = list[:shown], fmt.Sprintf(" and %d more", len(e.bad)-shown)
	}
	return fmt.Sprintf("no message, or a wrong one, from %s%s", strings.Join(list, ", "), more)
}

// meshHost is a host with a datagram queue pair to send from and to receive at.
type meshHost struct {
	name  string
	pd    *verbs.PD
	cq    *verbs.CQ
	qp    *verbs.QP
	send  *verbs.MR
	recv  *verbs.MR
	port  ib.PortNum
	lid   ib.LID
	gid   ib.GID
	close []func() error
	// posted says that a receive waits for a message.
	posted bool

	// This round: what is still to come.
	sent, received bool
	from           int
	wrong          string
}

func newMeshHost(d meshDevice) (h *meshHost, err error) {
	num, port, ok := portOf(d.host)
	if !ok {
		return nil, fmt.Errorf("%s has no port that is ACTIVE", d.host.Name())
	}
	h = &meshHost{name: d.host.Name(), port: num, lid: port.LID, gid: port.GIDs[0]}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.free())
		}
	}()
	keep := func(f func() error) { h.close = append(h.close, f) }
	dev, err := d.host.OpenUnlisted()
	if err != nil {
		return h, err
	}
	keep(dev.Close)
	ctx := verbs.Open(dev)
	if h.pd, err = ctx.AllocPD(); err != nil {
		return h, err
	}
	keep(h.pd.Close)
	if h.send, err = h.pd.RegMR(make([]byte, meshSize), 0); err != nil {
		return h, err
	}
	keep(h.send.Close)
	if h.recv, err = h.pd.RegMR(make([]byte, grhBytes+meshSize), verbs.AccessLocalWrite); err != nil {
		return h, err
	}
	keep(h.recv.Close)
	if h.cq, err = ctx.CreateCQ(8); err != nil {
		return h, err
	}
	keep(h.cq.Close)
	h.qp, err = h.pd.CreateQP(verbs.QPInit{Type: verbs.UD, SendCQ: h.cq, RecvCQ: h.cq,
		Caps: verbs.Caps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return h, err
	}
	keep(h.qp.Close)
	return h, h.qp.Ready(num, d.key, meshQKey)
}

func (h *meshHost) free() error {
	var errs []error
	for i := len(h.close) - 1; i >= 0; i-- {
		errs = append(errs, h.close[i]())
	}
	h.close = nil
	return errors.Join(errs...)
}

// message is what goes from one host to another: no two pairs have the same.
func message(buf []byte, from, to int) {
	x := uint32(from)<<16 ^ uint32(to) ^ 0x5bd1e995
	for i := range buf {
		x = x*1664525 + 1013904223
		buf[i] = byte(x >> 24)
	}
}

// meshDevice is a host and the partition to send in.
type meshDevice struct {
	host *live.Host
	key  uint16 // index of the partition's key
}

// sample takes at most n devices, evenly spread.
func sample(devs []meshDevice, n int) []meshDevice {
	if len(devs) <= n {
		return devs
	}
	some := make([]meshDevice, n)
	for i := range some {
		some[i] = devs[i*len(devs)/n]
	}
	return some
}

// mesh sends a message from every host to every other and looks at what arrives;
// in a fabric with too many pairs, from every host to as many others. In each
// round every host sends one and receives one, so no receive is ever missing.
// Routes are the routers' LIDs, by the prefixes of the subnets that they lead from and to.
func mesh(ctx context.Context, devs []meshDevice, routes map[[2]uint64][]ib.LID,
	show func(done, total int)) (res meshResult, err error) {
	started := time.Now()
	n := len(devs)
	hosts := make([]*meshHost, 0, n)
	defer func() {
		for _, h := range hosts {
			err = errors.Join(err, h.free())
		}
	}()
	for _, d := range devs {
		h, err := newMeshHost(d)
		if err != nil {
			return res, err
		}
		hosts = append(hosts, h)
	}
	res.Possible = n * (n - 1)
	steps := meshSteps(n)
	var failed meshError
	for i, step := range steps {
		if ctx.Err() != nil {
			return res, ctx.Err()
		}
		show(i*n, len(steps)*n)
		bad, err := meshRound(ctx, hosts, routes, step)
		if err != nil {
			return res, err
		}
		failed.bad = append(failed.bad, bad...)
		res.Pairs += n - len(bad)
		if len(bad) > 0 && len(bad) == n {
			break // nothing works: the other rounds would only wait as long
		}
	}
	res.Took = time.Since(started)
	if len(failed.bad) > 0 {
		return res, &failed
	}
	return res, nil
}

// meshSteps are the rounds: in each, host i sends to host i+step.
func meshSteps(n int) []int {
	rounds := n - 1
	if n*rounds > meshPairsMax {
		rounds = max(meshPairsMax/n, 1)
	}
	steps := make([]int, rounds)
	for i := range steps {
		// Spread evenly over the distances; all of them if rounds is n-1.
		steps[i] = 1 + i*(n-1)/rounds
	}
	return steps
}

// meshRound sends one message from every host, and names the pairs whose
// message did not arrive as it was sent.
func meshRound(ctx context.Context, hosts []*meshHost, routes map[[2]uint64][]ib.LID, step int) ([]string, error) {
	n := len(hosts)
	for i, h := range hosts {
		h.sent, h.received, h.wrong, h.from = false, false, "", (i-step+n)%n
		if h.posted {
			continue // nothing came in the round before
		}
		h.posted = true
		if err := h.qp.PostRecv(&verbs.RecvWR{SGList: h.recv.SGEs(0, grhBytes+meshSize)}); err != nil {
			return nil, err
		}
	}
	for i, h := range hosts {
		to := hosts[(i+step)%n]
		message(h.send.Bytes(), i, (i+step)%n)
		attr := verbs.AHAttr{DLID: to.lid, Port: h.port}
		if via := routes[[2]uint64{h.gid.Prefix(), to.gid.Prefix()}]; len(via) > 0 {
			attr.DLID, attr.IsGlobal, attr.DGID, attr.HopLimit = via[(i+step)%len(via)], true, to.gid, 0xFF
		}
		ah, err := h.pd.CreateAH(attr)
		if err != nil {
			return nil, err
		}
		defer ah.Close()
		err = h.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
			SGList: h.send.SGEs(0, meshSize),
			AH:     ah, RemoteQPN: to.qp.Num(), RemoteQKey: meshQKey})
		if err != nil {
			return nil, err
		}
	}
	limit := patience.New(meshPatience)
	for left := n; left > 0; {
		left = 0
		for i, h := range hosts {
			h.look(i, hosts)
			if !h.sent || !h.received {
				left++
			}
		}
		if left > 0 {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if limit.Over() {
				break
			}
			runtime.Gosched()
		}
	}
	var bad []string
	for _, h := range hosts {
		if !h.received || h.wrong != "" {
			wrong := h.wrong
			if wrong == "" {
				wrong = fmt.Sprintf(" (waited for %v)", limit)
			}
			bad = append(bad, fmt.Sprintf("%s to %s%s", hosts[h.from].name, h.name, wrong))
		}
	}
	return bad, nil
}

// look takes a host's completions and compares what arrived.
func (h *meshHost) look(self int, hosts []*meshHost) {
	var wcs [2]verbs.WC
	for _, wc := range wcs[:h.cq.Poll(wcs[:])] {
		switch {
		case wc.Status != verbs.WCSuccess:
			h.wrong = fmt.Sprintf(" (%v: %v)", wc.Opcode, wc.Status)
			h.sent, h.received = true, true
		case wc.Opcode != verbs.WCRecv:
			h.sent = true
		default:
			h.received, h.posted = true, false
			var want [meshSize]byte
			message(want[:], h.from, self)
			got := h.recv.Bytes()[grhBytes:]
			from, routed := hosts[h.from].lid, hosts[h.from].gid.Prefix() != h.gid.Prefix()
			if wc.ByteLen != grhBytes+meshSize || string(got) != string(want[:]) || wc.SLID != from && !routed {
				h.wrong = fmt.Sprintf(" (%d bytes from LID %d, not %d from LID %d, or other bytes)", wc.ByteLen,
					wc.SLID, grhBytes+meshSize, from)
			}
		}
	}
}
