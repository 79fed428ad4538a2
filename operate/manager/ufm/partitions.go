package ufm

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"softib/operate/manager/tenant"
	"softib/proto/ib"
	"softib/proto/mad"
)

// managementName is UFM's name for the default partition.
const managementName = "management"

// partitionShape is a partition as it is shown.
type partitionShape struct {
	Partition string     `json:"partition"`
	IPoIB     bool       `json:"ip_over_ib"`
	QoS       *qosShape  `json:"qos_conf,omitempty"`
	GUIDs     *[]guidRow `json:"guids,omitempty"`
	// Membership and Index0 are the default partition's, which has everybody in it and so no list.
	Membership string `json:"membership,omitempty"`
	Index0     *bool  `json:"index0,omitempty"`
}

type qosShape struct {
	MTU  int     `json:"mtu_limit"`
	SL   uint8   `json:"service_level"`
	Rate float64 `json:"rate_limit"`
}

type guidRow struct {
	GUID       string `json:"guid"`
	Index0     bool   `json:"index0"`
	Membership string `json:"membership"`
}

// autoName is the name of a partition that nobody has named.
func autoName(k ib.PKey) string { return "api_pkey_" + keyText(k) }

// membership is the word for it.
func membership(full bool) string {
	if full {
		return "full"
	}
	return "limited"
}

// shape shows a partition with what is asked for.
func (s *Server) shape(name string, ipoib bool, q tenant.QoS, members []tenant.Member, withGUIDs,
	withQoS bool) partitionShape {
	p := partitionShape{Partition: name, IPoIB: ipoib}
	if withQoS {
		p.QoS = s.qosOf(q)
	}
	if withGUIDs {
		rows := make([]guidRow, len(members))
		for i, m := range members {
			rows[i] = guidRow{guidText(m.GUID), m.Index0, membership(m.Full)}
		}
		p.GUIDs = &rows
	}
	return p
}

// qosOf is the QoS in UFM's units. UFM has no word for "no limit": what the fabric's fastest links carry is as good.
func (s *Server) qosOf(q tenant.QoS) *qosShape {
	out := &qosShape{MTU: 4, SL: uint8(q.SL), Rate: s.fastest()}
	if q.MTU != 0 {
		out.MTU = q.MTU.Bytes()
		if out.MTU >= 1024 {
			out.MTU /= 1024
		}
	}
	if q.Rate != 0 {
		out.Rate = q.Rate.Gbps()
	}
	return out
}

// fastest is the rate of the fabric's fastest link in Gb/s.
func (s *Server) fastest() float64 {
	g := s.cfg.Manager.Graph()
	var best mad.Rate
	for _, h := range g.Hosts() {
		for p := 1; p <= h.NumPorts(); p++ {
			if r := mad.RateOf(h.Ports[p].Rate()); best.Less(r) {
				best = r
			}
		}
	}
	if best == 0 {
		return 2.5
	}
	return best.Gbps()
}

// tenantOf is the tenant of a partition.
func (s *Server) tenantOf(k ib.PKey) (tenant.Tenant, bool) {
	if s.cfg.Tenants == nil {
		return tenant.Tenant{}, false
	}
	return s.cfg.Tenants.ByKey(k)
}

// one is a partition: the default one, a tenant, or one that the ports have and no tenant is.
func (s *Server) one(k ib.PKey, withGUIDs, withQoS bool) (partitionShape, bool) {
	if k == ib.PKeyBase {
		return s.management(withGUIDs, withQoS), true
	}
	if t, ok := s.tenantOf(k); ok {
		return s.shape(t.Name, t.IPoIB, t.QoS, t.Members, withGUIDs, withQoS), true
	}
	if o, ok := s.look().others[k]; ok {
		return s.shape(o.name, o.ipoib, tenant.QoS{SL: o.sl, HasSL: o.sl != 0}, o.members, withGUIDs, withQoS), true
	}
	return partitionShape{}, false
}

