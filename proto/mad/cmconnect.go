package mad

import (
	"encoding/binary"

	"softib/proto/ib"
)

// CMPath is one way in a REQ or a LAP, as its sender sees it (IBA 12.6.5).
type CMPath struct {
	LocalLID    ib.LID
	RemoteLID   ib.LID
	LocalGID    ib.GID
	RemoteGID   ib.GID
	FlowLabel   uint32 // 20 bits
	PacketRate  Rate   // 6 bits
	TClass      uint8
	HopLimit    uint8
	SL          ib.SL
	SubnetLocal bool
	AckTimeout  uint8 // 5 bits: 4.096 us * 2^n
}

// IsZero reports whether there is no such way: a REQ without an alternate path.
func (p *CMPath) IsZero() bool { return p.LocalLID == 0 && p.LocalGID.IsZero() }

const cmPathLen = 44

func cmPathFields(name string, off int) []Field {
	return []Field{
		cmField(name+".LocalLID", off, 0, 16, Uint),
		cmField(name+".RemoteLID", off+2, 0, 16, Uint),
		cmField(name+".LocalGID", off+4, 0, 128, GID),
		cmField(name+".RemoteGID", off+20, 0, 128, GID),
		cmField(name+".FlowLabel", off+36, 0, 20, Hex),
		cmEnum(name+".PacketRate", off+39, 2, 6, rateName),
		cmField(name+".TClass", off+40, 0, 8, Hex),
		cmField(name+".HopLimit", off+41, 0, 8, Uint),
		cmField(name+".SL", off+42, 0, 4, Uint),
		cmField(name+".SubnetLocal", off+42, 4, 1, Uint),
		cmField(name+".AckTimeout", off+43, 0, 5, Uint),
	}
}

func parseCMPath(b []byte) CMPath {
	be := binary.BigEndian
	return CMPath{
		LocalLID: ib.LID(be.Uint16(b)), RemoteLID: ib.LID(be.Uint16(b[2:])), LocalGID: ib.GID(b[4:20]),
		RemoteGID: ib.GID(b[20:36]),
		FlowLabel: be.Uint32(b[36:]) >> 12, PacketRate: Rate(b[39] & 0x3F), TClass: b[40], HopLimit: b[41],
		SL: ib.SL(b[42] >> 4), SubnetLocal: b[42]&8 != 0, AckTimeout: b[43] >> 3,
	}
}

func (p *CMPath) append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint16(b, uint16(p.LocalLID))
	b = be.AppendUint16(b, uint16(p.RemoteLID))
	b = append(b, p.LocalGID[:]...)
	b = append(b, p.RemoteGID[:]...)
	b = be.AppendUint32(b, p.FlowLabel<<12|uint32(p.PacketRate)&0x3F)
	return append(b, p.TClass, p.HopLimit, byte(p.SL)<<4|bit(p.SubnetLocal, 3), p.AckTimeout<<3)
}

// CMReqLayout asks for a connection (IBA 12.6.5).
var CMReqLayout = Layout{"REQ", CMDataLen, func() []Field {
	f := []Field{
		cmField("LocalCommID", 0, 0, 32, Hex),
		cmField("VendorID", 5, 0, 24, Hex),
		cmField("ServiceID", 8, 0, 64, Hex),
		cmField("LocalCAGUID", 16, 0, 64, GUID),
		cmField("LocalQ_Key", 28, 0, 32, Hex),
		cmField("LocalQPN", 32, 0, 24, Hex),
		cmField("ResponderResources", 35, 0, 8, Uint),
		cmField("LocalEECN", 36, 0, 24, Hex),
		cmField("InitiatorDepth", 39, 0, 8, Uint),
		cmField("RemoteEECN", 40, 0, 24, Hex),
		cmField("RemoteCMTimeout", 43, 0, 5, Uint),
		cmEnum("Transport", 43, 5, 2, func(v uint64) string { return CMTransport(v).String() }),
		cmField("FlowControl", 43, 7, 1, Uint),
		cmField("StartingPSN", 44, 0, 24, Hex),
		cmField("LocalCMTimeout", 47, 0, 5, Uint),
		cmField("RetryCount", 47, 5, 3, Uint),
		cmField("P_Key", 48, 0, 16, Hex),
		cmEnum("PathMTU", 50, 0, 4, mtuName),
		cmField("RDCExists", 50, 4, 1, Uint),
		cmField("RNRRetryCount", 50, 5, 3, Uint),
		cmField("MaxCMRetries", 51, 0, 4, Uint),
		cmField("SRQ", 51, 4, 1, Uint),
		cmField("ExtendedTransport", 51, 5, 3, Uint),
	}
	f = append(f, cmPathFields("Primary", 52)...)
	f = append(f, cmPathFields("Alternate", 52+cmPathLen)...)
	return append(f, cmField("SAPSupported", 139, 5, 1, Uint), cmPrivate(140, CMReqPrivate))
}()}

