package load

import (
	"fmt"
	"strings"

	"softib/job"
	"softib/job/collective"
)

// Fit says how many ranks that follow each other are GPUs of one server; 1 where they are not. A collective whose
// algorithm is not said is chosen by it.
func (l *Load) Fit(perServer int) { l.perServer = perServer }

// Says tells what was chosen for the last schedule, where something was.
func (l *Load) Says() []string { return l.says }

// pingPong lets pairs of ranks answer each other: what a message takes that nothing else of its rank delays.
func pingPong(m *maker) error {
	by, count, sizes := int(m.number("by", 0, uint64(m.n-1))), int(m.number("count", 1, 1<<20)), m.sizes()
	if m.err != nil {
		return m.err
	}
	if by == 0 {
		by = m.n / 2
	}
	if float64(m.n)*float64(count)*2 > maxOps {
		return fmt.Errorf("%w: %s: %d messages of %d ranks are more than fit into memory: take a smaller count",
			ErrLoad, m.Kind.Name, count, m.n)
	}
	for rank := range m.n {
		// Blocks of by ranks talk to the next block.
		if peer := rank + by; rank/by%2 == 0 && peer < m.n {
			m.pingPong(rank, peer, count, sizes)
		}
	}
	return nil
}

func (m *maker) pingPong(a, b, count int, sizes func() uint64) {
	ends := [2]int{a, b}
	var last [2][]uint32 // what each end does next waits for
	for n := range 2 * count {
		from, to := ends[n%2], ends[1-n%2]
		bytes := sizes()
		send := m.b.Send(from, to, bytes, uint32(n))
		m.b.After(from, send, last[n%2]...)
		last[1-n%2] = []uint32{m.b.Recv(to, from, bytes, uint32(n))}
	}
}

// pause lets a sender be silent after each burst: messages of the next wait for the end of the last burst's, and then
// for a time on a processor that does nothing else, which is the operation that silence is.
func (m *maker) pause(rank, n, burst int, idle uint64, ops []uint32, silence *uint32) {
	if burst == 0 || n < burst {
		return
	}
	if n%burst == 0 {
		*silence = m.b.Add(rank, job.Op{Kind: job.Calc, Size: idle, CPU: 2})
		m.b.After(rank, *silence, ops[n-burst:n]...)
	}
	m.b.After(rank, ops[n], *silence)
}

// way is how a collective is done: by which algorithm, and among how many ranks of a server first.
func (m *maker) way(op *collective.Operation, bytes uint64) (algorithm string, perHost int) {
	algorithm, perHost = m.set["algorithm"], 1
	if algorithm == "auto" {
		algorithm = ""
	}
	if per, ok := m.set["per-host"]; ok && per != "" {
		perHost = int(m.number("per-host", 1, uint64(m.n)))
	} else if ok && algorithm == "" && m.perServer > 1 && m.n%m.perServer == 0 {
		perHost = m.perServer
	}
	among := "among all"
	share := bytes
	if perHost > 1 {
		share = bytes / uint64(perHost)
		among = fmt.Sprintf("among the same GPUs of all servers, after a reduce-scatter among the %d of each", perHost)
	}
	if algorithm == "" {
		algorithm = op.Choose(share, m.n/perHost)
	}
	m.says = []string{strings.Join([]string{op.Name, "by", algorithm, among}, " ")}
	return algorithm, perHost
}
