package check

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

func TestDbg(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("SOFTIB_DBG"))
	if err != nil {
		t.Skip()
	}
	sc := Draw(uint64(n), 0)
	res := Run(&sc)
	if !res.Failed() {
		t.Skip("ok")
	}
	f := &Failure{Seed: uint64(n), Found: res.Violations, Small: sc, Result: res}
	f.shrink()
	f.Write(os.Stdout)
	fmt.Printf("%+v\n", f.Small.Work.Conns)
	fmt.Printf("%+v\n", f.Small.Work.SRQs)
}
