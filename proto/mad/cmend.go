package mad

import (
	"encoding/binary"

	"softib/proto/ib"
)

// CMDReqLayout asks to end a connection (IBA 12.6.10).
var CMDReqLayout = Layout{"DREQ", CMDataLen, []Field{
	cmField("LocalCommID", 0, 0, 32, Hex),
	cmField("RemoteCommID", 4, 0, 32, Hex),
	cmField("RemoteQPN", 8, 0, 24, Hex),
	cmPrivate(12, CMDReqPrivate),
}}

// CMDReq asks to end a connection.
type CMDReq struct {
	LocalCommID  uint32
	RemoteCommID uint32
	RemoteQPN    ib.QPN
	PrivateData  [CMDReqPrivate]byte
}

// Parse reads the message and returns its length.
func (m *CMDReq) Parse(b []byte) (int, error) {
	if err := CMDReqLayout.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*m = CMDReq{be.Uint32(b), be.Uint32(b[4:]), ib.QPN(be.Uint32(b[8:]) >> 8), [CMDReqPrivate]byte(b[12:])}
	return CMDataLen, nil
}

// Append writes the message after b.
func (m *CMDReq) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(appendIDs(b, m.LocalCommID, m.RemoteCommID), uint32(m.RemoteQPN)<<8)
	return append(b, m.PrivateData[:]...)
}

// CMDRepLayout answers a DREQ (IBA 12.6.11).
var CMDRepLayout = Layout{"DREP", CMDataLen, []Field{
	cmField("LocalCommID", 0, 0, 32, Hex),
	cmField("RemoteCommID", 4, 0, 32, Hex),
	cmPrivate(8, CMDRepPrivate),
}}

// CMDRep answers a DREQ.
type CMDRep struct {
	LocalCommID  uint32
	RemoteCommID uint32
	PrivateData  [CMDRepPrivate]byte
}

// Parse reads the message and returns its length.
func (m *CMDRep) Parse(b []byte) (int, error) {
	if err := CMDRepLayout.Check(b); err != nil {
		return 0, err
	}
	*m = CMDRep{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:]), [CMDRepPrivate]byte(b[8:])}
	return CMDataLen, nil
}

// Append writes the message after b.
func (m *CMDRep) Append(b []byte) []byte {
	return append(appendIDs(b, m.LocalCommID, m.RemoteCommID), m.PrivateData[:]...)
}

// CMLAPLayout offers a connection another alternate path (IBA 12.8.1). Its path has the fields of a
// REQ's in another order.
var CMLAPLayout = Layout{"LAP", CMDataLen, []Field{
	cmField("LocalCommID", 0, 0, 32, Hex),
	cmField("RemoteCommID", 4, 0, 32, Hex),
	cmField("RemoteQPN", 12, 0, 24, Hex),
	cmField("RemoteCMTimeout", 15, 0, 5, Uint),
	cmField("Alternate.LocalLID", 20, 0, 16, Uint),
	cmField("Alternate.RemoteLID", 22, 0, 16, Uint),
	cmField("Alternate.LocalGID", 24, 0, 128, GID),
	cmField("Alternate.RemoteGID", 40, 0, 128, GID),
	cmField("Alternate.FlowLabel", 56, 0, 20, Hex),
	cmField("Alternate.TClass", 59, 0, 8, Hex),
	cmField("Alternate.HopLimit", 60, 0, 8, Uint),
	cmEnum("Alternate.PacketRate", 61, 2, 6, rateName),
	cmField("Alternate.SL", 62, 0, 4, Uint),
	cmField("Alternate.SubnetLocal", 62, 4, 1, Uint),
	cmField("Alternate.AckTimeout", 63, 0, 5, Uint),
	cmPrivate(64, CMLAPPrivate),
}}

// CMLAP offers a connection another alternate path.
type CMLAP struct {
	LocalCommID     uint32
	RemoteCommID    uint32
	RemoteQPN       ib.QPN
	RemoteCMTimeout uint8 // 5 bits
	Alternate       CMPath
	PrivateData     [CMLAPPrivate]byte
}

// Parse reads the message and returns its length.
func (m *CMLAP) Parse(b []byte) (int, error) {
	if err := CMLAPLayout.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*m = CMLAP{be.Uint32(b), be.Uint32(b[4:]), ib.QPN(be.Uint32(b[12:]) >> 8), b[15] >> 3, CMPath{
		LocalLID: ib.LID(be.Uint16(b[20:])), RemoteLID: ib.LID(be.Uint16(b[22:])), LocalGID: ib.GID(b[24:40]),
		RemoteGID: ib.GID(b[40:56]),
		FlowLabel: be.Uint32(b[56:]) >> 12, TClass: b[59], HopLimit: b[60], PacketRate: Rate(b[61] & 0x3F),
		SL: ib.SL(b[62] >> 4), SubnetLocal: b[62]&8 != 0, AckTimeout: b[63] >> 3,
	}, [CMLAPPrivate]byte(b[64:])}
	return CMDataLen, nil
}

// Append writes the message after b.
func (m *CMLAP) Append(b []byte) []byte {
	be := binary.BigEndian
	b = append(appendIDs(b, m.LocalCommID, m.RemoteCommID), 0, 0, 0, 0)
	b = append(be.AppendUint32(b, uint32(m.RemoteQPN)<<8|uint32(m.RemoteCMTimeout<<3)), 0, 0, 0, 0)
	p := &m.Alternate
	b = be.AppendUint16(b, uint16(p.LocalLID))
	b = be.AppendUint16(b, uint16(p.RemoteLID))
	b = append(b, p.LocalGID[:]...)
	b = append(b, p.RemoteGID[:]...)
	b = be.AppendUint32(b, p.FlowLabel<<12|uint32(p.TClass))
	b = append(b, p.HopLimit, byte(p.PacketRate)&0x3F, byte(p.SL)<<4|bit(p.SubnetLocal, 3), p.AckTimeout<<3)
	return append(b, m.PrivateData[:]...)
}

