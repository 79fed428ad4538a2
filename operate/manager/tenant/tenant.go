package tenant

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"softib/proto/ib"
	"softib/proto/mad"
)

// Tenant is some ports that talk to each other and to nobody else.
type Tenant struct {
	Name string
	// Key is the partition, without the membership bit.
	Key ib.PKey
	// Members are in the order of GUIDs.
	Members []Member
	// IPoIB gives the partition the broadcast group of IP over InfiniBand (RFC 4391).
	IPoIB bool
	// Users are those of the machine who may run programs on its hosts where a fabric is shared, in order.
	Users []uint32
	QoS
}

// Rates are those of the standard that a limit may be, in Gb/s.
const Rates = "2.5, 5, 10, 14, 20, 25, 28, 30, 40, 50, 56, 60, 80, 100, 112, 120, 168, 200, 300, 400, 600, 800 or 1200"

// QoS is what a tenant's traffic gets. Paths that the subnet administrator gives out say so.
type QoS struct {
	// SL is the service level of the tenant's paths, if HasSL.
	SL    ib.SL
	HasSL bool
	// Rate and MTU bound what its paths carry; 0 is no bound.
	Rate mad.Rate
	MTU  ib.MTU
}

// Member is a port of a tenant. It need not be there: a port that comes later is a member from its first moment.
type Member struct {
	GUID ib.GUID
	// Full members talk to all members, others to full ones only.
	Full bool
	// Index0 asks for the first place of the port's table, which programs use that do not choose. Where several tenants
	// of a port ask for it, the one with the lowest key gets it.
	Index0 bool
}

// Has reports whether a user is one of the tenant's.
func (t *Tenant) Has(user uint32) bool {
	_, ok := slices.BinarySearch(t.Users, user)
	return ok
}

// State is all that a book has.
type State struct {
	// Tenants are in the order of names.
	Tenants []Tenant
	// Template is the QoS template in force, by name; empty if there is none.
	Template string
}

// Clone is a tenant that shares nothing with t.
func (t Tenant) Clone() Tenant {
	t.Members, t.Users = slices.Clone(t.Members), slices.Clone(t.Users)
	return t
}

// Equal reports whether two tenants are the same in everything.
func (t Tenant) Equal(o Tenant) bool {
	return t.Name == o.Name && t.Key == o.Key && t.IPoIB == o.IPoIB && t.QoS == o.QoS &&
		slices.Equal(t.Members, o.Members) && slices.Equal(t.Users, o.Users)
}

// Member finds a member.
func (t *Tenant) Member(g ib.GUID) (Member, bool) {
	if i, ok := t.find(g); ok {
		return t.Members[i], true
	}
	return Member{}, false
}

func (t *Tenant) find(g ib.GUID) (int, bool) {
	return slices.BinarySearchFunc(t.Members, g, func(m Member, g ib.GUID) int { return cmp.Compare(m.GUID, g) })
}

// Put makes ports members, or makes them what they are to be from now on.
func (t *Tenant) Put(members ...Member) {
	for _, m := range members {
		i, ok := t.find(m.GUID)
		if ok {
			t.Members[i] = m
			continue
		}
		t.Members = slices.Insert(t.Members, i, m)
	}
}

// Drop takes members away and returns the GUIDs that were none.
func (t *Tenant) Drop(guids ...ib.GUID) (strangers []ib.GUID) {
	for _, g := range guids {
		i, ok := t.find(g)
		if !ok {
			strangers = append(strangers, g)
			continue
		}
		t.Members = slices.Delete(t.Members, i, i+1)
	}
	return strangers
}

// at is where a tenant is, or would be.
func (s *State) at(name string) (int, bool) {
	return slices.BinarySearchFunc(s.Tenants, name, func(t Tenant, n string) int { return strings.Compare(t.Name, n) })
}

// Get finds a tenant by its name.
func (s *State) Get(name string) (Tenant, bool) {
	if i, ok := s.at(name); ok {
		return s.Tenants[i].Clone(), true
	}
	return Tenant{}, false
}

// ByKey finds the tenant of a partition; the membership bit does not matter.
func (s *State) ByKey(key ib.PKey) (Tenant, bool) {
	for i := range s.Tenants {
		if s.Tenants[i].Key == key.Base() {
			return s.Tenants[i].Clone(), true
		}
	}
	return Tenant{}, false
}

// MemberOf is what a port is in a partition.
func (s *State) MemberOf(key ib.PKey, g ib.GUID) (Member, bool) {
	for i := range s.Tenants {
		if s.Tenants[i].Key == key.Base() {
			return s.Tenants[i].Member(g)
		}
	}
	return Member{}, false
}

// with is the state after a change. It shares the tenants that the change does not touch.
func (s *State) with(c Change) State {
	out := State{Tenants: slices.Clone(s.Tenants), Template: s.Template}
	if c.Template != nil {
		out.Template = c.Template.Is
	}
	if c.Was != nil {
		if i, ok := out.at(c.Was.Name); ok {
			out.Tenants = slices.Delete(out.Tenants, i, i+1)
		}
	}
	if c.Is != nil {
		i, ok := out.at(c.Is.Name)
		if ok {
			out.Tenants[i] = *c.Is
		} else {
			out.Tenants = slices.Insert(out.Tenants, i, *c.Is)
		}
	}
	return out
}

// Change is one tenant before and after, or the template.
type Change struct {
	// Was is nil for a tenant that comes, Is for one that goes. Both are nil where only the template changes.
	Was, Is  *Tenant
	Template *TemplateChange
}

