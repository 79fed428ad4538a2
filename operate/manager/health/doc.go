// Package health judges cables by what the counters of their two ends say: which are bad, how bad, in which
// direction, and why in words that a person can act on.
//
// It is pure: whoever has counters (the sampler of a running fabric, a survey by datagrams) hands them in and gets
// verdicts, worst first. The same input always gives the same output.
//
//	verdicts := health.Judge(cables, 10*time.Second, health.Default())
//	for _, v := range verdicts {
//		fmt.Println(v.Severity, v.Summary(graph)) // bad  leaf3[7] spine1[2]: 41 symbol errors in 10 s at leaf3[7], bit error rate about 2e-11
//	}
//
// Every limit is in one table (thresholds.go), with its source. Exceeding holds one port's counters against it, for
// counters that say nothing about a cable too: discards, partition violations.
//
// A verdict is about one interval. Alarms turns a sequence of them into standing conditions that are raised and
// cleared once, not with every sample:
//
//	alarms := health.NewAlarms(health.DefaultPatience())
//	for each sample {
//		for _, change := range alarms.Update(now, verdicts) { … raised, worse or cleared … }
//	}
//
// The package knows no datagram, no fabric and no clock, and opens nothing.
package health
