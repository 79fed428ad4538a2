package server

import (
	"context"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/verbs/attach/proto"
)

// Groups makes ports members of multicast groups. A port has one membership for all of its programs, those of librdmacm
// among them, so whoever keeps those fills this.
type Groups interface {
	// Join waits for the administrator's answer. Leave is called once.
	Join(ctx context.Context, host string, port ib.PortNum, want mad.MCMemberRecord) (got mad.MCMemberRecord,
		leave func(), err error)
}

// membersMax bounds what one process can be a member of.
const membersMax = 1024

// join has a process's port join, while the conversation goes on.
func (t *talk) join(j *proto.Join) {
	ctx, cancel := context.WithCancel(context.Background())
	why := ""
	t.mu.Lock()
	switch _, taken := t.leave[j.ID]; {
	case t.groups == nil:
		why = "this fabric has no service for multicast groups"
	case taken:
		why = "the number of the membership is in use"
	case len(t.leave) >= membersMax:
		why = "the process is a member of too many groups"
	default:
		t.leave[j.ID] = cancel // until there is a membership to end
	}
	t.mu.Unlock()
	if why != "" {
		cancel()
		_ = t.send(&proto.Message{Joined: &proto.Joined{ID: j.ID, Why: why}})
		return
	}
	t.joining.Go(func() {
		defer cancel()
		answer := &proto.Joined{ID: j.ID}
		got, leave, err := t.groups.Join(ctx, t.p.Host().Name(), j.Port, j.Want)
		if err == nil {
			answer.Got = got
			t.mu.Lock()
			if _, wanted := t.leave[j.ID]; wanted {
				t.leave[j.ID] = leave
				leave = nil
			}
			t.mu.Unlock()
			if leave != nil {
				leave() // it has left before it was told
			}
		} else {
			answer.Why = err.Error()
			t.leaveGroup(j.ID)
		}
		_ = t.send(&proto.Message{Joined: answer})
	})
}

// leaveGroup ends a membership, or the question for one.
func (t *talk) leaveGroup(id uint64) {
	t.mu.Lock()
	leave := t.leave[id]
	delete(t.leave, id)
	t.mu.Unlock()
	if leave != nil {
		leave()
	}
}

// leaveAll ends what a process has not ended itself.
func (t *talk) leaveAll() {
	t.mu.Lock()
	ids := make([]uint64, 0, len(t.leave))
	for id := range t.leave {
		ids = append(ids, id)
	}
	t.mu.Unlock()
	for _, id := range ids {
		t.leaveGroup(id)
	}
	t.joining.Wait()
}