// CMReq asks for a connection. Local is its sender.
type CMReq struct {
	LocalCommID        uint32
	VendorID           uint32 // 24 bits: whose options the attribute modifier has
	ServiceID          uint64
	LocalCAGUID        ib.GUID
	LocalQKey          ib.QKey
	LocalQPN           ib.QPN
	ResponderResources uint8 // RDMA reads and atomics that the sender can have outstanding as a target
	LocalEECN          uint32
	InitiatorDepth     uint8 // RDMA reads and atomics that the sender starts
	RemoteEECN         uint32
	RemoteCMTimeout    uint8 // 5 bits: how long the receiver may take to answer, 4.096 us * 2^n
	Transport          CMTransport
	FlowControl        bool // end to end
	StartingPSN        ib.PSN
	LocalCMTimeout     uint8 // 5 bits: how long the sender may take to answer a REP
	RetryCount         uint8 // 3 bits
	PKey               ib.PKey
	PathMTU            ib.MTU // 4 bits
	RDCExists          bool
	RNRRetryCount      uint8 // 3 bits
	MaxCMRetries       uint8 // 4 bits: of either side's messages
	SRQ                bool
	ExtendedTransport  uint8 // 3 bits
	Primary            CMPath
	Alternate          CMPath
	SAPSupported       bool
	PrivateData        [CMReqPrivate]byte
}

// Parse reads the message and returns its length.
func (m *CMReq) Parse(b []byte) (int, error) {
	if err := CMReqLayout.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*m = CMReq{
		LocalCommID: be.Uint32(b), VendorID: be.Uint32(b[4:]) & 0xFFFFFF, ServiceID: be.Uint64(b[8:]),
		LocalCAGUID: ib.GUID(be.Uint64(b[16:])),
		LocalQKey:   ib.QKey(be.Uint32(b[28:])), LocalQPN: ib.QPN(be.Uint32(b[32:]) >> 8), ResponderResources: b[35],
		LocalEECN: be.Uint32(b[36:]) >> 8, InitiatorDepth: b[39], RemoteEECN: be.Uint32(b[40:]) >> 8,
		RemoteCMTimeout: b[43] >> 3, Transport: CMTransport(b[43] >> 1 & 3), FlowControl: b[43]&1 != 0,
		StartingPSN: ib.PSN(be.Uint32(b[44:]) >> 8), LocalCMTimeout: b[47] >> 3, RetryCount: b[47] & 7,
		PKey: ib.PKey(be.Uint16(b[48:])), PathMTU: ib.MTU(b[50] >> 4), RDCExists: b[50]&8 != 0,
		RNRRetryCount: b[50] & 7,
		MaxCMRetries:  b[51] >> 4, SRQ: b[51]&8 != 0, ExtendedTransport: b[51] & 7,
		Primary: parseCMPath(b[52:]), Alternate: parseCMPath(b[52+cmPathLen:]), SAPSupported: b[139]&4 != 0,
		PrivateData: [CMReqPrivate]byte(b[140:]),
	}
	return CMDataLen, nil
}

// Append writes the message after b.
func (m *CMReq) Append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint32(b, m.LocalCommID)
	b = be.AppendUint32(b, m.VendorID&0xFFFFFF)
	b = be.AppendUint64(b, m.ServiceID)
	b = append(be.AppendUint64(b, uint64(m.LocalCAGUID)), 0, 0, 0, 0)
	b = be.AppendUint32(b, uint32(m.LocalQKey))
	b = be.AppendUint32(b, uint32(m.LocalQPN)<<8|uint32(m.ResponderResources))
	b = be.AppendUint32(b, m.LocalEECN<<8|uint32(m.InitiatorDepth))
	b = be.AppendUint32(b, m.RemoteEECN<<8|uint32(m.RemoteCMTimeout<<3|byte(m.Transport)&3<<1|bit(m.FlowControl, 0)))
	b = be.AppendUint32(b, uint32(m.StartingPSN)<<8|uint32(m.LocalCMTimeout<<3|m.RetryCount&7))
	b = be.AppendUint16(b, uint16(m.PKey))
	b = append(b, byte(m.PathMTU)<<4|bit(m.RDCExists, 3)|m.RNRRetryCount&7,
		m.MaxCMRetries<<4|bit(m.SRQ, 3)|m.ExtendedTransport&7)
	b = m.Primary.append(b)
	b = m.Alternate.append(b)
	b[len(b)-1] |= bit(m.SAPSupported, 2)
	return append(b, m.PrivateData[:]...)
}

