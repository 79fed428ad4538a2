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

var stateNames = [NumState]string{"Closed", "ReqSent", "ReqRcvd", "MRAReqSent", "MRAReqRcvd", "RepSent", "RepRcvd", "MRARepSent",
	"MRARepRcvd", "Established", "DReqSent", "DReqRcvd", "Timewait", "SIDRReqSent", "SIDRReqRcvd"}

func (s State) String() string {
	if s < NumState {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}
