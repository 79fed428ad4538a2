package sm

import (
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
)

// Send is a message that the manager wants to be sent. Its Data is valid until the next call to the manager.
type Send = madrpc.Message

// registrations are what a manager wants of the management service.
var registrations = [...]madrpc.Registration{
	{Class: mad.ClassSMDirect, ClassVersion: 1, Methods: madrpc.MethodSet(mad.MethodGet, mad.MethodSet, mad.MethodTrap),
		Name: "subnet manager"},
	{Class: mad.ClassSMLID, ClassVersion: 1, Methods: madrpc.MethodSet(mad.MethodGet, mad.MethodSet, mad.MethodTrap),
		Name: "subnet manager"},
	{Class: mad.ClassSA, ClassVersion: 2, RMPP: true, Name: "subnet administrator", Methods: madrpc.MethodSet(
		mad.MethodGet, mad.MethodSet, mad.MethodDelete, mad.MethodGetTable, mad.MethodGetMulti,
		mad.MethodGetTraceTable)},
	{Class: mad.ClassCC, ClassVersion: 2, Name: "congestion control manager"},
}

// Register makes the agents of a manager at a management service, whose method it is given.
func Register(with func(madrpc.Registration) (madrpc.AgentID, error)) (madrpc.Agents, error) {
	return madrpc.RegisterAll(registrations[:], with)
}

// HandleDelivery takes what the management service delivers: HandleRequest or HandleReply.
func (m *Manager) HandleDelivery(now ib.Time, d madrpc.Delivery) {
	switch d.Kind {
	case madrpc.Unsolicited:
		m.HandleRequest(now, d.Env, d.Data)
	case madrpc.Response:
		m.HandleReply(now, d.Cookie, d.Data)
	default:
		m.HandleReply(now, d.Cookie, nil)
	}
}
