// Package train makes schedules of training steps of large models: layers, and how they are split among GPUs, become
// calculations, collectives and messages between pipeline stages, as Megatron-LM (Narayanan et al., SC 2021) does them.
//
// A file has lines of key = value (Keys lists them):
//
//	layers       = 32
//	parameters   = 6.7G
//	tensor       = 8      # each layer is split over so many GPUs,
//	pipeline     = 4      # layers over so many stages,
//	data         = 16     # and there are so many copies
//	micro-batches = 8
//	forward      = 1.1ms  # of a layer and micro-batch
//
// Rank t + tensor * (d + data * p) is part t of stage p of copy d: parts of a layer follow each other, as GPUs of a
// server do, and what copies exchange stays on one rail.
//
//	m, err := train.Parse(name, text)
//	s, err := m.Schedule()
//
// What it does not know: interleaved stages, recomputation (say it with a longer backward), embeddings, and parameters
// that are gathered layer by layer (ZeRO-3). A schedule has no values, so compression is a ratio of bytes and no loss.
package train
