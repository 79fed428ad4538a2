package train

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ErrTrain is what every refusal of a file or of its contents is.
var ErrTrain = errors.New("not a training step")

// Key is something that a file may say.
type Key struct {
	Name, Default, Help string
	set                 func(*Model, string) error
}

// Keys are all of them, in the order of the help.
func Keys() []Key { return keys }

var keys []Key

func init() {
	keys = []Key{
		{"layers", "", "layers of the model", count(1, 1<<16, func(m *Model) *int { return &m.Layers })},
		{"parameters", "", "of all layers, without experts: 6.7G is 6.7e9", amount(1e15,
			func(m *Model) *float64 { return &m.Parameters })},
		{"data", "1", "copies of the model", count(1, 1<<16, func(m *Model) *int { return &m.Data })},
		{"tensor", "1", "GPUs that share each layer", count(1, 1<<10, func(m *Model) *int { return &m.Tensor })},
		{"pipeline", "1", "stages that the layers are cut into, 1F1B", count(1, 1<<10,
			func(m *Model) *int { return &m.Pipeline })},
		{"expert", "1", "copies that share a set of experts", count(1, 1<<16,
			func(m *Model) *int { return &m.Expert })},
		{"micro-batches", "1", "of each copy in a step", count(1, 1<<16,
			func(m *Model) *int { return &m.MicroBatches })},
		{"batch", "1", "sequences of a micro-batch", count(1, 1<<20, func(m *Model) *int { return &m.Batch })},
		{"sequence", "0", "tokens of a sequence", count(0, 1<<30, func(m *Model) *int { return &m.Sequence })},
		{"hidden", "0", "width of the model", count(0, 1<<24, func(m *Model) *int { return &m.Hidden })},
		{"activation", "", "bytes between two layers, of a micro-batch (batch * sequence * hidden * 2)",
			bytes(func(m *Model) *uint64 { return &m.Activation })},
		{"forward", "", "time of a layer and micro-batch, on the GPUs that share it", duration(
			func(m *Model) *uint64 { return &m.Forward })},
		{"backward", "", "the same backwards (twice forward)", duration(func(m *Model) *uint64 { return &m.Backward })},
		{"gpu", "", "what a GPU really does of such work a second, 400T; forward is then 2 * parameters * tokens by it",
			amount(1e18, func(m *Model) *float64 { return &m.GPU })},
		{"expert-every", "1", "each so many layers one has experts", count(1, 1<<16,
			func(m *Model) *int { return &m.ExpertEvery })},
		{"expert-parameters", "0", "of all experts of all layers", amount(1e15,
			func(m *Model) *float64 { return &m.ExpertParameters })},
		{"top-k", "2", "experts that a token goes to", count(1, 1<<10, func(m *Model) *int { return &m.TopK })},
		{"gradient-bytes", "2", "bytes of a parameter's gradient", count(1, 16,
			func(m *Model) *int { return &m.GradientBytes })},
		{"compression", "1", "gradients become so many times smaller before they are sent", amount(1e6,
			func(m *Model) *float64 { return &m.Compression })},
		{"bucket", "64M", "bytes of gradients that are sent together, before compression",
			bytes(func(m *Model) *uint64 { return &m.Bucket })},
		{"overlap", "on", "on: gradients are sent while the last backward pass goes on", choice(
			func(m *Model, v string) { m.Overlap = v == "on" }, "on", "off")},
		{"sync", "all-reduce", "all-reduce of gradients, or reduce-scatter of them and all-gather of parameters",
			choice(func(m *Model, v string) { m.Sync = v }, "all-reduce", "reduce-scatter")},
		{"optimizer", "0ns", "time of its step, of all parameters of a GPU", duration(
			func(m *Model) *uint64 { return &m.Optimizer })},
		{"data-algorithm", "auto", "of the all-reduce, or reduce-scatter, among copies", word(
			func(m *Model) *string { return &m.DataAlgorithm })},
		{"tensor-algorithm", "auto", "of the all-reduce among GPUs that share a layer", word(
			func(m *Model) *string { return &m.TensorAlgorithm })},
		{"steps", "1", "training steps, one after the other", count(1, 1<<10, func(m *Model) *int { return &m.Steps })},
	}
}

