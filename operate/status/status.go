package status

import (
	"time"

	"softib/proto/ib"
)

// Status is what softib status shows.
type Status struct {
	Name        string    `json:"name"`
	PID         int       `json:"pid"`
	Version     string    `json:"version"`
	Started     time.Time `json:"started"`
	UptimeSec   float64   `json:"uptime_sec"`
	Start       []Step    `json:"start,omitempty"` // what there was to do until it was up
	Topology    string    `json:"topology"`
	Description string    `json:"description"`
	Page        string    `json:"page,omitempty"` // where its page is
	// Shared is the group of users who may run programs too, and As how they name the fabric.
	Shared      string `json:"shared,omitempty"`
	As          string `json:"shared_as,omitempty"`
	Hosts       int    `json:"hosts"`
	HostsActive int    `json:"hosts_active"`
	// ServiceNodes are channel adapters that are part of switches, and no hosts.
	ServiceNodes int            `json:"service_nodes,omitempty"`
	Switches     int            `json:"switches"`
	Links        int            `json:"links"`
	LinkStates   map[string]int `json:"link_states"`
	// LinkKinds counts the links by state and rate.
	LinkKinds     []LinkKind `json:"link_kinds"`
	LinksDown     []Link     `json:"links_down"`
	LinksDegraded []Link     `json:"links_degraded"`

	Subnet Subnet `json:"subnet"`
	// Subnets are those that routers join; none where there is one.
	Subnets  []SubnetPart `json:"subnets,omitempty"`
	Managers []Manager    `json:"managers"`
	// Of softib's manager; absent where there is none, the first two also where it is not the master.
	Routing *Routing       `json:"routing,omitempty"`
	Sweep   *Sweep         `json:"last_sweep,omitempty"`
	Manager *ManagerCounts `json:"manager,omitempty"`

	// Machines are those that have a part of the fabric, where there are several.
	Machines []Machine `json:"machines,omitempty"`

	// Programs are those that are attached to hosts.
	Programs []Program `json:"programs"`

	// Interfaces are the hosts of a fabric of Ethernet interfaces, which has nothing of the above but names.
	Interfaces []Interface `json:"interfaces,omitempty"`

	// What the hosts have sent into the fabric, headers included.
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Step is a part of a fabric's start: how long it took, and what of that the process had of all processors.
type Step struct {
	What    string  `json:"what"`
	TookSec float64 `json:"took_sec"`
	CPUSec  float64 `json:"cpu_sec"`
}

// Interface is an Ethernet interface of this machine that speaks RoCEv2.
type Interface struct {
	Name      string   `json:"name"`
	State     string   `json:"state"`
	MTU       int      `json:"mtu,omitempty"` // of paths
	Addresses []string `json:"addresses"`     // in the order of the GID table
	Programs  int      `json:"programs"`      // that have it open
	// What they have sent, headers of the transport included.
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Machine is one that has a part of the fabric.
type Machine struct {
	Name     string `json:"name"`
	Hosts    int    `json:"hosts"`
	Switches int    `json:"switches"`
	// Here says that it is the one that was asked, Reached that this one can speak to it; if not, Why.
	Here    bool   `json:"here,omitempty"`
	Reached bool   `json:"reached"`
	Why     string `json:"why,omitempty"`
	// Master says that the subnet is managed from there.
	Master bool `json:"master,omitempty"`
	// Lines is how many ways of programs lead directly from here to programs there, and LinesLaid how many have since
	// this machine came.
	Lines     int `json:"lines,omitempty"`
	LinesLaid int `json:"lines_laid,omitempty"`
}

// LinkKind is how many links are in a state at a rate.
type LinkKind struct {
	State string  `json:"state"`
	Rate  string  `json:"rate,omitempty"`
	Gbps  float64 `json:"gbps,omitempty"`
	Count int     `json:"count"`
}

// Link is a link that an operator should look at.
type Link struct {
	A    string `json:"a"`
	B    string `json:"b"`
	Rate string `json:"rate,omitempty"`
	// Best is what both ends support, and Why what keeps the link from it, where that is known.
	Best string `json:"best,omitempty"`
	Why  string `json:"why,omitempty"`
}

// Subnet is the addresses and keys of all end ports.
type Subnet struct {
	Prefix string `json:"prefix,omitempty"`
	LIDs   int    `json:"lids"` // in use, all that LMC gives included
	LIDMin ib.LID `json:"lid_min"`
	LIDMax ib.LID `json:"lid_max"`
	LMCMin uint8  `json:"lmc_min"`
	LMCMax uint8  `json:"lmc_max"`
	// Partitions are those that the hosts' ports have keys of.
	Partitions []Partition `json:"partitions"`
	// MKeyProtect is the level at which M_Keys of a manager of this process protect nodes, and MKeyPerPort says that
	// each port has its own.
	MKeyProtect uint8 `json:"m_key_protection_level"`
	MKeyPerPort bool  `json:"m_key_per_port"`
	// MasterLIDs is whom the end ports take for their master.
	MasterLIDs []MasterLID `json:"master_lids"`
}

// SubnetPart is one of the subnets that routers join.
type SubnetPart struct {
	Prefix   string `json:"prefix"`
	Hosts    int    `json:"hosts"`
	Switches int    `json:"switches"`
	Routers  int    `json:"routers"` // that have a port in it
	LIDMin   ib.LID `json:"lid_min"`
	LIDMax   ib.LID `json:"lid_max"`
}

// Partition is one that hosts have the key of.
type Partition struct {
	Key     string `json:"key"`
	Name    string `json:"name,omitempty"`
	Full    int    `json:"full"`
	Limited int    `json:"limited"`
}

// MasterLID is an address where ports take their master to be.
type MasterLID struct {
	LID   ib.LID `json:"lid"`
	Ports int    `json:"ports"`
	// Known says that a manager is there and says that it is the master.
	Known bool `json:"known"`
}

// Manager is a subnet manager of any make.
type Manager struct {
	Port string `json:"port"`
	LID  ib.LID `json:"lid"`
	GUID string `json:"guid"`
	// State is empty if the manager does not answer.
	State    string `json:"state"`
	Priority uint8  `json:"priority"`
	SMKeySet bool   `json:"sm_key_set"`
	ActCount uint32 `json:"act_count"`
	// Own says that it is softib's, in the fabric's own process.
	Own bool `json:"own"`
	// Machine is the one that has the port, if that is another.
	Machine string `json:"machine,omitempty"`
}

// Routing is how the master routes.
type Routing struct {
	Engine  string   `json:"engine"`
	Chain   string   `json:"chain"`
	VLs     int      `json:"vls"`
	Refused []string `json:"refused,omitempty"`
}

// Sweep is the master's last.
type Sweep struct {
	Why       string    `json:"why"`
	Full      bool      `json:"full"`
	Began     time.Time `json:"began"`
	AgoSec    float64   `json:"ago_sec"`
	TookSec   float64   `json:"took_sec"` // until the subnet was up
	Datagrams int       `json:"datagrams"`
	Blocks    int       `json:"table_blocks"`
	Problems  int       `json:"problems"`
	Phases    []Phase   `json:"phases"`
}

// Phase is a part of a sweep.
type Phase struct {
	Name      string  `json:"name"`
	TookSec   float64 `json:"took_sec"`
	Datagrams int     `json:"datagrams"`
	// After says that the subnet was up already.
	After bool `json:"after,omitempty"`
}

// ManagerCounts is what the fabric's own manager has counted.
type ManagerCounts struct {
	State       string   `json:"state"`
	Sweeps      uint64   `json:"sweeps"`
	LightSweeps uint64   `json:"light_sweeps"`
	Sent        uint64   `json:"datagrams_sent"`
	Traps       uint64   `json:"traps"`
	Problems    uint64   `json:"problems"`
	SA          SACounts `json:"sa"`
}

// SACounts is what the subnet administrator has counted.
type SACounts struct {
	Requests  uint64 `json:"requests"`
	Responses uint64 `json:"responses"`
	Errors    uint64 `json:"errors"`
	Malformed uint64 `json:"malformed"`
	BadSMKey  uint64 `json:"bad_sm_key"`
	Strangers uint64 `json:"strangers"`
	Reports   uint64 `json:"reports"`
}
