package train

import (
	"fmt"
	"math"
)

// dispatched is what a GPU has of tokens for experts: each goes to several. GPUs that share a layer have a part of the
// sequence each.
func (m *Model) dispatched() uint64 {
	return m.activation() / uint64(m.Tensor) * uint64(m.TopK)
}

// passed is what a GPU sends to the next stage: its part of the sequence (Korthikanti et al. 2022).
func (m *Model) passed() uint64 { return max(m.activation()/uint64(m.Tensor), 1) }

// gathered is the bytes of parameters, in 16 bits, that a GPU has after an all-gather.
func (m *Model) gathered() (dense, experts uint64) {
	d, e := m.gradient()
	layers := uint64(m.Layers / m.Pipeline)
	scale := func(v uint64) uint64 { return uint64(float64(v) / float64(m.GradientBytes) * 2) }
	return scale(d) * layers, scale(e) * (layers / uint64(m.ExpertEvery))
}

// Compute is how long a step takes where messages take no time: work of all micro-batches, and the bubble of a pipeline
// that fills and drains.
func (m *Model) Compute() (ns uint64, bubble float64) {
	each := (m.forward() + m.backward()) * uint64(m.Layers/m.Pipeline)
	slots := uint64(m.MicroBatches + m.Pipeline - 1)
	return each*slots + m.Optimizer, float64(m.Pipeline-1) / float64(slots)
}

// Says tells what a step is made of, a line for each kind of communication: how often, how much, by what.
func (m *Model) Says() (lines []string) {
	a, err := m.algorithms()
	if err != nil {
		return nil
	}
	layers := m.Layers / m.Pipeline
	ns, bubble := m.Compute()
	lines = append(lines, fmt.Sprintf("compute: %.4g ms a step without communication, of which the bubble of %d "+
		"stages is %.1f %%", float64(ns)/1e6, m.Pipeline, 100*bubble))
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	mib := func(v uint64) string {
		if v < 1<<20 {
			return fmt.Sprintf("%.4g KiB", float64(v)/(1<<10))
		}
		return fmt.Sprintf("%.4g MiB", float64(v)/(1<<20))
	}
	if m.Tensor > 1 {
		add("tensor: %d all-reduces of %s among %d GPUs, by %s", 4*layers*m.MicroBatches, mib(m.activation()), m.Tensor,
			a.tensor)
	}
	if m.Pipeline > 1 {
		add("pipeline: %d micro-batches of %s each way between %d stages", m.MicroBatches, mib(m.passed()), m.Pipeline)
	}
	if m.Expert > 1 {
		add("experts: %d all-to-alls of %s among %d copies, by %s", 4*(layers/m.ExpertEvery)*m.MicroBatches,
			mib(m.dispatched()), m.Expert, a.expert)
	}
	if m.Data > 1 {
		list := m.buckets()
		sum, most := uint64(0), uint64(0)
		for _, b := range list {
			sum += m.small(b.dense)
			most = max(most, m.small(b.dense))
		}
		how := "after the backward pass"
		if m.Overlap {
			how = "beside the last backward pass"
		}
		add("data: %d buckets, %s in all, the largest %s, %s among %d copies by %s, %s", len(list), mib(sum), mib(most),
			m.Sync, m.Data, a.data, how)
		if m.Compression > 1 {
			add("gradients are compressed %g times", m.Compression)
		}
		if m.Sync == "reduce-scatter" {
			dense, _ := m.gathered()
			add("parameters: all-gather of %s among %d copies by %s", mib(dense), m.Data, a.gather)
		}
	}
	return lines
}

// Bytes is what a GPU sends in a step, by kind, as counting gives it: a collective that is done with the fewest bytes
// sends 2(n-1)/n of its vector (all-reduce) or (n-1)/n (the others). Algorithms that send more are not counted here.
func (m *Model) Bytes() (tensor, pipeline, experts, data float64) {
	layers, micro := float64(m.Layers/m.Pipeline), float64(m.MicroBatches)
	part := func(n int) float64 { return float64(n-1) / float64(n) }
	tensor = 4 * layers * micro * 2 * part(m.Tensor) * float64(m.activation())
	if m.Pipeline > 1 {
		// An inner stage sends forwards and backwards, the first and the last one way.
		pipeline = 2 * micro * float64(m.passed())
	}
	if m.Expert > 1 {
		experts = 4 * math.Floor(layers/float64(m.ExpertEvery)) * micro * part(m.Expert) * float64(m.dispatched())
	}
	for _, b := range m.buckets() {
		data += float64(m.small(b.dense))*part(m.Data) + float64(m.small(b.experts))*part(m.Data/m.Expert)
	}
	dense, shared := m.gathered()
	if m.Sync == "all-reduce" {
		return tensor, pipeline, experts, 2 * data
	}
	return tensor, pipeline, experts, data + float64(dense)*part(m.Data) + float64(shared)*part(m.Data/m.Expert)
}
