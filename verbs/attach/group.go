package attach

import (
	"context"
	"fmt"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/verbs"
	"softib/verbs/attach/proto"
)

// Membership says which multicast group to join.
type Membership struct {
	MGID ib.GID     // zero: the subnet's administrator makes up a new group
	Port ib.PortNum // 1 if 0
	PKey ib.PKey    // the partition; the port's first with full membership if 0
	QKey ib.QKey    // of a group that does not exist yet; rdma_cm's default if 0
}

// Group is a multicast group that the port is a member of. The subnet has the parameters: members who came first have
// set them.
type Group struct {
	MGID ib.GID
	MLID ib.LID
	PKey ib.PKey
	QKey ib.QKey // datagrams and queue pairs of the group have to have it
	MTU  ib.MTU  // bounds a datagram

	d    *Device
	id   uint64
	addr verbs.AHAttr
}

// AHAttr is the way to the group, for verbs.PD.CreateAH.
func (g *Group) AHAttr() verbs.AHAttr { return g.addr }

// JoinMulticast makes the device's port a full member of a multicast group: the administrator is asked, and the manager
// writes the switches' tables. It may be a moment until it has, and what is sent before does not arrive. A queue pair
// gets what comes to the port after verbs.QP.AttachMcast. The membership ends with Leave or Close.
func (d *Device) JoinMulticast(ctx context.Context, want Membership) (*Group, error) {
	port := max(want.Port, 1)
	join := &proto.Join{Port: port, Want: mad.MCMemberRecord{MGID: want.MGID, PKey: want.PKey, QKey: want.QKey}}
	m, err := d.call(ctx, &join.ID, &proto.Message{Join: join})
	if err != nil {
		if ctx.Err() != nil {
			_ = d.conn.Send(&proto.Message{Leave: &proto.Leave{ID: join.ID}})
		}
		return nil, fmt.Errorf("attach: joining %v: %w", want.MGID, err)
	}
	a := m.Joined
	switch {
	case a == nil:
		return nil, fmt.Errorf("attach: joining %v: %w", want.MGID, proto.ErrMessage)
	case a.Why != "":
		return nil, fmt.Errorf("attach: joining %v: %w: %s", want.MGID, ErrRefused, a.Why)
	}
	r := &a.Got
	return &Group{MGID: r.MGID, MLID: r.MLID, PKey: r.PKey, QKey: r.QKey, MTU: r.MTU, d: d, id: join.ID,
		addr: verbs.AHAttr{DLID: r.MLID, SL: r.SL, StaticRate: uint8(r.Rate), IsGlobal: true, DGID: r.MGID,
			FlowLabel: r.FlowLabel, HopLimit: r.HopLimit, TClass: r.TClass, Port: port}}, nil
}

// Leave ends the membership. Queue pairs have to be detached by themselves.
func (g *Group) Leave() error {
	if err := g.d.conn.Send(&proto.Message{Leave: &proto.Leave{ID: g.id}}); err != nil {
		return fmt.Errorf("attach: leaving %v: %w: %w", g.MGID, verbs.ErrClosed, err)
	}
	return nil
}
