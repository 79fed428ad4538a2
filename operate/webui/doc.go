// Package webui is the page that people look at a running fabric with: an http.Handler over a manager.Manager, with
// everything that the page is made of embedded.
//
// It is for operators: a map that stays readable from 8 hosts to 11,664, pages for hosts, switches and links, routes,
// the subnet manager, events, tenants, the worst cables, programs, and faults for rehearsals. It works offline, asks
// nobody but its own origin, and needs no build step: static/ is plain ES modules and one style sheet, plus uPlot for
// plots under static/vendor with its licence.
//
// It must not know how a fabric works: whatever it shows or changes goes through the Manager, which metrics, REST and
// commands use too, so that they agree. It opens no socket and checks no credential: whoever serves it puts TLS and
// credentials in front (it is an http.Handler like any other). What it does check is what only it can know, that a
// request that changes the fabric comes from its own page or from a program, not from another site in somebody's
// browser.
//
//	ui := webui.New(m, webui.Options{})
//	defer ui.Close()
//	http.Serve(listener, ui)
//
// # The map
//
// Where things stand is computed here (layout.go), once; what they look like is drawn in the page (static/js/map) into
// bitmaps, in slices of some milliseconds, so that a frame of panning is one blit whatever the size of the fabric.
//
// # Live updates
//
// GET /api/v1/stream is a stream of server-sent events. Each client is told what changed since what it was told last;
// one that does not keep up is told the latest state instead of what it missed, and one that does not read at all is
// cut off. What is sent is encoded once for all clients.
//
//	event: links   {"seq":7,"full":true,"at":…,"c":[…]}  c: for each cable that changed: index, state, then for both directions (what A sends, what B sends)
//	               utilisation in 1/1000, wait in 1/1000, errors a minute in 1/10. A full one leaves out cables that are up and idle.
//	event: status  what /api/v1/status answers
//	event: events  what /api/v1/events answers, only new ones
//
// Bits of a cable's state: 0-1 health (0 good, 1 watch, 2 bad, 3 down), 2 link not active, 3 link down, 4 slower than
// it could be, 5 a fault is set.
//
// # The API
//
// All under /api/v1/, JSON. Links are named by a port (leaf1[5]) or two (leaf1[5] spine1[2]). A wrong request is
// answered with 4xx and {"error","field","next"}, and has changed nothing. Bodies are at most 256 KiB, of type
// application/json, without unknown fields.
//
//	GET    topology                        nodes, cables, layout; gzipped, with an ETag
//	GET    status                          the fabric in some numbers
//	GET    search?q=                       nodes by name, GUID or LID; ports by GUID
//	GET    node?name=                      a host or a switch with its ports
//	GET    link?port=                      both ends of a cable: state, rates, counters, health, faults
//	GET    route?from=&to=                 the way between two hosts, there and back
//	GET    sm                              subnet manager, managers, partitions, sweeps
//	GET    events?after=&max=              the journal
//	GET    alarms                          what stands now; link says where, and node too where it is about one
//	POST   alarms/ID                       {"by","note"}: somebody looks after it
//	GET    mutes                           rules about alarms that nobody wants to be told of
//	POST   mutes                           {"link" or "node","kind","minutes","by","note"}: 0 minutes are without an end
//	DELETE mutes/ID
//	GET    cables?max=                     the worst cables, with why
//	GET    overview?seconds=&points=       traffic of the whole fabric, who sends most, worst cables, alarms
//	GET    history?port=&seconds=&points=  counters of a port over time, as rates
//	               node= in place of port= sums all ports of a node; from= and to= (RFC 3339) in place of seconds=
//	GET    history.csv?…                   the same as a table
//	GET    checks/doctor?interval=         what softib doctor says, which watches counters for 2 s
//	GET    checks/wiring                   what softib topo check live says
//	GET    checks/inventory                every node, and a bill of what the fabric is made of
//	GET    tenants                         all tenants
//	POST   tenants                         {"name","hosts","key","limited","ipoib","sl","gbps"}: create
//	POST   tenants/NAME/hosts              {"add":[…],"remove":[…],"limited"}
//	DELETE tenants/NAME
//	GET    programs                        what is attached: QPs, retries, latencies
//	GET    faults                          the faults that are set
//	PUT    faults                          {"link","fault"}: a fault as softib fault reads it ("down", "ber=1e-6 rate=10G delay=5us"), in place of whatever was set
//	DELETE faults?link=                    lift one; without link, all
package webui