// CMMRALayout says that an answer takes longer (IBA 12.6.6).
var CMMRALayout = Layout{"MRA", CMDataLen, []Field{
	cmField("LocalCommID", 0, 0, 32, Hex),
	cmField("RemoteCommID", 4, 0, 32, Hex),
	cmEnum("Message", 8, 0, 2, cmMessageName),
	cmField("ServiceTimeout", 9, 0, 5, Uint),
	cmPrivate(10, CMMRAPrivate),
}}

// CMMRA says that an answer takes longer.
type CMMRA struct {
	LocalCommID    uint32
	RemoteCommID   uint32
	Message        CMMessage
	ServiceTimeout uint8 // 5 bits: 4.096 us * 2^n
	PrivateData    [CMMRAPrivate]byte
}

// Parse reads the message and returns its length.
func (m *CMMRA) Parse(b []byte) (int, error) {
	if err := CMMRALayout.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*m = CMMRA{be.Uint32(b), be.Uint32(b[4:]), CMMessage(b[8] >> 6), b[9] >> 3, [CMMRAPrivate]byte(b[10:])}
	return CMDataLen, nil
}

// Append writes the message after b.
func (m *CMMRA) Append(b []byte) []byte {
	b = append(appendIDs(b, m.LocalCommID, m.RemoteCommID), byte(m.Message)<<6, m.ServiceTimeout<<3)
	return append(b, m.PrivateData[:]...)
}

// CMRejLayout rejects a connection (IBA 12.6.7).
var CMRejLayout = Layout{"REJ", CMDataLen, []Field{
	cmField("LocalCommID", 0, 0, 32, Hex),
	cmField("RemoteCommID", 4, 0, 32, Hex),
	cmEnum("Message", 8, 0, 2, cmMessageName),
	cmField("InfoLength", 9, 0, 7, Uint),
	cmEnum("Reason", 10, 0, 16, cmReasonName),
	cmField("Info", 12, 0, CMInfoLen*8, Bytes),
	cmPrivate(84, CMRejPrivate),
}}

// CMRej rejects a connection.
type CMRej struct {
	LocalCommID  uint32
	RemoteCommID uint32
	Message      CMMessage
	InfoLength   uint8 // 7 bits
	Reason       CMReason
	Info         [CMInfoLen]byte // ARI: additional reject information
	PrivateData  [CMRejPrivate]byte
}

// ARI is as much of the additional information as there is.
func (m *CMRej) ARI() []byte { return m.Info[:min(int(m.InfoLength), CMInfoLen)] }

// Parse reads the message and returns its length.
func (m *CMRej) Parse(b []byte) (int, error) {
	if err := CMRejLayout.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*m = CMRej{be.Uint32(b), be.Uint32(b[4:]), CMMessage(b[8] >> 6), b[9] >> 1, CMReason(be.Uint16(b[10:])),
		[CMInfoLen]byte(b[12:]), [CMRejPrivate]byte(b[84:])}
	return CMDataLen, nil
}

// Append writes the message after b.
func (m *CMRej) Append(b []byte) []byte {
	b = append(appendIDs(b, m.LocalCommID, m.RemoteCommID), byte(m.Message)<<6, m.InfoLength<<1)
	b = binary.BigEndian.AppendUint16(b, uint16(m.Reason))
	b = append(b, m.Info[:]...)
	return append(b, m.PrivateData[:]...)
}

// CMRepLayout accepts a connection (IBA 12.6.8).
var CMRepLayout = Layout{"REP", CMDataLen, []Field{
	cmField("LocalCommID", 0, 0, 32, Hex),
	cmField("RemoteCommID", 4, 0, 32, Hex),
	cmField("LocalQ_Key", 8, 0, 32, Hex),
	cmField("LocalQPN", 12, 0, 24, Hex),
	cmField("VendorIDHigh", 15, 0, 8, Hex),
	cmField("LocalEECN", 16, 0, 24, Hex),
	cmField("VendorIDMiddle", 19, 0, 8, Hex),
	cmField("StartingPSN", 20, 0, 24, Hex),
	cmField("VendorIDLow", 23, 0, 8, Hex),
	cmField("ResponderResources", 24, 0, 8, Uint),
	cmField("InitiatorDepth", 25, 0, 8, Uint),
	cmField("TargetAckDelay", 26, 0, 5, Uint),
	cmField("FailoverAccepted", 26, 5, 2, Uint),
	cmField("FlowControl", 26, 7, 1, Uint),
	cmField("RNRRetryCount", 27, 0, 3, Uint),
	cmField("SRQ", 27, 3, 1, Uint),
	cmField("LocalCAGUID", 28, 0, 64, GUID),
	cmPrivate(36, CMRepPrivate),
}}