// management is the default partition. Everybody is in it, as what its membership says; the list is empty, as in UFM.
func (s *Server) management(withGUIDs, withQoS bool) partitionShape {
	v := s.look()
	p := s.shape(managementName, true, tenant.QoS{}, nil, withGUIDs, withQoS)
	if withGUIDs {
		first := false
		p.Membership, p.Index0 = membership(v.defaultFull), &first
	}
	return p
}

// partitions lists all partitions. Without guids_data and qos_conf UFM answers with the keys alone.
func (s *Server) partitions(c *call) error {
	withGUIDs, withQoS := c.query.flag("guids_data", false), c.query.flag("qos_conf", false)
	if c.query.err != nil {
		return c.query.err
	}
	keys := []ib.PKey{ib.PKeyBase}
	if s.cfg.Tenants != nil {
		for _, t := range s.cfg.Tenants.List() {
			keys = append(keys, t.Key)
		}
	}
	for k := range s.look().others {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	if !withGUIDs && !withQoS {
		list := make([]string, len(keys))
		for i, k := range keys {
			list[i] = keyText(k)
		}
		c.json(list)
		return nil
	}
	out := make(map[string]partitionShape, len(keys))
	for _, k := range keys {
		if p, ok := s.one(k, withGUIDs, withQoS); ok {
			out[keyText(k)] = p
		}
	}
	c.json(out)
	return nil
}

// partition shows one partition; a key that has none gets an empty object, which clients take for "not found".
func (s *Server) partition(c *call) error {
	k, err := parseKey("pkey", c.arg("pkey"))
	if err != nil {
		return err
	}
	withGUIDs, withQoS := c.query.flag("guids_data", false), c.query.flag("qos_conf", false)
	if c.query.err != nil {
		return c.query.err
	}
	if p, ok := s.one(k, withGUIDs, withQoS); ok {
		c.json(p)
	} else {
		c.json(struct{}{})
	}
	return nil
}

// changeable says why a partition cannot be changed here.
func (s *Server) changeable(k ib.PKey) *Error {
	if k == ib.PKeyBase {
		return bad("pkey", "0x7fff is the default partition, %q: want 0x1 to 0x7ffe", managementName)
	}
	if s.cfg.Tenants == nil {
		return refuse(http.StatusConflict,
			"partitions cannot be changed: softib's subnet manager does not manage this fabric")
	}
	return nil
}

// wanted is what a body asks of a partition.
type wanted struct {
	key   ib.PKey
	name  string // empty where none is given
	ipoib *bool
	qos   func(*tenant.QoS)
}

// wanted reads a body. The GUIDs are read by whoever calls.
func (s *Server) wanted(b *body) (w wanted, index0 bool, e *Error) {
	w.key = b.key("pkey")
	w.name = b.text("partition_name", "")
	index0 = b.flag("index0", false)
	if b.has("ip_over_ib") {
		v := b.flag("ip_over_ib", true)
		w.ipoib = &v
	}
	var probe tenant.QoS
	b.qos(&probe, false)
	w.qos = func(q *tenant.QoS) { b.qos(q, false) }
	if b.err != nil {
		return w, false, b.err
	}
	if e := s.changeable(w.key); e != nil {
		return w, false, e
	}
	if w.name != "" {
		if err := tenant.CheckName(w.name); err != nil {
			return w, false, refused(err)
		}
		if t, ok := s.tenantOf(w.key); ok && t.Name != w.name {
			return w, false, &Error{Status: http.StatusConflict, Field: "partition_name",
				Reason: fmt.Sprintf("the partition %s is called %s", keyText(w.key), t.Name)}
		}
	}
	return w, index0, nil
}

// membersOf reads the GUIDs of a body, with their memberships.
func membersOf(b *body, index0 bool) ([]tenant.Member, *Error) {
	if !b.has("guids") {
		return nil, bad("guids", "missing: want an array of GUIDs")
	}
	texts := b.list("guids")
	each := b.list("memberships")
	all := b.text("membership", b.text("default_membership", "full"))
	if b.err != nil {
		return nil, b.err
	}
	if len(each) > 0 && len(each) != len(texts) {
		return nil, bad("memberships", "%d for %d GUIDs: want one for each", len(each), len(texts))
	}
	full, err := parseMembership("membership", all)
	if err != nil {
		return nil, err
	}
	if len(texts) > tenant.MembersMax {
		return nil, bad("guids", "%d GUIDs: want at most %d", len(texts), tenant.MembersMax)
	}
	seen := make(map[ib.GUID]int, len(texts))
	out := make([]tenant.Member, 0, len(texts))
	for i, s := range texts {
		g, err := parseGUID("guids", s)
		if err != nil {
			return nil, err
		}
		m := tenant.Member{GUID: g, Full: full, Index0: index0}
		if len(each) > 0 {
			if m.Full, err = parseMembership("memberships", each[i]); err != nil {
				return nil, err
			}
		}
		if at, twice := seen[g]; twice {
			if out[at] != m {
				return nil, bad("guids", "%s is there twice, as a full and as a limited member", guidText(g))
			}
			continue
		}
		seen[g] = len(out)
		out = append(out, m)
	}
	return out, nil
}

// put makes a change: the partition is made if there is none, and is then as edit leaves it.
func (s *Server) put(c *call, w wanted, edit func(*tenant.Tenant)) error {
	name := w.name
	if name == "" {
		name = autoName(w.key)
	}
	ctx, cancel := c.change()
	defer cancel()
	_, err := s.cfg.Tenants.EditKey(ctx, w.key, name, func(t *tenant.Tenant) error {
		if w.name != "" && t.Name != w.name {
			return &Error{Status: http.StatusConflict, Field: "partition_name",
				Reason: fmt.Sprintf("the partition %s is called %s", keyText(w.key), t.Name)}
		}
		if _, old := s.tenantOf(w.key); w.ipoib != nil {
			t.IPoIB = *w.ipoib
		} else if !old {
			t.IPoIB = true
		}
		w.qos(&t.QoS)
		edit(t)
		return nil
	})
	return err
}

// addGUIDs adds ports to a partition.
func (s *Server) addGUIDs(c *call) error {
	w, index0, e := s.wanted(c.body)
	if e != nil {
		return e
	}
	members, e := membersOf(c.body, index0)
	if e != nil {
		return e
	}
	if len(members) == 0 {
		return bad("guids", "empty: want at least one GUID; POST resources/pkeys/add makes a partition without any")
	}
	if err := s.put(c, w, func(t *tenant.Tenant) { t.Put(members...) }); err != nil {
		return err
	}
	c.json(struct{}{})
	return nil
}

// setGUIDs sets the ports of a partition.
func (s *Server) setGUIDs(c *call) error {
	w, index0, e := s.wanted(c.body)
	if e != nil {
		return e
	}
	members, e := membersOf(c.body, index0)
	if e != nil {
		return e
	}
	if err := s.put(c, w, func(t *tenant.Tenant) { t.Members = slices.Clone(members) }); err != nil {
		return err
	}
	c.json(struct{}{})
	return nil
}

// addPartition makes a partition without ports.
func (s *Server) addPartition(c *call) error {
	w, _, e := s.wanted(c.body)
	if e != nil {
		return e
	}
	if t, ok := s.tenantOf(w.key); ok {
		return &Error{Status: http.StatusConflict, Field: "pkey",
			Reason: fmt.Sprintf("%s is partition %s already", keyText(w.key), t.Name)}
	}
	if err := s.put(c, w, func(*tenant.Tenant) {}); err != nil {
		return err
	}
	writeJSON(c.w, http.StatusCreated, struct{}{})
	return nil
}

// deletePartition deletes a partition.
func (s *Server) deletePartition(c *call) error {
	k, e := parseKey("pkey", c.arg("pkey"))
	if e == nil {
		e = s.changeable(k)
	}
	if e != nil {
		return e
	}
	t, ok := s.tenantOf(k)
	if !ok {
		// A client that takes the last port out and then deletes the partition finds it gone already, which is what it
		// asked for.
		if e := s.absent(k); e.Status != http.StatusNotFound || !s.vanished.has(k) {
			return e
		}
		c.json(struct{}{})
		return nil
	}
	ctx, cancel := c.change()
	defer cancel()
	if err := s.cfg.Tenants.Delete(ctx, t.Name); err != nil {
		return err
	}
	c.json(struct{}{})
	return nil
}

// absent is the answer for a partition that is not there to be changed.
func (s *Server) absent(k ib.PKey) *Error {
	if o, ok := s.look().others[k]; ok {
		return &Error{Status: http.StatusConflict, Field: "pkey",
			Reason: fmt.Sprintf("%s is partition %s of the operator's partitions.conf, and is changed there",
				keyText(k), o.name)}
	}
	return &Error{Status: http.StatusNotFound, Field: "pkey", Reason: fmt.Sprintf("%s is no partition", keyText(k))}
}

// remove takes ports out of a partition. A partition that nobody has named goes with its last port, as in UFM.
func (s *Server) remove(c *call, k ib.PKey, list []ib.GUID) error {
	ctx, cancel := c.change()
	defer cancel()
	_, err := s.cfg.Tenants.Shrink(ctx, k, list, func(t tenant.Tenant) bool { return t.Name == autoName(t.Key) })
	if _, ok := s.tenantOf(k); err == nil && !ok {
		s.vanished.add(k)
	}
	return err
}

// vanished are the partitions that went with their last port. There are no more than there are keys.
type vanished struct {
	mu   sync.Mutex
	keys map[ib.PKey]bool
}

func (v *vanished) add(k ib.PKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.keys == nil {
		v.keys = map[ib.PKey]bool{}
	}
	v.keys[k.Base()] = true
}

func (v *vanished) has(k ib.PKey) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.keys[k.Base()]
}

