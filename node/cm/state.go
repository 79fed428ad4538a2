package cm

import "fmt"

// State is where a connection or a look-up stands (IBA 12.9.5 and 12.9.6; the names are Linux's).
type State uint8

// States.
const (
	// Closed is where a connection ends, and waits for Destroy. Nothing that arrives concerns it any more.
	Closed State = iota
	ReqSent
	ReqRcvd
	MRAReqSent
	MRAReqRcvd
	RepSent
	RepRcvd
	MRARepSent
	MRARepRcvd
	StateEstablished
	DReqSent
	DReqRcvd
	Timewait
	SIDRReqSent
	SIDRReqRcvd
	NumState
)

var stateNames = [NumState]string{"Closed", "ReqSent", "ReqRcvd", "MRAReqSent", "MRAReqRcvd", "RepSent", "RepRcvd",
	"MRARepSent",
	"MRARepRcvd", "Established", "DReqSent", "DReqRcvd", "Timewait", "SIDRReqSent", "SIDRReqRcvd"}

func (s State) String() string {
	if s < NumState {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// stateSet is a set of states.
type stateSet uint32

func states(all ...State) (s stateSet) {
	for _, x := range all {
		s |= 1 << x
	}
	return s
}

func (s stateSet) has(x State) bool { return s>>x&1 != 0 }

func (s stateSet) String() string {
	text := ""
	for x := range NumState {
		if s.has(x) {
			if text != "" {
				text += " or "
			}
			text += x.String()
		}
	}
	return text
}

// Sets of states that take the same steps.
var (
	// awaitRep are the states of a REQ without an answer, at the side that sent it.
	awaitRep = states(ReqSent, MRAReqRcvd)
	// answerReq are the states of a REQ that those above have yet to answer.
	answerReq = states(ReqRcvd, MRAReqSent)
	// awaitRTU are the states of a REP without an answer, at the side that sent it.
	awaitRTU = states(RepSent, MRARepRcvd)
	// answerRep are the states of a REP that those above have yet to answer.
	answerRep = states(RepRcvd, MRARepSent)
	// pending are the states in which the other side waits for those above.
	pending = answerReq | states(SIDRReqRcvd)
)

// moves is which states may follow each.
var moves = [NumState]stateSet{
	Closed:           states(ReqSent, ReqRcvd, SIDRReqSent, SIDRReqRcvd),
	ReqSent:          states(MRAReqRcvd, RepRcvd, Timewait, Closed),
	MRAReqRcvd:       states(RepRcvd, Timewait, Closed),
	ReqRcvd:          states(MRAReqSent, RepSent, Timewait, Closed),
	MRAReqSent:       states(RepSent, Timewait, Closed),
	RepSent:          states(MRARepRcvd, StateEstablished, DReqRcvd, Timewait, Closed),
	MRARepRcvd:       states(StateEstablished, DReqRcvd, Timewait, Closed),
	RepRcvd:          states(MRARepSent, StateEstablished, Timewait, Closed),
	MRARepSent:       states(StateEstablished, Timewait, Closed),
	StateEstablished: states(DReqSent, DReqRcvd, Timewait),
	DReqSent:         states(DReqRcvd, Timewait),
	DReqRcvd:         states(Timewait),
	Timewait:         states(Closed),
	SIDRReqSent:      states(Closed),
	SIDRReqRcvd:      states(Closed),
}