// Parse reads a file.
func Parse(file string, text []byte) (*Model, error) {
	m := newModel()
	seen := map[string]int{}
	for i, line := range strings.Split(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		if !ok {
			return nil, fmt.Errorf("%w: %s:%d: %.60q: want key = value; next: mend that line", ErrTrain, file, i+1,
				line)
		}
		if at, twice := seen[name]; twice {
			return nil, fmt.Errorf("%w: %s:%d: %s is there twice; next: take one out, the first is in line %d",
				ErrTrain, file, i+1, name, at)
		}
		seen[name] = i + 1
		if err := m.Set(name, strings.TrimSpace(value)); err != nil {
			return nil, fmt.Errorf("%w: %s:%d: %w; next: mend that line", ErrTrain, file, i+1, err)
		}
	}
	if err := m.Check(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w; next: mend the file", ErrTrain, file, err)
	}
	return m, nil
}

// newModel has what keys are when nobody says them.
func newModel() *Model {
	m := &Model{}
	for _, k := range keys {
		if k.Default != "" {
			if err := k.set(m, k.Default); err != nil {
				panic(err)
			}
		}
	}
	return m
}

// Is reports whether a text looks like a file of this package: its first line that says something sets a key.
func Is(text []byte) bool {
	for line := range strings.SplitSeq(string(text[:min(len(text), 1<<16)]), "\n") {
		line, _, _ = strings.Cut(line, "#")
		if name, _, ok := strings.Cut(line, "="); ok {
			return find(strings.TrimSpace(name)) != nil
		} else if strings.TrimSpace(line) != "" {
			return false
		}
	}
	return false
}

func find(name string) *Key {
	for i := range keys {
		if keys[i].Name == name {
			return &keys[i]
		}
	}
	return nil
}

// Set sets one key. Check is due after the last.
func (m *Model) Set(name, value string) error {
	k := find(name)
	if k == nil {
		var names []string
		for _, k := range keys {
			names = append(names, k.Name)
		}
		return fmt.Errorf("%.40q: want one of %s", name, strings.Join(names, ", "))
	}
	if err := k.set(m, value); err != nil {
		return fmt.Errorf("%s = %.40s: %w", name, value, err)
	}
	return nil
}

func count(least, most int, field func(*Model) *int) func(*Model, string) error {
	return func(m *Model, text string) error {
		v, err := strconv.Atoi(text)
		if err != nil || v < least || v > most {
			return fmt.Errorf("want a number from %d to %d", least, most)
		}
		*field(m) = v
		return nil
	}
}

// scaled reads a number with a unit from a list behind it.
func scaled(text string, most float64, units []string, factors []float64) (float64, bool) {
	factor, found := 1.0, ""
	for i, u := range units {
		if strings.HasSuffix(text, u) && len(u) > len(found) {
			factor, found = factors[i], u
		}
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(text, found)), 64)
	v *= factor
	return v, err == nil && v >= 0 && v <= most // not a NaN either
}

func amount(most float64, field func(*Model) *float64) func(*Model, string) error {
	return func(m *Model, text string) error {
		v, err := Amount(text)
		if err != nil || v > most {
			return fmt.Errorf("want a number up to %g, with K, M, G, T or P behind it for powers of 1,000", most)
		}
		*field(m) = v
		return nil
	}
}

// Amount reads a number such as 6.7G, which is 6.7e9.
func Amount(text string) (float64, error) {
	v, ok := scaled(text, 1e18, []string{"K", "M", "G", "T", "P"}, []float64{1e3, 1e6, 1e9, 1e12, 1e15})
	if !ok {
		return 0, errors.New("want a number, with K, M, G, T or P behind it for powers of 1,000")
	}
	return v, nil
}

func bytes(field func(*Model) *uint64) func(*Model, string) error {
	return func(m *Model, text string) error {
		v, ok := scaled(text, 1<<44, []string{"K", "M", "G", "T"}, []float64{1 << 10, 1 << 20, 1 << 30, 1 << 40})
		if !ok || v < 1 {
			return errors.New("want bytes, with K, M, G or T behind the number for powers of 1,024")
		}
		*field(m) = uint64(math.Round(v))
		return nil
	}
}

func duration(field func(*Model) *uint64) func(*Model, string) error {
	return func(m *Model, text string) error {
		v, ok := scaled(text, 1e12, []string{"ns", "us", "ms", "s"}, []float64{1, 1e3, 1e6, 1e9})
		if !ok || !strings.HasSuffix(text, "s") {
			return errors.New("want a time such as 350us, 1.2ms or 2s, of at most 1,000 s")
		}
		*field(m) = uint64(math.Round(v))
		return nil
	}
}

func choice(set func(*Model, string), words ...string) func(*Model, string) error {
	return func(m *Model, text string) error {
		for _, w := range words {
			if w == text {
				set(m, w)
				return nil
			}
		}
		return fmt.Errorf("want %s", strings.Join(words, " or "))
	}
}

func word(field func(*Model) *string) func(*Model, string) error {
	return func(m *Model, text string) error {
		*field(m) = text
		return nil
	}
}
