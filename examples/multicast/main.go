// Command multicast sends one datagram to several hosts at once: the sender
// posts it once, the switches make the copies.
//
//	go run ./examples/multicast
//
// A group has two names: a multicast GID, by which programs know it, and a
// multicast LID, by which the switches forward. The subnet's management decides
// which hosts a LID reaches; a queue pair on such a host then attaches to the
// group to get its datagrams.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"softib/driver/live"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/verbs"
)

const (
	// groupLID is any multicast LID that is not taken.
	groupLID ib.LID = 0xC010
	// groupQKey has to be the same at all members: a datagram with another
	// one is dropped.
	groupQKey ib.QKey = 0x0badcafe
	// A received datagram is preceded by room for its global route header,
	// which multicast always has.
	grh     = 40
	bufSize = 256
)

// groupGID is in the range for groups that a program makes up (transient, link-local scope).
var groupGID = ib.GID{0xff, 0x12, 14: 0x51, 15: 0xb0}

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "multicast:", err)
		os.Exit(1)
	}
}

func run(w io.Writer) error {
	// Eight hosts below four leaf switches, so that copies are made in more than one
	// place.
	graph, err := topo.ParseSpec("fat-tree:radix=4,levels=2")
	if err != nil {
		return err
	}
	fabric, err := live.New(graph, live.Config{})
	if err != nil {
		return err
	}
	defer fabric.Close()
	if _, err := fabric.BringUp(); err != nil {
		return err
	}
	hosts := fabric.Hosts()

	// The group: h1 sends, h2, h4, h6 and h8 receive. The others are not
	// reached, and no link that leads to them alone carries anything.
	sender := hosts[0]
	receivers := []*live.Host{hosts[1], hosts[3], hosts[5], hosts[7]}
	if err := fabric.CreateMulticast(groupLID, append([]*live.Host{sender}, receivers...)...); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var members []*member
	for _, h := range receivers {
		m, err := newMember(h)
		if err != nil {
			return err
		}
		defer m.close()
		if err := m.join(); err != nil {
			return err
		}
		members = append(members, m)
	}
	from, err := newMember(sender)
	if err != nil {
		return err
	}
	defer from.close()

	for _, text := range []string{"one datagram", "for everybody"} {
		if err := from.send(ctx, text); err != nil {
			return err
		}
		for _, m := range members {
			got, lid, err := m.receive(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", m.host.Name(), err)
			}
			if got != text {
				return fmt.Errorf("%s received %q, want %q", m.host.Name(), got, text)
			}
			fmt.Fprintf(w, "%s received %q from LID %d\n", m.host.Name(), got, lid)
		}
	}

	// The counters tell that the sender's port carried each datagram once.
	c := fabric.Counters(topo.PortRef{Node: sender.Node().Index, Port: 1})
	fmt.Fprintf(w, "%s sent %d packets, %d hosts received each\n", sender.Name(), c[ib.PortMulticastXmitPkts],
		len(members))
	return nil
}

// member is a host's datagram queue pair with its memory.
type member struct {
	host *live.Host
	pd   *verbs.PD
	mr   *verbs.MR
	cq   *verbs.CQ
	qp   *verbs.QP
	wc   [1]verbs.WC

	joined bool
}

func newMember(h *live.Host) (*member, error) {
	m := &member{host: h}
	ctx := verbs.Open(h)
	var err error
	if m.pd, err = ctx.AllocPD(); err != nil {
		return nil, err
	}
	if m.mr, err = m.pd.RegMR(make([]byte, grh+bufSize), verbs.AccessLocalWrite); err != nil {
		return nil, err
	}
	if m.cq, err = ctx.CreateCQ(16); err != nil {
		return nil, err
	}
	// UD: datagrams, to anybody and from anybody, with no connection.
	if m.qp, err = m.pd.CreateQP(verbs.QPInit{Type: verbs.UD, SendCQ: m.cq, RecvCQ: m.cq,
		Caps: verbs.DefaultCaps}); err != nil {
		return nil, err
	}
	return m, m.qp.Ready(1, 0, groupQKey)
}

// close leaves the group and frees everything, in the reverse order: what is in
// use cannot be freed.
func (m *member) close() {
	var err error
	if m.joined {
		err = m.qp.DetachMcast(groupGID, groupLID)
	}
	if err := errors.Join(err, m.qp.Close(), m.cq.Close(), m.mr.Close(), m.pd.Close()); err != nil {
		fmt.Fprintln(os.Stderr, "multicast:", err)
	}
}

// join attaches to the group and posts a receive. A datagram that finds no receive
// is lost: nobody sends it again.
func (m *member) join() error {
	if err := m.qp.AttachMcast(groupGID, groupLID); err != nil {
		return err
	}
	m.joined = true
	return m.qp.PostRecv(&verbs.RecvWR{SGList: m.mr.SGEs(0, grh+bufSize)})
}

// send sends a datagram to the group. An address handle holds the way to it;
// the destination queue pair of every multicast is the same reserved number.
func (m *member) send(ctx context.Context, text string) error {
	ah, err := m.pd.CreateAH(verbs.AHAttr{DLID: groupLID, Port: 1, IsGlobal: true, DGID: groupGID, HopLimit: 1})
	if err != nil {
		return err
	}
	defer ah.Close()
	n := copy(m.mr.Bytes(), text)
	err = m.qp.PostSend(&verbs.SendWR{
		Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: m.mr.SGEs(0, n),
		AH: ah, RemoteQPN: ib.QPNMulticast, RemoteQKey: groupQKey,
	})
	if err != nil {
		return err
	}
	_, err = m.next(ctx)
	return err
}

// receive waits for the next datagram and posts a receive for the one after.
func (m *member) receive(ctx context.Context) (string, ib.LID, error) {
	wc, err := m.next(ctx)
	if err != nil {
		return "", 0, err
	}
	text := string(m.mr.Bytes()[grh:wc.ByteLen])
	return text, wc.SLID, m.qp.PostRecv(&verbs.RecvWR{SGList: m.mr.SGEs(0, grh+bufSize)})
}

// next waits for the next completion.
func (m *member) next(ctx context.Context) (verbs.WC, error) {
	if _, err := m.cq.Wait(ctx, m.wc[:]); err != nil {
		return verbs.WC{}, err
	}
	if s := m.wc[0].Status; s != verbs.WCSuccess {
		return verbs.WC{}, fmt.Errorf("%v ended with %v", m.wc[0].Opcode, s)
	}
	return m.wc[0], nil
}
