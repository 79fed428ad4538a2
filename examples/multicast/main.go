// Command multicast sends one datagram to several hosts at once: the sender
// posts it once, the switches make the copies.
//
//	softib up -d
//	go run ./examples/multicast
//
// A group has two names: a multicast GID, by which programs know it, and a
// multicast LID, by which the switches forward. A port that joins is made a
// member by the subnet's management, which tells the LID; a queue pair on that
// port then attaches to the group to get its datagrams.
//
// One program is on five hosts here, as if it were five processes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"softib/proto/ib"
	"softib/verbs"
	"softib/verbs/attach"
)

const (
	// A received datagram is preceded by room for its global route header,
	// which multicast always has.
	grh     = 40
	bufSize = 256
	// patience is how long a sender waits before it sends again.
	patience = 20 * time.Millisecond
)

// groupGID is in the range for groups that a program makes up (transient, link-local scope).
var groupGID = ib.GID{0xff, 0x12, 14: 0x51, 15: 0xb0}

func main() {
	name := flag.String("name", "", "the fabric, as softib up --name had it")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := run(ctx, *name); err != nil {
		fmt.Fprintln(os.Stderr, "multicast:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name string) error {
	// h1 sends, the others receive. All are members, because only members may
	// send; hosts that have not joined are not reached, and no link that leads
	// to them alone carries anything.
	var members []*member
	for _, host := range []string{"h1", "h2", "h4", "h6", "h8"} {
		dev, err := attach.Open(attach.Options{Name: name, Host: host})
		if err != nil {
			return err
		}
		defer dev.Close() // leaves the group, and frees all that was made on it
		m, err := newMember(ctx, dev)
		if err != nil {
			return fmt.Errorf("%s: %w", host, err)
		}
		members = append(members, m)
	}
	sender, receivers := members[0], members[1:]
	for _, m := range receivers {
		if err := m.listen(); err != nil {
			return err
		}
	}
	for _, text := range []string{"one datagram", "for everybody"} {
		if err := announce(ctx, sender, receivers, text); err != nil {
			return err
		}
	}
	return nil
}

// announce sends until every receiver has heard the text. A datagram may be lost, as the
// first ones are that are faster than the switches' tables; nobody but the
// programs themselves can know.
func announce(ctx context.Context, sender *member, receivers []*member, text string) error {
	for missing := receivers; len(missing) > 0; {
		if err := sender.send(ctx, text); err != nil {
			return err
		}
		var still []*member
		for _, m := range missing {
			waiting, cancel := context.WithTimeout(ctx, patience)
			err := m.await(waiting, text)
			cancel()
			switch {
			case errors.Is(err, context.DeadlineExceeded):
				still = append(still, m)
			case err != nil:
				return fmt.Errorf("%s: %w", m.host, err)
			}
		}
		missing = still
	}
	for _, m := range receivers {
		fmt.Printf("%s received %q from LID %d\n", m.host, text, m.from)
	}
	return nil
}

// member is a host's datagram queue pair with its memory.
type member struct {
	host  string
	group *attach.Group
	pd    *verbs.PD
	mr    *verbs.MR
	cq    *verbs.CQ
	qp    *verbs.QP
	wc    [1]verbs.WC
	from  ib.LID // of whom the last text was
}

func newMember(ctx context.Context, dev *attach.Device) (*member, error) {
	m := &member{host: dev.Name()}
	var err error
	// What the group's parameters are, the subnet knows: the first member set them.
	if m.group, err = dev.JoinMulticast(ctx, attach.Membership{MGID: groupGID}); err != nil {
		return nil, err
	}
	c := verbs.Open(dev)
	if m.pd, err = c.AllocPD(); err != nil {
		return nil, err
	}
	if m.mr, err = m.pd.RegMR(make([]byte, grh+bufSize), verbs.AccessLocalWrite); err != nil {
		return nil, err
	}
	if m.cq, err = c.CreateCQ(16); err != nil {
		return nil, err
	}
	// UD: datagrams, to anybody and from anybody, with no connection.
	if m.qp, err = m.pd.CreateQP(verbs.QPInit{Type: verbs.UD, SendCQ: m.cq, RecvCQ: m.cq,
		Caps: verbs.DefaultCaps}); err != nil {
		return nil, err
	}
	// A datagram with another Q_Key than the group's is dropped, as is one of another partition.
	port, err := c.QueryPort(1)
	if err != nil {
		return nil, err
	}
	index, ok := port.PKeyIndex(m.group.PKey)
	if !ok {
		return nil, fmt.Errorf("the port is not in the group's partition %v", m.group.PKey)
	}
	return m, m.qp.Ready(1, index, m.group.QKey)
}

// listen attaches to the group and posts a receive. A datagram that finds no receive
// is lost: nobody sends it again.
func (m *member) listen() error {
	if err := m.qp.AttachMcast(m.group.MGID, m.group.MLID); err != nil {
		return err
	}
	return m.postRecv()
}

func (m *member) postRecv() error {
	return m.qp.PostRecv(&verbs.RecvWR{SGList: m.mr.SGEs(0, grh+bufSize)})
}

// send sends a datagram to the group. An address handle holds the way to it;
// the destination queue pair of every multicast is the same reserved number.
func (m *member) send(ctx context.Context, text string) error {
	ah, err := m.pd.CreateAH(m.group.AHAttr())
	if err != nil {
		return err
	}
	defer ah.Close()
	n := copy(m.mr.Bytes(), text)
	err = m.qp.PostSend(&verbs.SendWR{
		Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: m.mr.SGEs(0, n),
		AH: ah, RemoteQPN: ib.QPNMulticast, RemoteQKey: m.group.QKey,
	})
	if err != nil {
		return err
	}
	_, err = m.next(ctx)
	return err
}

// await waits for a text. Others are repeated ones that were heard before.
func (m *member) await(ctx context.Context, text string) error {
	for {
		wc, err := m.next(ctx)
		if err != nil {
			return err
		}
		got := string(m.mr.Bytes()[grh:wc.ByteLen])
		if err := m.postRecv(); err != nil {
			return err
		}
		if got == text {
			m.from = wc.SLID
			return nil
		}
	}
}

// next waits for the next completion.
func (m *member) next(ctx context.Context) (verbs.WC, error) {
	if _, err := m.cq.Wait(ctx, m.wc[:]); err != nil {
		return verbs.WC{}, err
	}
	return m.wc[0], m.wc[0].Err()
}
