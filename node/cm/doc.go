// Package cm is the connection manager of one end port: it makes and ends connections between queue pairs by
// the messages of IBA chapter 12, and looks up the queue pairs of datagram services (SIDR).
//
// Its behaviour is that of Linux's ib_cm, because rdma_cm and the programs above it were written for that: the same
// events, the same states, the same calls. It touches no queue pair; QPAttr says what a queue pair has to be told on
// its way from INIT to RTS, as ib_cm_init_qp_attr does. It knows nothing of IP addresses and ports: those are in
// service IDs and private data, which belong to whoever speaks above.
//
// # Driving it
//
//	p := cm.New(cm.Config{Rand: r, CAGUID: guid})
//	l, err := p.Listen(service, ^uint64(0))
//	id, err := p.Connect(now, cm.ReqParams{…})
//
//	for { // whenever something was put in
//		env, dgram, ok := p.PollSend()    // onto the wire, from QP1, once: retries are made here
//		…
//		e, ok := p.PollEvent()
//	}
//	taken := p.Handle(now, env, dgram)    // what came from the wire
//	p.HandleTimer(now)                    // no later than p.NextDeadline()
//
// The side that asks: Connect, then RepReceived, then Ready. The side that is asked: ReqReceived, then Accept, then
// RTUReceived. Either: Disconnect, which asks for the end and also agrees to it after DReqReceived. Every ID, whoever
// made it, is its owner's until Destroy, in any state: what the other side has to be told then is told, and what has to
// be remembered afterwards (time wait) is remembered without an ID.
package cm
