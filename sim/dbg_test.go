package sim

import (
	"fmt"
	"softib/ib"
	"testing"
)

func TestDbg(t *testing.T) {
	s := build(t, "fat-tree:radix=16,levels=3", Config{Seed: 1})
	permutation(s, 1)
	s.Run(100 * ib.Microsecond)
	h0 := s.Hops()
	s.Run(200 * ib.Microsecond)
	fmt.Println(s.Hops()-h0, s.pool.InUse(), s.q.shift, s.q.Len(), len(s.q.far.a), s.q.popped, s.q.opened, s.q.farPushed)
	b := 0
	for i := range s.ends {
		if s.ends[i].port.Blocked() {
			b++
		}
	}
	fmt.Println("blocked", b, len(s.ends))
	got := uint64(0)
	for i := range s.NumHosts() {
		got += s.src(i).got
	}
	fmt.Println("delivered", got, float64(got)*4122/1024/200, "B/us per host; link", 400000/8)
}