// removeGUIDs takes ports out of a partition, by the path.
func (s *Server) removeGUIDs(c *call) error {
	k, e := parseKey("pkey", c.arg("pkey"))
	if e != nil {
		return e
	}
	list, e := guids("guids", strings.Split(c.arg("guids"), ","))
	if e == nil {
		e = s.changeable(k)
	}
	if e != nil {
		return e
	}
	if _, ok := s.tenantOf(k); !ok {
		return s.absent(k)
	}
	if err := s.remove(c, k, list); err != nil {
		return err
	}
	c.json(struct{}{})
	return nil
}

// removeGUIDsAction takes ports out of a partition, by the body. A partition that is gone already has none of them, and
// that is what was asked for.
func (s *Server) removeGUIDsAction(c *call) error {
	k := c.body.key("pkey")
	texts := c.body.list("guids")
	if c.body.err != nil {
		return c.body.err
	}
	if !c.body.has("guids") {
		return bad("guids", "missing: want an array of GUIDs")
	}
	list, e := guids("guids", texts)
	if e == nil {
		e = s.changeable(k)
	}
	if e != nil {
		return e
	}
	if _, ok := s.tenantOf(k); !ok {
		if e := s.absent(k); e.Status != http.StatusNotFound {
			return e
		}
	} else if err := s.remove(c, k, list); err != nil && refused(err).Status != http.StatusNotFound {
		return err
	}
	c.json(struct{}{})
	return nil
}

