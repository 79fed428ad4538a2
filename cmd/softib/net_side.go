package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"softib/capi/dropin"
	"softib/driver/netif"
	"softib/internal/patience"
	"softib/proto/ib"
	"softib/verbs/attach"
)

// The network of a host is driven by a process of its own (softib net-side), which the fabric starts and which ends
// with it:
//
//	the fabric:  {"socket":"…","host":"h1","links":[…]}         on standard input, which stays open
//	the side:    {"ok":true} or {"error":"…","next":"…"}         on standard output
//	the fabric:  {"settle":1}                                    when no program is left
//	the side:    {"settled":1}                                   when nothing is left of those that there were
//
// Descriptor 3 is a socket over which the side sends the network namespace, before it says that all is well.

// netSide is the subcommand that drives a network.
const netSide = "net-side"

// netRequest is what it has to do.
type netRequest struct {
	Socket    string     `json:"socket"` // of the fabric
	Host      string     `json:"host"`
	Port      ib.PortNum `json:"port"`
	Libraries string     `json:"libraries"`
	Links     []netLink  `json:"links"` // the first has to be up
	Connected bool       `json:"connected,omitempty"`
	// User and Space say that the descriptors of a user namespace and of a network namespace follow, in this order.
	User  bool `json:"user,omitempty"`
	Space bool `json:"space,omitempty"`
}

// netLink is an interface.
type netLink struct {
	Name  string         `json:"name"`
	PKey  ib.PKey        `json:"pkey"`
	MTU   int            `json:"mtu"`
	Addrs []netip.Prefix `json:"addrs,omitempty"`
}

// netSettle asks for an answer when all that programs have left behind is sent.
type netSettle struct {
	Settle int `json:"settle"` // which question it is
}

// netReport is what became of it.
type netReport struct {
	OK      bool   `json:"ok,omitempty"`
	Error   string `json:"error,omitempty"`
	Next    string `json:"next,omitempty"`
	Settled int    `json:"settled,omitempty"`
}

func newNetSide() *cobra.Command {
	return &cobra.Command{
		Use:    netSide,
		Short:  "The network of a host",
		Hidden: true,
		Args:   arguments(0, 0, "no arguments: softib exec --net and softib net up start it"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return beNet(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

// netPatience is how long the administrator may take to let the first interface into its broadcast group, and
// refusedPatience how long it may refuse, on an idle machine: a group may be about to be made. leavePatience is how
// long those may take to hear of it whom ended programs have spoken with: some do not read any more.
const (
	netPatience     = 20 * time.Second
	refusedPatience = 3 * time.Second
	leavePatience   = 10 * time.Second
)

// beNet drives a network until standard input ends.
func beNet(ctx context.Context, in io.Reader, out io.Writer) error {
	signal.Ignore(os.Interrupt)
	debug.SetGCPercent(400) // next to nothing is allocated
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var q netRequest
	dec := json.NewDecoder(in)
	if err := dec.Decode(&q); err != nil {
		return notBySelf(fmt.Errorf("the request cannot be read: %w", err))
	}
	settle := make(chan int, 1)
	go func() {
		for s := (netSettle{}); dec.Decode(&s) == nil; {
			select {
			case <-settle: // nobody waits for that answer any more
			default:
			}
			settle <- s.Settle
		}
		cancel()
		// Nothing is lost that the fabric and the kernel do not clear up, and the fabric waits for the end.
		time.AfterFunc(sidePatience, func() { os.Exit(exitFailed) })
	}()
	enc := json.NewEncoder(out)
	err := q.drive(ctx, settle, enc.Encode)
	if err != nil && ctx.Err() == nil {
		_ = enc.Encode(netReport{Error: err.Error(), Next: nextOf(err)})
	}
	return nil
}

// drive makes the network, says that it is up, and moves its packets.
func (q *netRequest) drive(ctx context.Context, settle <-chan int, say func(any) error) error {
	dev, err := attach.Open(attach.Options{Socket: q.Socket, Host: q.Host})
	if err != nil {
		return err
	}
	defer dev.Close()
	fd := uintptr(3)
	inherited := func(is bool, name string) *os.File {
		if !is {
			return nil
		}
		fd++
		return os.NewFile(fd, name)
	}
	user, space := inherited(q.User, "user"), inherited(q.Space, "space")
	links := make([]dropin.Link, len(q.Links))
	for i, l := range q.Links {
		links[i] = dropin.Link{Name: l.Name, MTU: l.MTU, Addrs: l.Addrs}
	}
	made, err := dropin.Set{Dir: q.Libraries}.NewNetwork(user, space, links)
	if err != nil {
		return next(err, "a network takes /dev/net/tun and, without root, user namespaces")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	all := map[string]*netif.Interface{}
	for i, l := range q.Links {
		n, err := netif.Open(dev, netif.Config{Name: l.Name, Tun: made.Links[i], Port: q.Port, PKey: l.PKey,
			Addrs: l.Addrs, Connected: q.Connected})
		if err != nil {
			return err
		}
		all[l.Name] = n
		running.Go(func() { cancel(n.Run(ctx)) })
	}
	s := netif.Namespace{News: made.News, Groups4: made.Groups4, Groups6: made.Groups6, TCP4: made.TCP4,
		TCP6: made.TCP6}
	running.Go(func() { cancel(s.Watch(ctx, all)) })
	if err := q.await(ctx, all); err != nil {
		return err
	}
	err = unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(made.Space.Fd())), nil, unix.MSG_NOSIGNAL)
	runtime.KeepAlive(made.Space)
	if err != nil {
		return err
	}
	if err := say(netReport{OK: true}); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case i := <-settle:
			late, done := patience.Context(ctx, leavePatience)
			s.Settle(late, all)
			done()
			if err := say(netReport{Settled: i}); err != nil {
				return err
			}
		}
	}
}

// await waits until the first interface can be used, and until the kernel has taken over the addresses of all: others
// may be in partitions that have no IP.
func (q *netRequest) await(ctx context.Context, all map[string]*netif.Interface) error {
	late, cancel := patience.Context(ctx, netPatience)
	defer cancel()
	soon, cancel := patience.Context(ctx, refusedPatience)
	defer cancel()
	refused := soon.Done()
	for _, l := range q.Links {
		select {
		case <-all[l.Name].Addressed():
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late.Done():
			return next(fmt.Errorf("%s: the kernel does not use the addresses that it was given: %w", l.Name,
				context.Cause(late)), "try it again when the machine has less to do")
		}
	}
	n := all[q.Links[0].Name]
	for {
		select {
		case <-n.Ready():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-refused:
			refused = nil
			if !errors.Is(n.Refused(), attach.ErrRefused) {
				continue
			}
		case <-late.Done():
		}
		why := n.Refused()
		if why == nil {
			why = fmt.Errorf("the subnet's administrator does not answer: %w", context.Cause(late))
		}
		return next(fmt.Errorf("%s has no IP over InfiniBand in partition %v: %w", q.Links[0].Name, q.Links[0].PKey,
			why), "make the tenant with --ipoib, or give its line in partitions.conf the flag ipoib")
	}
}
