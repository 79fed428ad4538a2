package train

import (
	"slices"

	"softib/job"
	"softib/job/collective"
)

// Processors of a rank: kernels run in one after the other, messages beside them.
const (
	compute = 0
	copies  = 1
)

// Tags of what two copies exchange, which are in three kinds of groups.
const (
	tagsData    = 0
	tagsExperts = 1 << 30
	tagsShared  = 2 << 30
)

// step builds a schedule, stage by stage. A stage's GPUs are numbered t + tensor * d.
type step struct {
	m      *Model
	a      algorithms
	b      *job.Builder
	stage  int
	last   [][]uint32 // by GPU of the stage: what its next kernel waits for
	work   []uint64   // and ns of kernels that follow it, not yet added
	tensor []*collective.Group
	expert []*collective.Group
	data   []*collective.Group // by GPU part: all copies of it
	shared []*collective.Group // and those with the same experts
	err    error
}

// Schedule makes the schedule.
func (m *Model) Schedule() (*job.Schedule, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	a, err := m.algorithms()
	if err != nil {
		return nil, err
	}
	b := job.NewBuilder(m.Ranks())
	for p := range m.Pipeline {
		s := &step{m: m, a: a, b: b, stage: p, last: make([][]uint32, m.Tensor*m.Data),
			work: make([]uint64, m.Tensor*m.Data)}
		s.groups()
		for k := range m.Steps {
			s.pass(uint32(k * m.MicroBatches))
			s.optimize()
		}
		if s.err != nil {
			return nil, s.err
		}
	}
	return b.Schedule()
}

// rank is that of a GPU of the stage.
func (s *step) rank(gpu int) int { return gpu + s.m.Tensor*s.m.Data*s.stage }

// group makes one of GPUs of the stage.
func (s *step) group(tags uint32, count int, gpu func(int) int) *collective.Group {
	ranks := make([]int, count)
	for i := range ranks {
		ranks[i] = s.rank(gpu(i))
	}
	g := collective.NewGroup(s.b, ranks)
	g.CPU = copies
	g.Tags(tags)
	return g
}

func (s *step) groups() {
	t, e := s.m.Tensor, s.m.Expert
	for d := range s.m.Data {
		s.tensor = append(s.tensor, s.group(0, t, func(i int) int { return d*t + i }))
	}
	for part := range t {
		s.data = append(s.data, s.group(tagsData, s.m.Data, func(i int) int { return part + t*i }))
		for first := 0; first < s.m.Data; first += e {
			s.expert = append(s.expert, s.group(tagsExperts, e, func(i int) int { return part + t*(first+i) }))
		}
		for k := range e {
			s.shared = append(s.shared, s.group(tagsShared, s.m.Data/e, func(i int) int { return part + t*(k+e*i) }))
		}
	}
}

// pass is all micro-batches, forwards and backwards, one of each in turn when the pipeline is full (1F1B).
func (s *step) pass(first uint32) {
	micro := s.m.MicroBatches
	warm := min(s.m.Pipeline-1-s.stage, micro)
	for i := range warm {
		s.forward(first + uint32(i))
	}
	for i := range micro {
		if warm+i < micro {
			s.forward(first + uint32(warm+i))
		}
		s.backward(first+uint32(i), i == micro-1)
	}
}

// kernels lets all GPUs of the stage work.
func (s *step) kernels(ns uint64) {
	for gpu := range s.work {
		s.work[gpu] += ns
	}
}

// flush adds a GPU's kernels, and returns what waits for them.
func (s *step) flush(gpu int) []uint32 {
	if s.work[gpu] > 0 {
		op := s.b.Add(s.rank(gpu), job.Op{Kind: job.Calc, Size: s.work[gpu], CPU: compute})
		s.b.After(s.rank(gpu), op, s.last[gpu]...)
		s.last[gpu], s.work[gpu] = []uint32{op}, 0
	}
	return s.last[gpu]
}

// blocking lets groups do something that the next kernels wait for.
func (s *step) blocking(list []*collective.Group, gpu func(group, member int) int, name string, bytes uint64,
	algorithm string) {
	for k, g := range list {
		if g.Size() < 2 || s.err != nil {
			continue
		}
		for i := range g.Size() {
			g.Wait(i, s.flush(gpu(k, i))...)
		}
		s.do(g, name, bytes, algorithm)
		for i := range g.Size() {
			s.last[gpu(k, i)] = g.Front(i)
		}
	}
}

func (s *step) do(g *collective.Group, name string, bytes uint64, algorithm string) {
	op, err := collective.ByName(name)
	if err == nil {
		err = op.Do(g, bytes, algorithm)
	}
	if s.err == nil {
		s.err = err
	}
}

// share sums up what GPUs that share a layer have.
func (s *step) share() {
	s.blocking(s.tensor, func(d, t int) int { return d*s.m.Tensor + t }, "all-reduce", s.m.activation(), s.a.tensor)
}

