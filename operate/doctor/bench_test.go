package doctor_test

import (
	"context"
	"testing"
	"time"

	"softib/internal/benchsize"
	"softib/operate/doctor"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// BenchmarkExamine is a run without its interval: looking twice, and judging.
func BenchmarkExamine(b *testing.B) {
	for _, spec := range []string{"fat-tree:radix=8,levels=2", "fat-tree:radix=36,levels=2",
		"fat-tree:radix=36,levels=3", "fat-tree:radix=64,levels=3,pods=44"} {
		b.Run(spec, func(b *testing.B) {
			r := newRig(b, benchsize.Tree(spec), sm.Config{})
			b.ResetTimer()
			var look, judge time.Duration
			questions := 0
			for range b.N {
				s, err := r.OpenMgmt(topo.PortRef{Node: r.g.Hosts()[1].Index, Port: 1})
				if err != nil {
					b.Fatal(err)
				}
				began := time.Now()
				found, err := doctor.Run(context.Background(), s, doctor.RunOptions{Interval: 1})
				if err != nil {
					b.Fatal(err)
				}
				look += time.Since(began)
				began = time.Now()
				rep := doctor.Judge(found.Before, found.After, doctor.Options{Plan: r.g, Routes: found.Routes})
				judge += time.Since(began)
				questions = rep.Fabric.Questions
				if !rep.Healthy() {
					b.Fatalf("not healthy:\n%s", all(rep))
				}
				s.Close()
			}
			b.ReportMetric(look.Seconds()/float64(b.N), "s-look")
			b.ReportMetric(judge.Seconds()/float64(b.N), "s-judge")
			b.ReportMetric(float64(questions), "questions")
		})
	}
}
