package sim

import (
	"softib/node/aggregate"
	"softib/node/hca"
	"softib/proto/ib"
)

// Results by multicast: the root of a tree sends each by a datagram, too, which switches multiply along the tree, so
// that it passes no other node. The groups are the aggregation manager's own, above those that a subnet manager gives
// out, which begin with the first address.
const (
	castMin  = ib.LIDMulticastMin + 512
	castMax  = ib.LIDMulticastMin + 1023
	castQKey = ib.QKey(0x5A49)
	grhBytes = 40 // before every datagram that is received
)

// castGID is the name of a group.
func castGID(lid ib.LID) ib.GID {
	return ib.GID{0: 0xFF, 1: 0x12, 2: 0x5A, 14: byte(lid >> 8), 15: byte(lid)}
}

// gather makes the multicast group of a job, if there is an address for it and datagrams can carry its results.
func (r *Reductions) gather(j *Reduction) error {
	t := j.Tree
	if t.Payload+aggregate.HeaderLen > r.cfg.MTU.Bytes() || !r.address(j) {
		return nil
	}
	for i := range t.Nodes {
		var ports ib.PortMask
		for _, c := range t.Nodes[i].Children {
			if c.Node >= 0 {
				ports.Set(t.Nodes[c.Node].Far)
			} else {
				ports.Set(r.s.graph.Port(j.places[c.Member]).PeerPort)
			}
		}
		if err := r.s.Switch(r.switches[t.Nodes[i].Switch].Index).SetMulticastPorts(j.cast, ports); err != nil {
			return err
		}
	}
	sw := r.switches[t.Nodes[0].Switch].Index
	root := &redEnd{redSide: r.nodes[sw].side, node: sw, peer: aggregate.All, head: grhBytes}
	if err := r.openCast(j, root, 1); err != nil {
		return err
	}
	var err error
	if root.ah, err = root.CreateAH(root.pd, hca.AHAttr{DLID: j.cast, IsGlobal: true, DGID: castGID(j.cast),
		HopLimit: 1, Port: 1}); err != nil {
		return err
	}
	r.nodes[sw].casts[t.ID] = root
	for m, st := range j.seats {
		place := j.places[m]
		e := &redEnd{redSide: r.sides[st.host], node: place.Node, out: place.Port, seat: st, head: grhBytes}
		if err := r.openCast(j, e, place.Port); err != nil {
			return err
		}
		if err := e.AttachMcast(e.qp, castGID(j.cast), j.cast); err != nil {
			return err
		}
		if err := r.receives(e); err != nil {
			return err
		}
	}
	return nil
}

// openCast makes a datagram queue pair.
func (r *Reductions) openCast(j *Reduction, e *redEnd, port ib.PortNum) error {
	if err := r.open(j, e, hca.UD); err != nil {
		return err
	}
	if err := e.ModifyQP(e.qp, hca.QPAttr{State: hca.StateInit, Port: port, QKey: castQKey},
		hca.MaskState|hca.MaskPKeyIndex|hca.MaskPort|hca.MaskQKey); err != nil {
		return err
	}
	if err := e.ModifyQP(e.qp, hca.QPAttr{State: hca.StateRTR}, hca.MaskState); err != nil {
		return err
	}
	return e.ModifyQP(e.qp, hca.QPAttr{State: hca.StateRTS}, hca.MaskState|hca.MaskSQPSN)
}

// address finds an address that no other job has, the one that was free for longest.
func (r *Reductions) address(j *Reduction) bool {
	for range castMax - castMin + 1 {
		if r.casts++; r.casts < castMin || r.casts > castMax {
			r.casts = castMin
		}
		free := true
		for _, o := range r.jobs {
			free = free && o.cast != r.casts
		}
		if free {
			j.cast = r.casts
			return true
		}
	}
	return false
}

// scatter ends the multicast group of a job.
func (r *Reductions) scatter(j *Reduction) {
	if j.cast == 0 {
		return
	}
	for i := range j.Tree.Nodes {
		// It is an address that tables have.
		_ = r.s.Switch(r.switches[j.Tree.Nodes[i].Switch].Index).SetMulticastPorts(j.cast, ib.PortMask{})
	}
	for _, e := range j.ends {
		if e.head > 0 && e.seat != nil && e.qp != nil {
			_ = e.DetachMcast(e.qp, castGID(j.cast), j.cast) // unless it was not attached yet
		}
	}
	j.cast = 0
}
