package cm

import (
	"math/rand/v2"

	"softib/proto/ib"
	"softib/proto/mad"
)

// ConnID names a connection, or a look-up of a datagram service, at its port. It is also the communication ID that
// travels. It holds from the call or the event that made it until Destroy.
type ConnID uint32

// ListenID names a listener at its port.
type ListenID uint32

// Config is what a port's connection manager is made with.
type Config struct {
	// Rand draws communication IDs and transaction IDs. It must not be nil, nor be the same in two lives of a port:
	// peers would take new requests for old ones.
	Rand *rand.Rand
	// CAGUID is the adapter's node GUID: with it a peer tells two lives of a queue pair number apart.
	CAGUID ib.GUID
	// AckDelay is the adapter's Local CA ACK Delay, 4.096 us * 2^n.
	AckDelay uint8
	// Port is the port's number, for QPAttr: 1 if 0.
	Port ib.PortNum
	// PendingMax is how many requests may wait for an answer of those above; more are rejected. 65536 by default.
	PendingMax int
	// Linger is how long the last word on a request (a REJ, a SIDR_REP) is remembered, to
	// give it again if the request is repeated: 10 s by default.
	Linger ib.Time
	// Grace is how long a REQ or a SIDR_REQ for a service that nobody listens to waits for a listener before it is
	// rejected; 0 rejects at once. Programs of a pair agree to connect and then race: on a fabric whose answers take
	// microseconds the one that connects may win.
	Grace ib.Time
}

// PortAttr is what the port's tables say now. Empty tables mean that nobody knows: then nothing is refused for their
// sake.
type PortAttr struct {
	LMC   uint8
	GIDs  []ib.GID
	PKeys []ib.PKey
}

// Path is a way from this port to another, and where in this port's tables its parts stand.
type Path struct {
	mad.PathRecord // SLID and SGID are ours

	PKeyIndex uint16 // of PKey
	GIDIndex  uint8  // of SGID
	PathBits  uint8  // the lower bits of SLID that LMC covers
}

// Envelope is how a message to the other end's connection manager is addressed.
func (p *Path) Envelope() mad.Envelope {
	e := mad.Envelope{LID: p.DLID, QPN: ib.QPNGSI, QKey: ib.QKeyGSI, SL: p.SL, PathBits: p.PathBits,
		PKeyIndex: p.PKeyIndex}
	if p.global() {
		e.HasGRH, e.HopLimit, e.TClass, e.GIDIndex, e.FlowLabel, e.GID = true, p.HopLimit, p.TClass, p.GIDIndex,
			p.FlowLabel, p.DGID
	}
	return e
}

// global reports whether packets need a global route header: they may pass a router.
func (p *Path) global() bool { return p.HopLimit > 1 }

// Transport is the kind of queue pairs that are connected.
type Transport uint8

// Transports.
const (
	RC Transport = iota
	UC
	XRC
	NumTransport
)

func (t Transport) String() string {
	if t < NumTransport {
		return [...]string{"RC", "UC", "XRC"}[t]
	}
	return "Transport(?)"
}

// ECE is options of a vendor that both ends of a connection may agree on (IBA's enhanced connection establishment);
// none if Vendor is 0.
type ECE struct {
	Vendor  uint32 // 24 bits
	Options uint32
}

// ReqParams is what Connect asks for.
type ReqParams struct {
	Primary   Path
	Alternate *Path // nil if there is none

	ServiceID          uint64
	Transport          Transport
	QPN                ib.QPN // ours
	StartingPSN        ib.PSN // that the other side starts to send with
	SRQ                bool
	ResponderResources uint8 // reads and atomics that we can serve at a time
	InitiatorDepth     uint8 // reads and atomics that we start at a time
	FlowControl        bool
	RetryCount         uint8 // 0 to 7
	RNRRetryCount      uint8 // 0 to 7

	// RemoteCMTimeout and LocalCMTimeout are how long each side's connection manager may take to answer, 4.096 us *
	// 2^n, and MaxCMRetries is how often either repeats a message, 0 to 15.
	RemoteCMTimeout uint8
	LocalCMTimeout  uint8
	MaxCMRetries    uint8

	ECE     ECE
	Private []byte // at most mad.CMReqPrivate
}

// RepParams is what Accept answers with.
type RepParams struct {
	QPN                ib.QPN // ours
	StartingPSN        ib.PSN // that the other side starts to send with
	SRQ                bool
	ResponderResources uint8
	InitiatorDepth     uint8
	FlowControl        bool
	RNRRetryCount      uint8
	// FailoverAccepted answers an alternate path: 0 accepted, 1 not supported, 2 rejected.
	FailoverAccepted uint8
	ECE              ECE
	Private          []byte // at most mad.CMRepPrivate
}

// SIDRParams is what SIDRRequest asks for: the queue pair of a datagram service.
type SIDRParams struct {
	Path      Path
	ServiceID uint64
	Timeout   ib.Time // of each time that it is sent
	Retries   int
	Private   []byte // at most mad.SIDRReqPrivate
}

// SIDRReplyParams is what SIDRReply answers with.
type SIDRReplyParams struct {
	Status  mad.SIDRStatus
	QPN     ib.QPN
	QKey    ib.QKey
	Info    []byte // at most mad.CMInfoLen
	Private []byte // at most mad.SIDRRepPrivate
}

// Info is what is known of a connection or a look-up.
type Info struct {
	State     State
	Passive   bool // the other side asked
	SIDR      bool // a look-up
	Listen    ListenID
	ServiceID uint64
	Transport Transport
	Remote    mad.Envelope // where its messages go

	RemoteCommID uint32 // 0 if not known yet; a look-up's is its RequestID
	RemoteCAGUID ib.GUID
	LocalQPN     ib.QPN
	RemoteQPN    ib.QPN
	RQPSN        ib.PSN // that the other side starts to send with
	SQPSN        ib.PSN // that we start to send with

	ResponderResources uint8 // of our queue pair
	InitiatorDepth     uint8
	RetryCount         uint8
	RNRRetryCount      uint8
	SRQ                bool // at the other end

	// Primary and Alternate are seen from here, whoever asked.
	Primary      Path
	Alternate    Path
	HasAlternate bool
}
