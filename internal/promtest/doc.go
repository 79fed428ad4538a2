// Package promtest runs Debian's Prometheus for tests: a process of its own on loopback, in a folder of its own, that
// scrapes something and judges it by alert rules.
//
//	p := promtest.Start(t, promtest.Config{Target: "127.0.0.1:1234", Rules: "../../contrib/prometheus/softib.rules.yml"})
//	alerts := p.Await(ctx, func(a []promtest.Alert) bool { return len(promtest.Firing(a)) > 0 })
//
// It knows HTTP and Prometheus' files, and nothing of fabrics. Where Prometheus is not installed a test fails; one who
// wants to go without sets SOFTIB_NO_PROMETHEUS, and it is skipped.
package promtest
