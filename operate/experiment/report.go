package experiment

import "softib/proto/topo"

// Report is what came of a run. Times are in seconds of virtual time, sizes in bytes, uses of links in parts of what
// they could carry.
type Report struct {
	// Command repeats the run, and Hash is of everything that happened in it: the same command gives the same hash.
	Command string `json:"command"`
	Seed    uint64 `json:"seed"`
	Hash    string `json:"hash"`

	Fabric Fabric `json:"fabric"`
	Load   Load   `json:"load"`
	// Level is packets or flows, and Why says why.
	Level string `json:"level"`
	Why   string `json:"why"`
	// Whole is false if the run was ended before its end, by what Stopped says.
	Whole   bool   `json:"whole"`
	Stopped string `json:"stopped,omitempty"`

	// End is when the last rank was done, Wall how many seconds the run took, Hops how many times a packet crossed a
	// link (0 for flows).
	End  float64 `json:"end_s"`
	Wall float64 `json:"wall_s"`
	Hops uint64  `json:"packet_hops"`

	// Ranks is when ranks were done, Messages how long messages took from their start, by classes of size, the first
	// being all of them; Speed what each message had of the rate of its sender's link.
	Ranks    Spread  `json:"ranks"`
	Messages []Class `json:"messages"`
	Speed    Spread  `json:"speed"`
	// Step is for jobs that calculate, and Jobs for several at once.
	Step *Step `json:"step,omitempty"`
	Jobs []Job `json:"jobs,omitempty"`
	// Fairness is Jain's index over the messages' speeds: 1 if all are equal.
	Fairness float64 `json:"fairness"`

	// Ethernet is what pauses, marks and losses there were; nil on InfiniBand.
	Ethernet *Ethernet `json:"ethernet,omitempty"`

	// Times are the ends of the intervals that what follows is over; the first begins at 0.
	Times []float64 `json:"times_s"`
	// Sent is what all hosts sent, in bytes a second, and Tiers the use of links by where they are.
	Sent  []float64 `json:"sent_Bps"`
	Tiers []Tier    `json:"tiers"`
	// Links are the busiest, and Heat the use of many over time: where there are more links than rows, a row is the
	// busiest of several.
	Links []Link `json:"links"`
	Heat  []Row  `json:"heat"`

	// Cost is what the fabric costs, Energy what the run has used.
	Cost   *Cost   `json:"cost,omitempty"`
	Energy *Energy `json:"energy,omitempty"`

	// Lost is what went down; nil if nothing did.
	Lost *Lost `json:"lost,omitempty"`

	// Adapters is what adapters did; nil if they cost nothing.
	Adapters *Adapters `json:"adapters,omitempty"`

	uses map[topo.PortRef]use
}

// use is what part of the time a link was busy, over the whole run and in its busiest interval.
type use struct{ mean, peak float64 }

// Use is how busy the link was that leaves a port, over the whole run and in its busiest interval. A report that was
// read from a file does not know.
func (r *Report) Use(at topo.PortRef) (mean, peak float64) {
	u := r.uses[at]
	return u.mean, u.peak
}

// Fabric is what was built.
type Fabric struct {
	Topology string `json:"topology"`
	Text     string `json:"text"` // in a line
	Hosts    int    `json:"hosts"`
	Switches int    `json:"switches"`
	Cables   int    `json:"cables"`
	Rate     string `json:"rate"` // of the hosts' links
	Routing  string `json:"routing"`
	Lost     int    `json:"lost_switches,omitempty"`
	// Congestion says whether congestion control was on.
	Congestion bool `json:"congestion_control,omitempty"`
	// Servers counts those that have several adapters, and NVLink is what joins their GPUs, in bytes a second of each;
	// 0 is nothing.
	Servers int     `json:"servers,omitempty"`
	NVLink  float64 `json:"nvlink_Bps,omitempty"`
}

// Load is what was run.
type Load struct {
	Name       string `json:"name"`
	Ranks      int    `json:"ranks"`
	Operations int    `json:"operations"`
	Messages   int    `json:"messages"`
	Bytes      uint64 `json:"bytes"`
	// InServers are the bytes that went from GPU to GPU of a server, beside the fabric.
	InServers uint64 `json:"bytes_in_servers,omitempty"`
	// Says is what the schedule is made of, in words: which collectives, by which algorithms.
	Says []string `json:"says,omitempty"`
}

// Step is what calculations leave of the time of a job that has some, such as a training step.
type Step struct {
	// Compute is how long a rank calculates, on average; Alone how long the job takes where messages take no time, a
	// pipeline's bubble included; and Exposed what communication adds to that.
	Compute float64 `json:"compute_s"`
	Alone   float64 `json:"without_communication_s"`
	Exposed float64 `json:"exposed_communication_s"`
	// Utilisation is Compute by the whole time.
	Utilisation float64 `json:"utilisation"`
}

// Job is one of several that ran at once.
type Job struct {
	Name  string  `json:"name"`
	Ranks int     `json:"ranks"`
	End   float64 `json:"end_s"`
	Took  Spread  `json:"took_s"` // of its messages
	Alone *Alone  `json:"alone,omitempty"`
}

// Alone is what the job had without the others, on the same hosts.
type Alone struct {
	End  float64 `json:"end_s"`
	Took Spread  `json:"took_s"`
}

// Spread is how values are distributed.
type Spread struct {
	Count int     `json:"count"`
	Mean  float64 `json:"mean"`
	Min   float64 `json:"min"`
	P1    float64 `json:"p1"`
	P10   float64 `json:"p10"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Max   float64 `json:"max"`
	// Curve is the distribution function: pairs of a value and the part of all that are no larger, ascending, at most
	// 256 of them.
	Curve [][2]float64 `json:"curve,omitempty"`
}

// Class is messages of about one size.
type Class struct {
	Name  string `json:"name"`
	Bytes uint64 `json:"bytes"` // of all of them
	Took  Spread `json:"took_s"`
}

// Tier is links of one kind, such as those from leafs to spines.
type Tier struct {
	Name  string    `json:"name"`
	Links int       `json:"links"`
	Mean  []float64 `json:"mean"` // use, by interval
	Max   []float64 `json:"max"`
	// Use is over the whole run, link by link.
	Use Spread `json:"use"`
}

// Link is one direction of a cable.
type Link struct {
	Name  string  `json:"name"` // the port that sends, and the one that receives
	Tier  string  `json:"tier"`
	Use   float64 `json:"use"`
	Peak  float64 `json:"peak"` // of an interval
	Bytes float64 `json:"bytes"`
}

// Row is a row of the heat map.
type Row struct {
	Name string    `json:"name"`
	Tier string    `json:"tier"`
	Use  []float64 `json:"use"`
}