// setQoS sets what a partition's traffic gets.
func (s *Server) setQoS(c *call) error {
	k := c.body.key("pkey")
	var probe tenant.QoS
	c.body.qos(&probe, true)
	if c.body.err != nil {
		return c.body.err
	}
	if e := s.changeable(k); e != nil {
		return e
	}
	if _, ok := s.tenantOf(k); !ok {
		return s.absent(k)
	}
	ctx, cancel := c.change()
	defer cancel()
	if _, err := s.cfg.Tenants.EditKey(ctx, k, "", func(t *tenant.Tenant) error {
		t.QoS = probe
		return nil
	}); err != nil {
		return err
	}
	c.json(struct{}{})
	return nil
}

// portsOf are the ports of hosts by name, each host once. All must be there.
func (s *Server) portsOf(field, text string) (hosts []string, list []ib.GUID, e *Error) {
	names, e := parseHosts(field, text)
	if e != nil {
		return nil, nil, e
	}
	seen := map[int]bool{}
	for _, name := range names {
		n, err := s.cfg.Manager.Node(name)
		if err != nil || n.IsSwitch() {
			return nil, nil, &Error{Status: http.StatusNotFound, Field: field,
				Reason: fmt.Sprintf("%q: want the name of a host of this fabric", clip(name))}
		}
		if seen[n.Index] {
			continue
		}
		seen[n.Index] = true
		hosts = append(hosts, n.Name)
		list = append(list, n.PortGUIDs()...)
	}
	return hosts, list, nil
}

