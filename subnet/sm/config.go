package sm

import (
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/policy"
	"softib/subnet/route"
	"softib/subnet/sa"
)

// Config is what an operator decides. The zero value of a field means its default.
type Config struct {
	// Prefix is the upper half of all GIDs.
	Prefix uint64
	// Priority is 0 to 15; of two managers the one with the higher priority is master.
	Priority uint8
	// SMKey is the key by which managers and trusted clients know each other.
	SMKey uint64
	// MKey guards the nodes against other managers, with its level of protection (0 to 3)
	// and its lease in seconds (0: for ever).
	MKey        uint64
	MKeyProtect uint8
	MKeyLease   uint16
	// MKeyPerPort gives every port a key of its own, made from MKey, which no datagram carries then: who finds out the
	// key of one port has no other.
	MKeyPerPort bool
	// Term is for managers that rule in turn, by an agreement of their own: what a manager sends says its term, and
	// nodes that know the secret Terms carry out nothing of an earlier one than they have heard of. It goes with M_Keys
	// of ports' own or with none; where all ports have one key, that is shown and says no term.
	Terms   uint64
	Term    uint32
	termKey uint64 // what is shown to ports that have no key
	// Trusted are the ports at which other managers may run; nil is all.
	Trusted []ib.GUID
	// FirstLID is where new addresses begin; those before it are given when no other is left.
	FirstLID ib.LID
	// LMC gives every end port 2^LMC addresses.
	LMC uint8
	// LMCs are the exceptions, by port GUID.
	LMCs map[ib.GUID]uint8
	// Engines is the chain of routing engines, such as "ftree,updn".
	Engines string
	// Roots are the top switches for engines that want to know them.
	Roots []ib.GUID
	// MaxVLs limits the data lanes in use; 0 is as many as the links have.
	MaxVLs int

	// Window is how many datagrams may be under way at once.
	Window int
	// Timeout is how long an answer may take, and Retries how often a request is repeated.
	Timeout ib.Time
	Retries int

	// SweepInterval is the time between two light sweeps; negative means none.
	SweepInterval ib.Time
	// PollInterval is how often a standby looks after its master, and PollRetries how many
	// unanswered looks make it take over.
	PollInterval ib.Time
	PollRetries  int

	// SubnetTimeout, PacketLife and HOQLife are exponents as the standard has them (4.096 us * 2^n).
	SubnetTimeout uint8
	PacketLife    uint8
	HOQLife       uint8
	LeafHOQLife   uint8

	// Adaptive says how switches choose among ports that are as good as each other.
	Adaptive route.Choice

	// Groups are multicast groups that need no joining.
	Groups []Group

	// Partitions say who may talk to whom; without any, everybody may with everybody.
	Partitions policy.Partitions
	// Enforce is where switches check partitions, and AllowBothKeys makes "both" a full and a limited key instead of a
	// full one.
	Enforce       Enforcement
	AllowBothKeys bool
	// QoS is how lanes are shared out, and Congestion what nodes do against congestion.
	QoS        QoS
	Congestion policy.CongestionOptions

	// Self is the manager's own port, and Plan who is where, if that is known beforehand: nodes whose M_Keys guard what
	// can be read say neither to a manager that begins.
	Self ib.GUID
	Plan *topo.Graph
	// Whole says that the subnet is what Plan has, or what is left of it for a while: ways are those of the whole plan,
	// but for what is missing.
	Whole bool

	// Memory is what an earlier run left.
	Memory Memory
}

// Memory is what a manager should find again after a restart.
type Memory struct {
	// LIDs are the base addresses by port GUID.
	LIDs map[ib.GUID]ib.LID
	// MKeys are the keys that ports hold, by port GUID.
	MKeys map[ib.GUID]uint64
	// Neighbors is who was where, if each port has an M_Key of its own: a node says neither who it is nor who is behind
	// its ports to a manager that does not know its key.
	Neighbors policy.Neighbors
	// Admin is what hosts have registered.
	Admin sa.Database
}

// Defaults of the configuration; OpenSM's where operators know them.
const (
	DefaultEngines = "ftree,updn,minhop"
	DefaultWindow  = 256
	// DefaultSMKey is what OpenSM and its tools use.
	DefaultSMKey         = 1
	DefaultTimeout       = 200 * ib.Millisecond
	DefaultRetries       = 3
	DefaultSweepInterval = 10 * ib.Second
	DefaultPollInterval  = 10 * ib.Second
	DefaultPollRetries   = 4
	defaultSubnetTimeout = 18   // about a second
	defaultPacketLife    = 0x12 // about a second
	defaultHOQLife       = 0x12
	defaultLeafHOQLife   = 0x10
)

func orElse[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// withDefaults fills in what nobody said.
func (c Config) withDefaults() Config {
	c.guardless()
	if c.Terms != 0 {
		c.termKey = mad.TermKey(c.Terms, 0, c.Term)
	}
	orElse(&c.Prefix, ib.DefaultGIDPrefix)
	orElse(&c.Engines, DefaultEngines)
	orElse(&c.Window, DefaultWindow)
	orElse(&c.SMKey, DefaultSMKey)
	orElse(&c.Timeout, DefaultTimeout)
	orElse(&c.Retries, DefaultRetries)
	orElse(&c.SweepInterval, DefaultSweepInterval)
	orElse(&c.PollInterval, DefaultPollInterval)
	orElse(&c.PollRetries, DefaultPollRetries)
	orElse(&c.SubnetTimeout, defaultSubnetTimeout)
	orElse(&c.PacketLife, defaultPacketLife)
	orElse(&c.HOQLife, defaultHOQLife)
	orElse(&c.LeafHOQLife, defaultLeafHOQLife)
	return c
}