// exchange sends tokens to their experts, or back.
func (s *step) exchange() {
	sets := s.m.Data / s.m.Expert
	s.blocking(s.expert, func(k, i int) int { return k/sets + s.m.Tensor*(k%sets*s.m.Expert+i) }, "all-to-all",
		s.m.dispatched(), s.a.expert)
}

// layer is one in one direction: attention and what follows it, half of the time each, with what GPUs exchange after
// each half (Shoeybi et al. 2019), and tokens that go to experts and back around the second.
func (s *step) layer(l int, ns uint64) {
	s.kernels(ns / 2)
	s.share()
	if s.m.hasExperts(l) {
		s.exchange()
	}
	s.kernels(ns - ns/2)
	if s.m.hasExperts(l) {
		s.exchange()
	}
	s.share()
}

// message goes to the same GPU of another stage when its kernels have ended; nobody waits until it is there.
func (s *step) message(gpu, stage int, tag uint32) {
	op := s.b.Add(s.rank(gpu), job.Op{Kind: job.Send, Peer: uint32(gpu + s.m.Tensor*s.m.Data*stage),
		Size: s.m.passed(), Tag: tag, CPU: copies})
	s.b.After(s.rank(gpu), op, s.flush(gpu)...)
}

// await is such a message; the next kernels wait for it. It is posted from the beginning.
func (s *step) await(gpu, stage int, tag uint32) {
	s.flush(gpu)
	op := s.b.Add(s.rank(gpu), job.Op{Kind: job.Recv, Peer: uint32(gpu + s.m.Tensor*s.m.Data*stage),
		Size: s.m.passed(), Tag: tag, CPU: copies})
	s.last[gpu] = slices.Concat(s.last[gpu], []uint32{op})
}

func (s *step) forward(micro uint32) {
	s.neighbours(s.stage-1, 2*micro, s.await)
	for l := range s.m.Layers / s.m.Pipeline {
		s.layer(l, s.m.forward())
	}
	s.neighbours(s.stage+1, 2*micro, s.message)
}

func (s *step) backward(micro uint32, isLast bool) {
	s.neighbours(s.stage+1, 2*micro+1, s.await)
	buckets := s.m.buckets()
	for l := s.m.Layers/s.m.Pipeline - 1; l >= 0; l-- {
		s.layer(l, s.m.backward())
		if isLast && s.m.Overlap && l == buckets[0].layer {
			s.agree(buckets[0])
			buckets = buckets[1:]
		}
	}
	s.neighbours(s.stage-1, 2*micro+1, s.message)
	if isLast && !s.m.Overlap {
		for _, b := range buckets {
			s.agree(b)
		}
	}
}

// neighbours does something for all GPUs, if there is such a stage.
func (s *step) neighbours(stage int, tag uint32, do func(gpu, stage int, tag uint32)) {
	if stage >= 0 && stage < s.m.Pipeline {
		for gpu := range s.last {
			do(gpu, stage, tag)
		}
	}
}

// agree lets copies agree on a bucket, after the one before it; kernels go on.
func (s *step) agree(b bucket) {
	s.beside(s.data, s.dataGPU, s.m.Sync, s.m.small(b.dense), s.a.data)
	s.beside(s.shared, s.sharedGPU, s.m.Sync, s.m.small(b.experts), s.a.data)
}

// dataGPU and sharedGPU are the stage's GPUs that are members of those groups.
func (s *step) dataGPU(part, d int) int { return part + s.m.Tensor*d }

func (s *step) sharedGPU(k, i int) int {
	return k/s.m.Expert + s.m.Tensor*(k%s.m.Expert+s.m.Expert*i)
}

// beside lets groups do something beside kernels: after what they did before, and after the kernels so far.
func (s *step) beside(list []*collective.Group, gpu func(group, member int) int, name string, bytes uint64,
	algorithm string) {
	for k, g := range list {
		if g.Size() < 2 || bytes == 0 || s.err != nil {
			continue
		}
		for i := range g.Size() {
			g.Wait(i, slices.Concat(g.Front(i), s.flush(gpu(k, i)))...)
		}
		s.do(g, name, bytes, algorithm)
	}
}

// optimize waits for all gradients, changes the parameters, and gathers them where each copy has changed a part.
func (s *step) optimize() {
	join := func(list []*collective.Group, gpu func(group, member int) int) {
		for k, g := range list {
			for i := range g.Size() {
				at := gpu(k, i)
				s.flush(at)
				s.last[at] = slices.Concat(s.last[at], g.Front(i))
				g.Wait(i)
			}
		}
	}
	join(s.data, s.dataGPU)
	join(s.shared, s.sharedGPU)
	s.kernels(s.m.Optimizer)
	if s.m.Sync != "reduce-scatter" {
		return
	}
	dense, experts := s.m.gathered()
	s.beside(s.data, s.dataGPU, "all-gather", dense, s.a.gather)
	s.beside(s.shared, s.sharedGPU, "all-gather", experts, s.a.gather)
	join(s.data, s.dataGPU)
	join(s.shared, s.sharedGPU)
}
