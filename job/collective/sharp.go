package collective

import "softib/job"

// Sharp is the algorithm by which switches do the work: everybody gives its vector once, and gets the result once.
const Sharp = "sharp"

// What SHARP takes. A short vector goes as operations of SharpPayload bytes each, all outstanding at once as far as
// switches have places, each of which costs its rank a message; a longer one as a stream of packets, which the adapter
// cuts. SharpShort is where one begins to be long: where Mellanox's own libraries change over is set by the number of
// operations that a job has, times the payload.
const (
	SharpPayload = 256
	SharpShort   = 4 << 10
	// streamPayload is a packet's.
	streamPayload = 4096 - 32
)

func sharpAllReduce(g *Group, bytes uint64) { g.aggregate(job.AllReduce, bytes) }
func sharpReduce(g *Group, bytes uint64)    { g.aggregate(job.Reduce, bytes) }
func sharpBroadcast(g *Group, bytes uint64) { g.aggregate(job.Broadcast, bytes) }
func sharpBarrier(g *Group, _ uint64)       { g.aggregate(job.AllReduce, 0) }

// aggregate has the network do an operation, in pieces if it is short.
func (g *Group) aggregate(way job.Way, bytes uint64) {
	stream := bytes > SharpShort
	piece := max(bytes, 1)
	if !stream {
		piece = SharpPayload
		if g.Payload > 0 {
			piece = uint64(g.Payload)
		}
	}
	count := max((bytes+piece-1)/piece, 1)
	if g.b == nil {
		if g.tag += uint32(count) * uint32(g.Size()); g.tag > g.most {
			panic(tooMany{})
		}
		return
	}
	group := g.network(stream, int(piece))
	for k := range count {
		size := min(piece, bytes-k*piece)
		for m, rank := range g.ranks {
			op := g.b.Add(rank, job.Op{Kind: job.Aggregate, Way: way, Peer: uint32(g.ranks[0]), Size: size, Tag: group,
				CPU: g.CPU, NIC: g.NIC})
			g.b.After(rank, op, g.front[m]...)
			g.step[m] = append(g.step[m], op)
			g.tag++
		}
	}
	g.next()
}

// network is the job's group for short or for long vectors.
func (g *Group) network(stream bool, payload int) uint32 {
	at := &g.nets[0]
	if stream {
		at, payload = &g.nets[1], streamPayload
	}
	if *at == nil {
		made := job.Group{Payload: payload, Stream: stream}
		for _, r := range g.ranks {
			made.Ranks = append(made.Ranks, uint32(r))
		}
		n := g.b.Group(made)
		*at = &n
	}
	return **at
}
