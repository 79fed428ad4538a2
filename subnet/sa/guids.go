package sa

import (
	"cmp"
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

var (
	guidBlock = comp(mad.GUIDInfoRecordTable, "BlockNum")
	// guidFirst is the component of a block's first entry; those of the others follow.
	guidFirst = comp(mad.GUIDInfoRecordTable, "GUID")
)

// PortGUIDs is a port's table of GUIDs as its host wants it: the port's own first, then its aliases, 0 where there is
// none, nothing after the last.
type PortGUIDs struct {
	Port  ib.GUID
	GUIDs []ib.GUID
}

// guidPlace is an entry of a port's table.
type guidPlace struct {
	port ib.GUID
	at   int
}

// guidTable is what hosts have asked for beyond their ports' own GUIDs. Virtual functions get their GIDs this way.
type guidTable struct {
	wishes map[ib.GUID][]ib.GUID // by the port's own
	// made are the GUIDs of our own making, so that a place that asks again gets the same one.
	made map[guidPlace]ib.GUID
	last uint32
	// changed are the ports whose wishes the manager has not heard of yet.
	changed []ib.GUID
}

func (t *guidTable) init() {
	t.wishes, t.made = map[ib.GUID][]ib.GUID{}, map[guidPlace]ib.GUID{}
}

// tell queues an event.
func (t *guidTable) tell(port ib.GUID) {
	if !slices.Contains(t.changed, port) {
		t.changed = append(t.changed, port)
	}
}

// GUIDs of our own making start with 0x02, which marks them as locally administered. Generated topologies begin theirs
// in the same way but go on with 01 and 02.
const (
	guidMade    ib.GUID = 0x0250f11b_aa000000
	guidMadeMax         = 1<<24 - 1
)

// makeGUID makes up a GUID for a place, or finds the one that it had; 0 if there are no more.
func (a *Admin) makeGUID(place guidPlace) ib.GUID {
	t := &a.guids
	if g, ok := t.made[place]; ok && !a.guidTaken(g) {
		return g
	}
	for t.last < guidMadeMax {
		t.last++
		if g := guidMade | ib.GUID(t.last); !a.guidTaken(g) {
			t.made[place] = g
			return g
		}
	}
	return 0
}

// guidTaken reports whether a GUID is a port's, its own or another.
func (a *Admin) guidTaken(g ib.GUID) bool {
	if _, ok := a.net.ByPortGUID(g); ok {
		return true
	}
	_, ok := a.aliases[g]
	return ok
}

// guidsOf is a port's table: as its host wants it, or else as the port has it.
func (a *Admin) guidsOf(p *subnet.Port) []ib.GUID {
	if w, ok := a.guids.wishes[p.GUID]; ok {
		return w
	}
	if p.Tables != nil && len(p.Tables.GUIDs) > 0 {
		return p.Tables.GUIDs
	}
	return []ib.GUID{p.GUID}
}

// indexAliases finds the ports of all aliases. The first port that has one keeps it.
func (a *Admin) indexAliases() {
	a.aliases = map[ib.GUID]subnet.Ref{}
	for _, r := range a.ends {
		p := a.net.Port(r)
		if _, ok := a.guids.wishes[p.GUID]; !ok && (p.Tables == nil || len(p.Tables.GUIDs) == 0) {
			continue // most ports, in a large subnet
		}
		for i, g := range a.guidsOf(p) {
			if i > 0 && g != 0 && !a.guidTaken(g) {
				a.aliases[g] = r
			}
		}
	}
}

// BaseGUID is the own GUID of the port that a GUID belongs to; the same one if it is no alias.
func (a *Admin) BaseGUID(g ib.GUID) ib.GUID {
	if r, ok := a.aliases[g]; ok {
		return a.net.Port(r).GUID
	}
	return g
}

// EachGUIDs visits the tables that ports should have, where hosts have asked for something, in the order of the ports'
// GUIDs: f must not change what it is given.
func (a *Admin) EachGUIDs(f func(PortGUIDs)) {
	for _, w := range a.exportGUIDs() {
		f(w)
	}
}

func (a *Admin) exportGUIDs() []PortGUIDs {
	var all []PortGUIDs
	for port, list := range a.guids.wishes { // tidy: order-free
		all = append(all, PortGUIDs{port, list})
	}
	slices.SortFunc(all, func(x, y PortGUIDs) int { return cmp.Compare(x.Port, y.Port) })
	return all
}

// importGUIDs takes tables that another life knew, where there is no wish yet.
func (a *Admin) importGUIDs(list []PortGUIDs) (refused int) {
	known := map[ib.GUID]bool{}
	for _, w := range a.exportGUIDs() {
		for _, g := range w.GUIDs {
			known[g] = true
		}
	}
	for _, w := range list {
		if _, ok := a.guids.wishes[w.Port]; ok {
			continue
		}
		if w.Port == 0 || len(w.GUIDs) == 0 || len(w.GUIDs) > guidsMax || known[w.Port] {
			refused++
			continue
		}
		mine := slices.Clone(w.GUIDs)
		mine[0] = w.Port
		for i, g := range mine {
			if i > 0 && known[g] {
				mine[i] = 0
			}
			known[g] = g != 0
		}
		a.guids.wishes[w.Port] = mine
		a.guids.tell(w.Port)
	}
	if a.net != nil {
		a.indexAliases()
	}
	return refused
}

// guidsMax is how many GUIDs a port can have at most: GUIDCap has 8 bits.
const guidsMax = 255

// guidRequest is a request to change a block of a port's GUIDs.
type guidRequest struct {
	port *subnet.Port
	ref  subnet.Ref
	rec  mad.GUIDInfoRecord
	// table is a copy of the port's, as long as the port can take; from is the place of the block in it.
	table []ib.GUID
	from  int
	// chosen are the places that the request is about.
	chosen []int
}

// askedGUIDs reads a request for GUIDs. Who asks must be trusted or on the node itself: an alias lets a port
// receive what is meant for it.
func (a *Admin) askedGUIDs(q *query) (g guidRequest, status mad.Status) {
	if !q.has(guidLID | guidBlock) {
		return g, mad.StatusSAInsufComponents
	}
	if _, err := g.rec.Parse(q.data); err != nil {
		return g, mad.StatusSAReqInvalid
	}
	ref, ok := a.net.ByLID(g.rec.LID)
	if !ok || !a.may(q, ref) {
		return g, mad.StatusSANoRecords
	}
	if !q.trusted && ref.Node != q.from.Node {
		return g, mad.StatusSADenied
	}
	g.ref, g.port = ref, a.net.Port(ref)
	g.from = int(g.rec.BlockNum) * mad.GUIDsPerBlock
	if g.from >= int(g.port.Info.GUIDCap) {
		return g, mad.StatusSANoRecords
	}
	for i := range mad.GUIDsPerBlock {
		if q.has(guidFirst<<i) && g.from+i < int(g.port.Info.GUIDCap) {
			g.chosen = append(g.chosen, g.from+i)
		}
	}
	if len(g.chosen) > 0 && g.chosen[0] == 0 {
		return g, mad.StatusSAReqInvalid // the port's own is not anybody's to change (IBA 14.2.5.5)
	}
	g.table = make([]ib.GUID, g.port.Info.GUIDCap)
	copy(g.table, a.guidsOf(g.port))
	g.table[0] = g.port.GUID
	return g, mad.StatusOK
}

// setGUIDs gives a port aliases (IBA 15.2.5.18): those that are asked for, and ones of our own making where 0 is. One
// that is another's is not given, which the answer shows: it is the block as it is now.
func (a *Admin) setGUIDs(q *query) mad.Status {
	g, status := a.askedGUIDs(q)
	if status != mad.StatusOK {
		return status
	}
	for _, at := range g.chosen {
		want, have := g.rec.GUID[at-g.from], g.table[at]
		switch {
		case have != 0 && (want == 0 || want == have), want != 0 && a.guidTaken(want):
			continue
		case have != 0 && a.joined(have):
			return mad.StatusSADenied
		case want == 0:
			if want = a.makeGUID(guidPlace{g.port.GUID, at}); want == 0 {
				return mad.StatusSANoResources
			}
		}
		if slices.Contains(g.table, want) {
			continue
		}
		g.table[at] = want
	}
	a.wishGUIDs(q, &g)
	return mad.StatusOK
}

// deleteGUIDs takes aliases from a port. One that is in a multicast group stays until it has left.
func (a *Admin) deleteGUIDs(q *query) mad.Status {
	g, status := a.askedGUIDs(q)
	if status != mad.StatusOK {
		return status
	}
	for _, at := range g.chosen {
		if g.table[at] != 0 && a.joined(g.table[at]) {
			return mad.StatusSADenied
		}
		g.table[at] = 0
	}
	a.wishGUIDs(q, &g)
	return mad.StatusOK
}

// joined reports whether a GUID is in a multicast group.
func (a *Admin) joined(g ib.GUID) bool {
	return slices.ContainsFunc(a.groups.list(), func(x *group) bool { return x.find(g) >= 0 })
}

// wishGUIDs makes a table the port's and answers with the block.
func (a *Admin) wishGUIDs(q *query, g *guidRequest) {
	old := make([]ib.GUID, len(g.table))
	copy(old, a.guidsOf(g.port))
	old[0] = g.port.GUID
	if !slices.Equal(old, g.table) {
		for _, x := range old[1:] {
			if x != 0 && a.aliases[x] == g.ref {
				delete(a.aliases, x)
			}
		}
		for _, x := range g.table[1:] {
			if x != 0 && !a.guidTaken(x) {
				a.aliases[x] = g.ref
			}
		}
		last := len(g.table)
		for g.table[last-1] == 0 {
			last-- // there is always the port's own
		}
		a.guids.wishes[g.port.GUID] = slices.Clone(g.table[:last])
		a.guids.tell(g.port.GUID)
	}
	rec := mad.GUIDInfoRecord{LID: g.rec.LID, BlockNum: g.rec.BlockNum}
	copy(rec.GUID[:], g.table[g.from:])
	start := len(a.out)
	a.out = rec.Append(a.out)
	a.keep(q, start)
}

// dropGUIDs forgets the wishes of ports that are gone.
func (a *Admin) dropGUIDs() {
	for port := range a.guids.wishes { // tidy: order-free
		if _, ok := a.net.ByPortGUID(port); !ok {
			delete(a.guids.wishes, port)
		}
	}
}

// poll is the next port whose table is to be looked at.
func (t *guidTable) poll() (Event, bool) {
	if len(t.changed) == 0 {
		return Event{}, false
	}
	e := Event{Kind: GUIDsChanged, Port: t.changed[0]}
	t.changed = t.changed[1:]
	return e, true
}