// TemplateChange is which template was in force and which is to be.
type TemplateChange struct {
	Was string `json:"was"`
	Is  string `json:"is"`
}

// inverse takes a change back.
func (c Change) inverse() Change {
	out := Change{Was: c.Is, Is: c.Was}
	if c.Template != nil {
		out.Template = &TemplateChange{Was: c.Template.Is, Is: c.Template.Was}
	}
	return out
}

// isEmpty reports whether a change leaves everything as it is.
func (c Change) isEmpty() bool {
	if c.Template != nil && c.Template.Was != c.Template.Is {
		return false
	}
	if c.Was == nil || c.Is == nil {
		return c.Was == c.Is
	}
	return c.Was.Equal(*c.Is)
}

// String is the change in a few words.
func (c Change) String() string {
	switch {
	case c.Template != nil && c.Template.Is == "":
		return "no QoS template"
	case c.Template != nil:
		return "QoS template " + c.Template.Is
	case c.Was == nil && c.Is == nil:
		return "nothing"
	case c.Was == nil:
		return fmt.Sprintf("create tenant %s (%v) with %d members", c.Is.Name, c.Is.Key, len(c.Is.Members))
	case c.Is == nil:
		return fmt.Sprintf("delete tenant %s (%v)", c.Was.Name, c.Was.Key)
	}
	if !slices.Equal(c.Was.Users, c.Is.Users) {
		return fmt.Sprintf("change tenant %s (%v) from %d to %d users", c.Is.Name, c.Is.Key, len(c.Was.Users),
			len(c.Is.Users))
	}
	return fmt.Sprintf("change tenant %s (%v) from %d to %d members", c.Is.Name, c.Is.Key, len(c.Was.Members),
		len(c.Is.Members))
}

const (
	// NameMax is how long a tenant's name may be.
	NameMax = 64
	// MembersMax is how many members a tenant may have: a subnet has no more addresses.
	MembersMax = int(ib.LIDUnicastMax)
	// UsersMax is how many users.
	UsersMax = 1024
	// firstKey is where the choice of keys begins that nobody has named: below it is where people like to number by
	// hand.
	firstKey ib.PKey = 0x1001
)

// nameShape keeps a name usable in partitions.conf, in a path of a URL and on a command line.
var nameShape = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// reservedNames are the default partition's, here and in UFM.
var reservedNames = []string{"default", "management"}

// CheckName says what is wrong with a name.
func CheckName(name string) error {
	switch {
	case len(name) == 0 || len(name) > NameMax || !nameShape.MatchString(name):
		return invalid("name", fmt.Sprintf("%q", name),
			fmt.Sprintf("1 to %d letters, digits, dots, dashes or underscores", NameMax))
	case strings.EqualFold(name, RestName):
		return invalid("name", fmt.Sprintf("%q", name), "another one: this is the partition of hosts without a tenant")
	case slices.Contains(reservedNames, strings.ToLower(name)):
		return invalid("name", fmt.Sprintf("%q", name), "another one: this is the default partition's")
	}
	return nil
}

// CheckKey says what is wrong with a partition key.
func CheckKey(key ib.PKey) error {
	if key == 0 || key >= ib.PKeyBase {
		return invalid("pkey", key.String(),
			"0x0001 to 0x7ffe, without the membership bit; 0x7fff is the default partition")
	}
	return nil
}

// check says what is wrong with a tenant, and puts its members in order.
func (t *Tenant) check() error {
	if err := CheckName(t.Name); err != nil {
		return err
	}
	if err := CheckKey(t.Key); err != nil {
		return err
	}
	if len(t.Members) > MembersMax {
		return invalid("members", fmt.Sprint(len(t.Members)), fmt.Sprintf("at most %d", MembersMax))
	}
	if len(t.Users) > UsersMax {
		return invalid("users", fmt.Sprint(len(t.Users)), fmt.Sprintf("at most %d", UsersMax))
	}
	slices.Sort(t.Users)
	t.Users = slices.Compact(t.Users)
	slices.SortStableFunc(t.Members, func(a, b Member) int { return cmp.Compare(a.GUID, b.GUID) })
	for i, m := range t.Members {
		if m.GUID == 0 || m.GUID == ^ib.GUID(0) {
			return invalid("guid", m.GUID.String(), "the GUID of a port")
		}
		if i > 0 && t.Members[i-1].GUID == m.GUID {
			return invalid("guid", m.GUID.String(), "each port once")
		}
	}
	return t.QoS.check()
}

func (q *QoS) check() error {
	switch {
	case q.SL >= ib.NumSL:
		return invalid("service level", fmt.Sprint(q.SL), "0 to 15")
	case !q.HasSL && q.SL != 0:
		return invalid("service level", fmt.Sprint(q.SL), "0 where none is given")
	case q.Rate != 0 && !q.Rate.IsValid():
		return invalid("rate", fmt.Sprint(uint8(q.Rate)),
			"a rate of the standard: 2.5, 5, 10, 14, 20, 25, 28, 30, 40, 50, 56, 60, 80, 100, 112, 120, 168, "+
				"200, 300, 400, 600, 800 or 1200 Gb/s")
	case q.MTU != 0 && !q.MTU.IsValid():
		return invalid("MTU", fmt.Sprint(uint8(q.MTU)), "256, 512, 1024, 2048 or 4096 bytes")
	}
	return nil
}
