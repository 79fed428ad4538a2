package listening

import (
	"net"
	"testing"
)

func TestOn(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Logf("%s: %v", at, err) // a machine may have one of the two
			continue
		}
		port := l.Addr().(*net.TCPAddr).Port
		if !On(port) {
			t.Errorf("%s: not seen", l.Addr())
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if On(port) {
			t.Errorf("%s: seen after it was closed", l.Addr())
		}
	}
}