// CMAPRLayout answers a LAP (IBA 12.8.2).
var CMAPRLayout = Layout{"APR", CMDataLen, []Field{
	cmField("LocalCommID", 0, 0, 32, Hex),
	cmField("RemoteCommID", 4, 0, 32, Hex),
	cmField("InfoLength", 8, 0, 8, Uint),
	cmEnum("Status", 9, 0, 8, func(v uint64) string { return APStatus(v).String() }),
	cmField("Info", 12, 0, CMInfoLen*8, Bytes),
	cmPrivate(84, CMAPRPrivate),
}}

// CMAPR answers a LAP.
type CMAPR struct {
	LocalCommID  uint32
	RemoteCommID uint32
	InfoLength   uint8
	Status       APStatus
	Info         [CMInfoLen]byte
	PrivateData  [CMAPRPrivate]byte
}

// Parse reads the message and returns its length.
func (m *CMAPR) Parse(b []byte) (int, error) {
	if err := CMAPRLayout.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*m = CMAPR{be.Uint32(b), be.Uint32(b[4:]), b[8], APStatus(b[9]), [CMInfoLen]byte(b[12:]),
		[CMAPRPrivate]byte(b[84:])}
	return CMDataLen, nil
}

// Append writes the message after b.
func (m *CMAPR) Append(b []byte) []byte {
	b = append(appendIDs(b, m.LocalCommID, m.RemoteCommID), m.InfoLength, byte(m.Status), 0, 0)
	b = append(b, m.Info[:]...)
	return append(b, m.PrivateData[:]...)
}

// SIDRReqLayout asks for the queue pair of a datagram service (IBA 12.11.1).
var SIDRReqLayout = Layout{"SIDR_REQ", CMDataLen, []Field{
	cmField("RequestID", 0, 0, 32, Hex),
	cmField("P_Key", 4, 0, 16, Hex),
	cmField("ServiceID", 8, 0, 64, Hex),
	cmPrivate(16, SIDRReqPrivate),
}}

// SIDRReq asks for the queue pair of a datagram service.
type SIDRReq struct {
	RequestID   uint32
	PKey        ib.PKey
	ServiceID   uint64
	PrivateData [SIDRReqPrivate]byte
}

// Parse reads the message and returns its length.
func (m *SIDRReq) Parse(b []byte) (int, error) {
	if err := SIDRReqLayout.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*m = SIDRReq{be.Uint32(b), ib.PKey(be.Uint16(b[4:])), be.Uint64(b[8:]), [SIDRReqPrivate]byte(b[16:])}
	return CMDataLen, nil
}

// Append writes the message after b.
func (m *SIDRReq) Append(b []byte) []byte {
	be := binary.BigEndian
	b = append(be.AppendUint16(be.AppendUint32(b, m.RequestID), uint16(m.PKey)), 0, 0)
	b = be.AppendUint64(b, m.ServiceID)
	return append(b, m.PrivateData[:]...)
}

// SIDRRepLayout answers a SIDR_REQ (IBA 12.11.2).
var SIDRRepLayout = Layout{"SIDR_REP", CMDataLen, []Field{
	cmField("RequestID", 0, 0, 32, Hex),
	cmEnum("Status", 4, 0, 8, func(v uint64) string { return SIDRStatus(v).String() }),
	cmField("InfoLength", 5, 0, 8, Uint),
	cmField("QPN", 8, 0, 24, Hex),
	cmField("ServiceID", 12, 0, 64, Hex),
	cmField("Q_Key", 20, 0, 32, Hex),
	cmField("Info", 24, 0, CMInfoLen*8, Bytes),
	cmPrivate(96, SIDRRepPrivate),
}}

// SIDRRep answers a SIDR_REQ.
type SIDRRep struct {
	RequestID   uint32
	Status      SIDRStatus
	InfoLength  uint8
	QPN         ib.QPN
	ServiceID   uint64
	QKey        ib.QKey
	Info        [CMInfoLen]byte
	PrivateData [SIDRRepPrivate]byte
}

// Parse reads the message and returns its length.
func (m *SIDRRep) Parse(b []byte) (int, error) {
	if err := SIDRRepLayout.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*m = SIDRRep{be.Uint32(b), SIDRStatus(b[4]), b[5], ib.QPN(be.Uint32(b[8:]) >> 8), be.Uint64(b[12:]),
		ib.QKey(be.Uint32(b[20:])),
		[CMInfoLen]byte(b[24:]), [SIDRRepPrivate]byte(b[96:])}
	return CMDataLen, nil
}

// Append writes the message after b.
func (m *SIDRRep) Append(b []byte) []byte {
	be := binary.BigEndian
	b = append(be.AppendUint32(b, m.RequestID), byte(m.Status), m.InfoLength, 0, 0)
	b = be.AppendUint32(b, uint32(m.QPN)<<8)
	b = be.AppendUint64(b, m.ServiceID)
	b = be.AppendUint32(b, uint32(m.QKey))
	b = append(b, m.Info[:]...)
	return append(b, m.PrivateData[:]...)
}
