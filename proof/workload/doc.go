// Package workload makes verbs programs out of a seed and runs them on the
// hosts of a simulation: queue pairs of every service, every operation, every
// kind of buffer, and some deliberate misuse.
//
// A Spec is a load as plain data, so that it can be printed, cut down and run
// again. Generate draws one. A Runner sets its objects up on the adapters
// of a Fabric, posts, polls and reacts to what Next reports; it tells an Observer
// everything that a program could have seen. It judges nothing: what should have
// happened is package check's to say.
//
//	spec := workload.Generate(rng, shape)
//	r, err := workload.New(s, spec, observer)
//	r.Start()
//	for !r.Finished() {
//		r.Handle(s.Next(limit))
//	}
//	err = r.Close()
//
// What a message holds follows from the seed, its flow and its number (Payload), so
// that whoever sees bytes can tell whose they are.
package workload
