package train

import (
	"fmt"
	"math"

	"softib/job/collective"
)

// Model is a training step. Times are in nanoseconds.
type Model struct {
	Layers                         int
	Parameters                     float64
	Data, Tensor, Pipeline, Expert int
	MicroBatches, Batch            int
	Sequence, Hidden               int
	Activation                     uint64 // 0 is of Batch, Sequence and Hidden
	Forward, Backward              uint64 // 0 is of GPU, and twice Forward
	GPU                            float64
	ExpertEvery, TopK              int
	ExpertParameters               float64
	GradientBytes                  int
	Compression                    float64
	Bucket                         uint64
	Overlap                        bool
	Sync                           string
	Optimizer                      uint64
	DataAlgorithm, TensorAlgorithm string
	Steps                          int
}

// Ranks is how many GPUs it needs.
func (m *Model) Ranks() int { return m.Data * m.Tensor * m.Pipeline }

// Check refuses what does not fit together. What it says ends in what is wanted.
func (m *Model) Check() error {
	switch {
	case m.Layers == 0:
		return fmt.Errorf("layers is missing: want layers = a number")
	case m.Layers%m.Pipeline != 0:
		return fmt.Errorf("pipeline = %d does not divide layers = %d: want stages of equally many layers", m.Pipeline,
			m.Layers)
	case m.Data%m.Expert != 0:
		return fmt.Errorf("expert = %d does not divide data = %d: want sets of equally many copies", m.Expert, m.Data)
	case m.Data > maxRanks/m.Tensor/m.Pipeline:
		return fmt.Errorf("data * tensor * pipeline are more than %d GPUs: want fewer", maxRanks)
	case m.forward() == 0:
		return fmt.Errorf("forward is missing: want forward = a time, or gpu, parameters, batch and sequence")
	case m.Parameters == 0 && m.Data > 1:
		return fmt.Errorf("parameters is missing: want parameters = a number, since there are %d copies", m.Data)
	case m.activation() == 0 && (m.Tensor > 1 || m.Pipeline > 1 || m.Expert > 1):
		return fmt.Errorf("activation is missing: want activation = bytes, or batch, sequence and hidden")
	case m.Compression < 1:
		return fmt.Errorf("compression = %g: want 1 or more", m.Compression)
	case m.forward() > maxTime || m.backward() > maxTime:
		return fmt.Errorf("a layer would take %g s: want a faster gpu or fewer parameters", float64(m.forward())/1e9)
	}
	if m.Expert > 1 && m.Layers/m.Pipeline < m.ExpertEvery {
		return fmt.Errorf("expert-every = %d: want no more than the %d layers of a stage", m.ExpertEvery,
			m.Layers/m.Pipeline)
	}
	if _, err := m.algorithms(); err != nil {
		return err
	}
	if n := m.operations(); n > maxOps {
		return fmt.Errorf("the schedule would have some %.0f million operations, more than fit into memory: want "+
			"fewer micro-batches or steps, larger buckets, or algorithms with fewer messages", n/1e6)
	}
	return nil
}

const (
	maxRanks = 1 << 17
	maxTime  = 1e12
	maxOps   = 64e6
)

// forward is the time of a layer and micro-batch: two operations for each parameter and token (Kaplan et al. 2020).
func (m *Model) forward() uint64 {
	if m.Forward > 0 || m.GPU == 0 {
		return m.Forward
	}
	tokens := float64(m.Batch) * float64(m.Sequence)
	return uint64(math.Round(math.Min(2*m.Parameters/float64(m.Layers)*tokens/float64(m.Tensor)/m.GPU*1e9, 2*maxTime)))
}

// backward takes twice as long: gradients of inputs and of weights.
func (m *Model) backward() uint64 {
	if m.Backward > 0 {
		return m.Backward
	}
	return 2 * m.forward()
}

// activation is what goes from layer to layer, in 16 bits each.
func (m *Model) activation() uint64 {
	if m.Activation > 0 {
		return m.Activation
	}
	return uint64(min(float64(m.Batch)*float64(m.Sequence)*float64(m.Hidden)*2, 1<<44))
}