// addHosts adds all ports of hosts to a partition. UFM makes a job of it; here it is done when the answer comes, and
// the job says so.
func (s *Server) addHosts(c *call) error {
	w, index0, e := s.wanted(c.body)
	if e != nil {
		return e
	}
	var text string
	if list := []string(nil); c.body.has("hosts_names") && c.body.fields["hosts_names"][0] == '[' {
		list = c.body.list("hosts_names")
		text = strings.Join(list, ",")
	} else {
		text = c.body.text("hosts_names", "")
	}
	all := c.body.text("membership", "full")
	if c.body.err != nil {
		return c.body.err
	}
	full, e := parseMembership("membership", all)
	if e != nil {
		return e
	}
	hosts, list, e := s.portsOf("hosts_names", text)
	if e != nil {
		return e
	}
	err := s.put(c, w, func(t *tenant.Tenant) {
		for _, g := range list {
			t.Put(tenant.Member{GUID: g, Full: full, Index0: index0})
		}
	})
	if err != nil {
		return err
	}
	s.jobDone(c, "Add hosts to PKey", fmt.Sprintf("%d ports of %d hosts are in %s", len(list), len(hosts),
		keyText(w.key)), hosts)
	return nil
}

// removeHosts takes all ports of hosts out of a partition.
func (s *Server) removeHosts(c *call) error {
	k, e := parseKey("pkey", c.arg("pkey"))
	if e != nil {
		return e
	}
	hosts, list, e := s.portsOf("hosts", c.arg("hosts"))
	if e == nil {
		e = s.changeable(k)
	}
	if e != nil {
		return e
	}
	if _, ok := s.tenantOf(k); !ok {
		return s.absent(k)
	}
	if err := s.remove(c, k, list); err != nil {
		return err
	}
	s.jobDone(c, "Remove hosts from PKey", fmt.Sprintf("%d ports of %d hosts are no longer in %s", len(list),
		len(hosts), keyText(k)), hosts)
	return nil
}

// updated is when partitions were last seen to change.
type updated struct {
	mu  sync.Mutex
	rev uint64
	at  time.Time
}

// updatedShape is when partitions were last changed.
type updatedShape struct {
	LastUpdated *string `json:"last_updated"`
}

// revision is the book's, where it has one; it is 1 until something changes.
func (s *Server) revision() uint64 {
	if r, ok := s.cfg.Tenants.(interface{ Revision() uint64 }); ok {
		return r.Revision()
	}
	return 0
}

// changed notes when partitions changed. What others than callers of this interface change is noted when somebody asks.
func (s *Server) changed() (at time.Time, ok bool) {
	s.updated.mu.Lock()
	defer s.updated.mu.Unlock()
	if rev := s.revision(); rev != s.updated.rev {
		s.updated.rev = rev
		if rev > 1 {
			s.updated.at = s.now()
		}
	}
	return s.updated.at, !s.updated.at.IsZero()
}

// partitionsUpdated says when partitions were last changed, in the format that date(1) has. ib-kubernetes compares it
// with the Date of answers.
func (s *Server) partitionsUpdated(c *call) error {
	var out updatedShape
	if at, ok := s.changed(); ok {
		text := at.UTC().Format(time.UnixDate)
		out.LastUpdated = &text
	}
	c.json(out)
	return nil
}
