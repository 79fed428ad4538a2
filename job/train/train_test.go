package train

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"softib/job"
	"softib/job/play"
	"softib/proto/ib"
)

func parse(t *testing.T, text string) *Model {
	t.Helper()
	m, err := Parse("x", []byte(strings.ReplaceAll(text, ";", "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// alone plays a schedule where messages take no time, and returns when each rank ends.
func alone(t *testing.T, s *job.Schedule) (end ib.Time, ranks []ib.Time) {
	t.Helper()
	p := play.New(s, play.Model{Ideal: true})
	for !p.Done() && p.NextDeadline() != ib.Never {
		p.HandleTimeout(p.NextDeadline())
	}
	if !p.Done() {
		t.Fatal(p.Stuck())
	}
	for i := range s.Ranks {
		ranks = append(ranks, p.End(i))
		end = max(end, p.End(i))
	}
	return end, ranks
}

// TestBubble: where messages take no time, a step takes (m + p - 1) times what a stage needs for a micro-batch, so
// that (p - 1) / (m + p - 1) of it is the bubble, whatever else is split.
func TestBubble(t *testing.T) {
	for _, rest := range []string{"", ";tensor=2", ";data=4;parameters=1M",
		";data=4;expert=2;tensor=2;parameters=1M;expert-parameters=8M",
		";data=2;parameters=1M;sync=reduce-scatter;overlap=off;optimizer=5us"} {
		for _, p := range []int{1, 2, 4, 8} {
			for _, micro := range []int{1, 2, 3, 8, 16} {
				m := parse(t, fmt.Sprintf("layers=8;forward=10us;backward=25us;activation=1K;pipeline=%d;"+
					"micro-batches=%d%s", p, micro, rest))
				s, err := m.Schedule()
				if err != nil {
					t.Fatal(err)
				}
				end, _ := alone(t, s)
				each := uint64(8/p) * 35_000
				want := ib.Time(each*uint64(micro+p-1)+m.Optimizer) * ib.Nanosecond
				ns, bubble := m.Compute()
				if end != want || ib.Time(ns)*ib.Nanosecond != want {
					t.Errorf("%d stages, %d micro-batches%s: %v, and Compute says %d ns; want %v", p, micro, rest, end,
						ns, want)
				}
				if b := float64(p-1) / float64(micro+p-1); math.Abs(bubble-b) > 1e-12 {
					t.Errorf("bubble %v, want %v", bubble, b)
				}
				for r := range s.Ranks {
					work := uint64(0)
					for _, o := range s.Ranks[r].Ops {
						if o.Kind == job.Calc {
							work += o.Size
						}
					}
					if work != each*uint64(micro)+m.Optimizer {
						t.Errorf("rank %d works %d ns, want %d", r, work, each*uint64(micro))
					}
				}
			}
		}
	}
}

// TestBytes: what each rank sends is what counting gives, by what it is for.
func TestBytes(t *testing.T) {
	for _, text := range []string{
		"tensor=4;activation=4M", "pipeline=4;activation=4M", "data=8;parameters=64M;bucket=8M",
		"data=8;parameters=64M;bucket=8M;compression=4;overlap=off",
		"data=8;parameters=64M;sync=reduce-scatter;gradient-bytes=4",
		"data=8;expert=4;parameters=64M;expert-parameters=256M;activation=1M;expert-every=2;top-k=1",
		"tensor=2;pipeline=2;data=4;expert=2;parameters=64M;activation=1M;batch=2",
	} {
		m := parse(t, "layers=8;forward=10us;micro-batches=4;data-algorithm=ring;"+text)
		s, err := m.Schedule()
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		tensor, pipeline, experts, data := m.Bytes()
		stage := m.Tensor * m.Data
		for r := range s.Ranks {
			var sent [3]float64 // to other stages, to the same copy, to other copies
			for _, o := range s.Ranks[r].Ops {
				if o.Kind != job.Send {
					continue
				}
				switch peer := int(o.Peer); {
				case peer/stage != r/stage:
					sent[0] += float64(o.Size)
				case peer/m.Tensor == r/m.Tensor:
					sent[1] += float64(o.Size)
				default:
					sent[2] += float64(o.Size)
				}
			}
			wantPipe := pipeline
			if p := r / stage; p == 0 || p == m.Pipeline-1 {
				wantPipe /= 2
			}
			for i, want := range []float64{wantPipe, tensor, experts + data} {
				if math.Abs(sent[i]-want) > 1e-4*want+64 {
					t.Errorf("%s: rank %d sends %.0f bytes of kind %d, want %.0f", text, r, sent[i], i, want)
				}
			}
		}
	}
}

// TestOverlap: with a network that takes time, gradients cost less beside the backward pass than after it, and less
// when they are compressed; and never less than nothing.
func TestOverlap(t *testing.T) {
	end := func(text string) ib.Time {
		s, err := parse(t, "layers=16;forward=100us;data=4;parameters=160M;bucket=20M;data-algorithm=ring;"+
			text).Schedule()
		if err != nil {
			t.Fatal(err)
		}
		p := play.New(s, play.Model{Ideal: true, Latency: ib.Microsecond, GapPerByte: 20}) // 50 GB/s
		for !p.Done() {
			p.HandleTimeout(p.NextDeadline())
		}
		e := ib.Time(0)
		for i := range s.Ranks {
			e = max(e, p.End(i))
		}
		return e
	}
	compute := ib.Time(16*300) * ib.Microsecond
	off, on, small := end("overlap=off"), end("overlap=on"), end("overlap=off;compression=8")
	// A ring sends 1.5 times 320 MB of gradients, at 50 GB/s.
	ring := ib.Time(1.5*320e6*20) * ib.Picosecond
	if got := off - compute; got < ring || got > ring+ring/10 {
		t.Errorf("after the backward pass gradients take %v, want about %v", got, ring)
	}
	if got := small - compute; got < ring/8 || got > ring/8+ring/50 {
		t.Errorf("compressed they take %v, want about %v", got, ring/8)
	}
	if on <= compute || on > off-ib.Time(2)*ib.Millisecond {
		t.Errorf("beside it a step takes %v, after it %v", on, off)
	}
}

func TestRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "layers is missing",
		"layers=8":                          "forward is missing",
		"layers":                            "x:1: \"layers\": want key = value",
		"\nlayers=0":                        "x:2: layers = 0: want a number from 1",
		"layers=8\nlayers=8":                "x:2: layers is there twice",
		"layer=8":                           "want one of layers, parameters",
		"layers=8\nforward=3":               "x:2: forward = 3: want a time",
		"layers=8\nforward=-3us":            "want a time",
		"layers=8\nforward=NaNs":            "want a time",
		"layers=8\nforward=1us\ndata=2":     "parameters is missing",
		"layers=8\nforward=1us\npipeline=3": "does not divide layers",
		"layers=8\nforward=1us\npipeline=2": "activation is missing",
		"layers=8\nforward=1us\ndata=4\nparameters=1M\nexpert=3":                            "does not divide data",
		"layers=8\nforward=1us\noverlap=maybe":                                              "want on or off",
		"layers=8\nforward=1us\ntensor-algorithm=magic":                                     "want ring",
		"layers=8\nforward=1us\ndata=60000\nparameters=1M\npipeline=8":                      "more than 131072 GPUs",
		"layers=8\nforward=1us\ncompression=0.5":                                            "want 1 or more",
		"layers=8\nforward=1us\nparameters=1M\ndata=16384\ndata-algorithm=ring":             "fit into memory",
		"layers=64\nforward=1us\ntensor=64\nactivation=1M\nmicro-batches=65536\npipeline=2": "fit into memory",
		"layers=8\nparameters=1P\nbatch=1048576\nsequence=1000000\ngpu=1":                   "a layer would take",
	} {
		_, err := Parse("x", []byte(text))
		if !errors.Is(err, ErrTrain) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "; next: ") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if !Is([]byte("# a\n\n layers = 3\n")) || Is([]byte("num_ranks 2\n")) || Is([]byte("x = 3\n")) || Is(nil) {
		t.Error("Is")
	}
	m := parse(t, "layers=4;parameters=6.5G;gpu=400T;batch=2;sequence=2048;hidden=4096")
	// 2 * 6.5e9 / 4 * 4096 / 400e12 s.
	if got, want := m.forward(), uint64(33_280_000); got != want || m.backward() != 2*want {
		t.Errorf("forward %d, want %d", got, want)
	}
	if got := m.activation(); got != 2*2048*4096*2 {
		t.Errorf("activation %d", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("layers=8\nforward=1us\ndata=2\nparameters=1M # x\n"))
	f.Add([]byte("layers=2\nforward=1ns\ntensor=2\npipeline=2\nactivation=1\nsync=reduce-scatter\nparameters=1\n" +
		"data=2"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := Parse("x", text)
		if err != nil {
			if !errors.Is(err, ErrTrain) || !strings.Contains(err.Error(), "next:") {
				t.Fatalf("%v", err)
			}
			return
		}
		if m.operations() > 1e5 {
			return
		}
		s, err := m.Schedule()
		if err != nil {
			t.Fatalf("%v", err)
		}
		if len(s.Ranks) != m.Ranks() || len(m.Says()) == 0 {
			t.Fatal(len(s.Ranks))
		}
	})
}
