package rdmacore

import (
	"slices"
	"testing"
)

func TestRead(t *testing.T) {
	o := Read(`test_a (tests.test_qp.QPTest.test_a)
Makes a thing ... ok
test_b (tests.test_qp.QPTest.test_b) ... says something
ok
test_c (tests.test_mr.MRTest.test_c)
Says why ... skipped 'no memory'
test_d (tests.test_mlx5_dc.DCTest.test_d) ... ok
test_e (tests.test_mr.MRTest.test_e) ... ERROR
test_f (tests.test_mr.MRTest.test_f) ... Segmentation fault
`)
	for _, c := range []struct {
		what      string
		got, want []string
	}{
		{"passed", o.Passed, []string{"test_qp.test_a", "test_qp.test_b"}},
		{"skipped", o.Skipped, []string{"test_mr.test_c"}},
		{"failed", o.Failed, []string{"test_mr.test_e", "test_mr.test_f"}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, c.got, c.want)
		}
	}
}
