package etcd_test

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"softib/internal/benchsize"
	"softib/internal/etcdtest"
	"softib/operate/cluster"
	"softib/operate/cluster/etcd"
)

// traffic is how many bytes an etcd has got and sent.
func traffic(b *testing.B, addr string) (bytes float64) {
	b.Helper()
	r, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		b.Fatal(err)
	}
	defer r.Body.Close()
	found := 0
	for s := bufio.NewScanner(r.Body); s.Scan(); {
		var n float64
		for _, way := range []string{"received", "sent"} {
			name := "etcd_network_client_grpc_" + way + "_bytes_total "
			if text, ok := strings.CutPrefix(s.Text(), name); ok {
				if _, err := fmt.Sscan(text, &n); err != nil {
					b.Fatal(err)
				}
				bytes += n
				found++
			}
		}
	}
	if found != 2 {
		b.Fatalf("etcd tells %d of 2 figures", found)
	}
	return bytes
}

// patience is how long anything here may take.
const patience = 5 * time.Minute

// BenchmarkMembers: so many machines join, one makes a change that all see, one dies and all hear of it, and the master
// dies. Each has a connection of its own to one etcd on loopback, and all are in this process.
func BenchmarkMembers(b *testing.B) {
	count := benchsize.Of(300, 20)
	for range b.N {
		srv := etcdtest.Start(b)
		at, err := etcd.ParseURL(srv.URL("lab"))
		if err != nil {
			b.Fatal(err)
		}
		began, bytes := time.Now(), traffic(b, srv.Addr)
		lap := func(name string) {
			b.Helper()
			now := traffic(b, srv.Addr)
			b.ReportMetric(time.Since(began).Seconds(), name+"-s")
			b.ReportMetric((now-bytes)/1e6, name+"-MB")
		}
		start := func() { began, bytes = time.Now(), traffic(b, srv.Addr) }
		all := make([]*etcd.Member, count)
		var wait sync.WaitGroup
		turn := make(chan struct{}, 16) // machines do not come all at once
		for i := range all {
			turn <- struct{}{}
			wait.Go(func() {
				defer func() { <-turn }()
				s, err := etcd.Connect(etcdtest.Context(b), at)
				for errors.Is(err, etcd.ErrSilent) && time.Since(began) < patience {
					s, err = etcd.Connect(etcdtest.Context(b), at) // it has much to do
				}
				if err != nil {
					b.Error(err)
					return
				}
				b.Cleanup(func() { _ = s.Close() })
				all[i] = etcd.Start(s, cluster.Info{Name: fmt.Sprintf("m%04d", i), Control: "10.0.0.1:7000",
					Data: "10.0.0.1:7001"}, nil)
				b.Cleanup(all[i].Abandon)
				if err := all[i].Joined(b.Context()); err != nil {
					b.Error(err)
				}
			})
		}
		if wait.Wait(); b.Failed() {
			b.FailNow()
		}
		everybody := func(what string, list []*etcd.Member, is func(*etcd.Member) bool) {
			b.Helper()
			deadline := time.Now().Add(patience)
			for _, m := range list {
				for !is(m) {
					if time.Now().After(deadline) {
						b.Fatalf("%s: not after %v", what, patience)
					}
					time.Sleep(time.Millisecond)
				}
			}
		}
		everybody("all know all", all, func(m *etcd.Member) bool { return len(m.Members()) == count })
		lap("join")

		ruler := func(list []*etcd.Member) (at int) {
			everybody("a master", list[:1], func(*etcd.Member) bool {
				for i, m := range list {
					if m.IsMaster() {
						at = i
						return true
					}
				}
				return false
			})
			return at
		}
		k := ruler(all)
		start()
		rev, err := all[k].Change(etcdtest.Context(b), cluster.Change{Base: all[k].Revision(),
			Put: []cluster.Section{{Name: "spec", Value: []byte("fat-tree:radix=36,levels=3")}}})
		if err != nil {
			b.Fatal(err)
		}
		everybody("all have the change", all, func(m *etcd.Member) bool { return m.Revision() == rev })
		lap("change")

		dead := (k + count/2) % count
		start()
		all[dead].Abandon()
		rest := append(append([]*etcd.Member{}, all[:dead]...), all[dead+1:]...)
		everybody("all miss the dead one", rest, func(m *etcd.Member) bool { return len(m.Members()) == count-1 })
		lap("lost")

		k = ruler(rest)
		start()
		rest[k].Abandon()
		rest = append(rest[:k:k], rest[k+1:]...)
		ruler(rest)
		lap("master")

		start()
		time.Sleep(5 * time.Second / time.Duration(b.N)) // how much is said when nothing happens
		lap("idle")
	}
}
