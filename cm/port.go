package cm

import (
	"softib/ib"
	"softib/mad"
)

// Port is the connection manager of one end port. It is driven by one caller at a time.
type Port struct {
	cfg  Config
	attr PortAttr
}

func New(cfg Config) *Port                                                        { return &Port{cfg: cfg} }
func (p *Port) SetAttr(a PortAttr)                                                { p.attr = a }
func (p *Port) Listen(serviceID, mask uint64) (ListenID, error)                   { return 0, ErrInUse }
func (p *Port) Unlisten(id ListenID) error                                        { return ErrListen }
func (p *Port) Connect(now ib.Time, r ReqParams) (ConnID, error)                  { return 0, ErrParam }
func (p *Port) Accept(now ib.Time, id ConnID, r RepParams) error                  { return ErrConn }
func (p *Port) Ready(now ib.Time, id ConnID, private []byte) error                { return ErrConn }
func (p *Port) Established(now ib.Time, id ConnID) error                          { return ErrConn }
func (p *Port) Delay(now ib.Time, id ConnID, timeout uint8, private []byte) error { return ErrConn }
func (p *Port) DelayRepeated(id ConnID, timeout uint8, private []byte) error      { return ErrConn }
func (p *Port) Reject(now ib.Time, id ConnID, why mad.CMReason, ari, private []byte) error {
	return ErrConn
}
func (p *Port) Disconnect(now ib.Time, id ConnID, private []byte) error   { return ErrConn }
func (p *Port) SIDRRequest(now ib.Time, r SIDRParams) (ConnID, error)     { return 0, ErrParam }
func (p *Port) SIDRReply(now ib.Time, id ConnID, r SIDRReplyParams) error { return ErrConn }
func (p *Port) Destroy(now ib.Time, id ConnID) error                      { return ErrConn }
func (p *Port) Info(id ConnID) (Info, bool)                               { return Info{}, false }
func (p *Port) QPAttr(id ConnID, to QPState) (QPAttr, error)              { return QPAttr{}, ErrConn }
func (p *Port) Handle(now ib.Time, env mad.Envelope, dgram []byte) bool   { return false }
func (p *Port) HandleTimer(now ib.Time)                                   {}
func (p *Port) NextDeadline() ib.Time                                     { return ib.Never }
func (p *Port) PollSend() (mad.Envelope, *[mad.Size]byte, bool)           { return mad.Envelope{}, nil, false }
func (p *Port) PollEvent() (Event, bool)                                  { return Event{}, false }
