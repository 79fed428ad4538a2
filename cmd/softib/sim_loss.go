package main

import (
	"softib/operate/experiment"
	"softib/proto/ib"
)

// lossSettings are what --set takes of links that get lost during a run.
var lossSettings = []setting{
	{"lose-links", "per cent of the links between switches, one at least, that get lost (0)", upTo(100,
		func(s *experiment.Spec, v uint64) { s.Options.Loss.Part = float64(v) / 100 })},
	{"lose-at", "ns after which they are (0)", nanoseconds(func(s *experiment.Spec) *ib.Time {
		return &s.Options.Loss.At
	})},
	{"sweep-after", "ns from then until a manager has mended the tables; 0 is never (0)",
		nanoseconds(func(s *experiment.Spec) *ib.Time { return &s.Options.Loss.Sweep })},
	{"notify", "0: switches that choose do not tell each other where there is no way (1)",
		func(s *experiment.Spec, v uint64) error {
			s.Options.Loss.Mute = v == 0
			return nil
		}},
	{"ack-timeout", "1 to 31: ACKs are waited for 4.096 us times 2^N where links get lost (14)", upTo(31,
		func(s *experiment.Spec, v uint64) { s.Options.Loss.Timeout = uint8(v) })},
}
