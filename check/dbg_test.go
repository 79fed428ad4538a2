package check

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
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
	if name := os.Getenv("SOFTIB_KEEP"); name != "" {
		b, _ := json.MarshalIndent(f.Small, "", "\t")
		os.WriteFile("testdata/"+name+".json", append(b, 10), 0o644)
	}
	f.Result = run(&f.Small, runOptions{record: 100000, flows: res.Violations[0].Flows})
	fmt.Printf("%+v\n", f.Small.Work.Conns)
	for _, l := range f.Result.Packets {
		if strings.Contains(l, " > h") {
			fmt.Println(l)
		}
	}
	f.Result.Packets = nil
	f.Write(os.Stdout)
}