// gradient is the bytes of a layer's gradients at a GPU, of its dense part and of its experts', before compression.
func (m *Model) gradient() (dense, experts uint64) {
	each := float64(m.GradientBytes) / float64(m.Tensor)
	dense = uint64(m.Parameters / float64(m.Layers) * each)
	if m.ExpertParameters > 0 {
		with := float64(m.Layers / m.Pipeline / m.ExpertEvery * m.Pipeline)
		experts = uint64(m.ExpertParameters / math.Max(with, 1) * each / float64(m.Expert))
	}
	return dense, experts
}

// hasExperts reports whether a layer of a stage, counted from 0, has experts.
func (m *Model) hasExperts(layer int) bool {
	return (m.Expert > 1 || m.ExpertParameters > 0) && layer%m.ExpertEvery == m.ExpertEvery-1
}

// bucket is gradients that are sent together, once the backward pass has done a layer.
type bucket struct {
	layer          int // of a stage
	dense, experts uint64
}

// buckets fills them as the backward pass comes down: one is sent when it is full, whatever its last layer has brought.
func (m *Model) buckets() (list []bucket) {
	dense, experts := m.gradient()
	var b bucket
	for l := m.Layers/m.Pipeline - 1; l >= 0; l-- {
		b.dense += dense
		if m.hasExperts(l) {
			b.experts += experts
		}
		if b.dense+b.experts >= m.Bucket || l == 0 {
			b.layer = l
			list = append(list, b)
			b = bucket{}
		}
	}
	return list
}

// small is what is sent of some bytes of gradients.
func (m *Model) small(bytes uint64) uint64 { return uint64(math.Ceil(float64(bytes) / m.Compression)) }

// algorithms are by what each collective is done.
type algorithms struct{ tensor, data, gather, expert string }

// algorithms chooses, where nobody has: within a server few steps, all of it exchanged once; among copies what package
// collective takes for the size of a bucket.
func (m *Model) algorithms() (a algorithms, err error) {
	reduce, err := collective.ByName("all-reduce")
	if err != nil {
		return a, err
	}
	if a.tensor = m.TensorAlgorithm; a.tensor == "auto" {
		a.tensor = "ring"
		if m.Tensor&(m.Tensor-1) == 0 {
			a.tensor = "halving-doubling"
		}
	}
	if err := reduce.Knows(a.tensor); err != nil {
		return a, fmt.Errorf("tensor-algorithm: %w", err)
	}
	sync, err := collective.ByName(m.Sync)
	if err != nil {
		return a, err
	}
	if a.data = m.DataAlgorithm; a.data == "auto" {
		a.data = sync.Choose(m.small(m.buckets()[0].dense), m.Data)
	}
	if err := sync.Knows(a.data); err != nil {
		return a, fmt.Errorf("data-algorithm: %w", err)
	}
	a.gather, a.expert = "ring", "pairwise"
	if m.Data > 64 {
		a.gather = "bruck"
	}
	return a, nil
}

// messages is how many one member sends in a collective, on average.
func messages(name string, members int, bytes uint64, algorithm string) float64 {
	if members < 2 {
		return 0
	}
	op, err := collective.ByName(name)
	if err != nil {
		return 0
	}
	g := collective.NewCounter(members, 1<<24)
	if err := op.Do(g, bytes, algorithm); err != nil {
		return 1 << 24
	}
	return float64(g.Messages()) / float64(members)
}

// operations is about how many the schedule has.
func (m *Model) operations() float64 {
	a, err := m.algorithms()
	if err != nil {
		return 0
	}
	layers, micro := float64(m.Layers/m.Pipeline), float64(m.MicroBatches)
	each := 4 * (2*messages("all-reduce", m.Tensor, m.activation(), a.tensor) + 1)
	if m.Expert > 1 {
		each += 4 * (2*messages("all-to-all", m.Expert, 1<<20, a.expert) + 1) / float64(m.ExpertEvery)
	}
	perRank := layers*micro*each + 6*micro
	for _, b := range m.buckets() {
		perRank += 2 * messages(m.Sync, m.Data, m.small(b.dense), a.data)
		if b.experts > 0 {
			perRank += 2 * messages(m.Sync, m.Data/m.Expert, m.small(b.experts), a.data)
		}
	}
	if m.Sync == "reduce-scatter" {
		perRank += 4 * messages("all-gather", m.Data, 1<<20, a.gather)
	}
	return perRank * float64(m.Ranks()) * float64(m.Steps)
}