// CMRep accepts a connection. Local is its sender.
type CMRep struct {
	LocalCommID        uint32
	RemoteCommID       uint32
	LocalQKey          ib.QKey
	LocalQPN           ib.QPN
	LocalEECN          uint32
	StartingPSN        ib.PSN
	VendorIDHigh       uint8 // of 24 bits: whose options the attribute modifier has
	VendorIDMiddle     uint8
	VendorIDLow        uint8
	ResponderResources uint8
	InitiatorDepth     uint8
	TargetAckDelay     uint8 // 5 bits: 4.096 us * 2^n
	FailoverAccepted   uint8 // 2 bits: 0 accepted, 1 not supported, 2 rejected
	FlowControl        bool
	RNRRetryCount      uint8 // 3 bits
	SRQ                bool
	LocalCAGUID        ib.GUID
	PrivateData        [CMRepPrivate]byte
}

// Parse reads the message and returns its length.
func (m *CMRep) Parse(b []byte) (int, error) {
	if err := CMRepLayout.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*m = CMRep{
		LocalCommID: be.Uint32(b), RemoteCommID: be.Uint32(b[4:]), LocalQKey: ib.QKey(be.Uint32(b[8:])),
		LocalQPN: ib.QPN(be.Uint32(b[12:]) >> 8), LocalEECN: be.Uint32(b[16:]) >> 8,
		StartingPSN:  ib.PSN(be.Uint32(b[20:]) >> 8),
		VendorIDHigh: b[15], VendorIDMiddle: b[19], VendorIDLow: b[23], ResponderResources: b[24],
		InitiatorDepth: b[25], TargetAckDelay: b[26] >> 3, FailoverAccepted: b[26] >> 1 & 3,
		FlowControl: b[26]&1 != 0, RNRRetryCount: b[27] >> 5, SRQ: b[27]&0x10 != 0,
		LocalCAGUID: ib.GUID(be.Uint64(b[28:])),
		PrivateData: [CMRepPrivate]byte(b[36:]),
	}
	return CMDataLen, nil
}

// Append writes the message after b.
func (m *CMRep) Append(b []byte) []byte {
	be := binary.BigEndian
	b = appendIDs(b, m.LocalCommID, m.RemoteCommID)
	b = be.AppendUint32(b, uint32(m.LocalQKey))
	b = be.AppendUint32(b, uint32(m.LocalQPN)<<8|uint32(m.VendorIDHigh))
	b = be.AppendUint32(b, m.LocalEECN<<8|uint32(m.VendorIDMiddle))
	b = be.AppendUint32(b, uint32(m.StartingPSN)<<8|uint32(m.VendorIDLow))
	b = append(b, m.ResponderResources, m.InitiatorDepth,
		m.TargetAckDelay<<3|m.FailoverAccepted&3<<1|bit(m.FlowControl, 0), m.RNRRetryCount<<5|bit(m.SRQ, 4))
	b = be.AppendUint64(b, uint64(m.LocalCAGUID))
	return append(b, m.PrivateData[:]...)
}

// VendorID is whose options the attribute modifier has; 0 if there are none.
func (m *CMRep) VendorID() uint32 {
	return uint32(m.VendorIDHigh)<<16 | uint32(m.VendorIDMiddle)<<8 | uint32(m.VendorIDLow)
}

// SetVendorID sets its 24 bits.
func (m *CMRep) SetVendorID(v uint32) {
	m.VendorIDHigh, m.VendorIDMiddle, m.VendorIDLow = uint8(v>>16), uint8(v>>8), uint8(v)
}

// CMRTULayout says that a connection is ready to use (IBA 12.6.9).
var CMRTULayout = Layout{"RTU", CMDataLen, []Field{
	cmField("LocalCommID", 0, 0, 32, Hex),
	cmField("RemoteCommID", 4, 0, 32, Hex),
	cmPrivate(8, CMRTUPrivate),
}}

// CMRTU says that a connection is ready to use.
type CMRTU struct {
	LocalCommID  uint32
	RemoteCommID uint32
	PrivateData  [CMRTUPrivate]byte
}

// Parse reads the message and returns its length.
func (m *CMRTU) Parse(b []byte) (int, error) {
	if err := CMRTULayout.Check(b); err != nil {
		return 0, err
	}
	*m = CMRTU{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:]), [CMRTUPrivate]byte(b[8:])}
	return CMDataLen, nil
}

// Append writes the message after b.
func (m *CMRTU) Append(b []byte) []byte {
	return append(appendIDs(b, m.LocalCommID, m.RemoteCommID), m.PrivateData[:]...)
}

func appendIDs(b []byte, local, remote uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, local), remote)
}
