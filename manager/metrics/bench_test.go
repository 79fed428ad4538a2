package metrics

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// large is a fabric with as many hosts as one 36-port switch radix gives on three levels: 11,664.
const large = "fat-tree:radix=36,levels=3"

// BenchmarkScrape measures scrapes of 11,664 hosts with an HTTP client on loopback that reads to the end.
func BenchmarkScrape(b *testing.B) {
	_, _, e := running(b, large)
	srv := httptest.NewServer(e)
	defer srv.Close()
	for _, c := range []struct {
		name  string
		parts []string
	}{{"all", nil}, {"switch", []string{"switch"}}, {"hca", []string{"hca"}}, {"ufm", []string{"ufm"}}, {"softib", []string{"softib"}}, {"switch+hca+softib", []string{"switch", "hca", "softib"}}} {
		b.Run(c.name, func(b *testing.B) {
			to := srv.URL + "/metrics?" + url.Values{"collect[]": c.parts}.Encode()
			get(b, srv.Client(), to)
			for b.Loop() {
				b.SetBytes(get(b, srv.Client(), to))
			}
		})
	}
}

// get reads an answer to its end.
func get(t testing.TB, c *http.Client, to string) int64 {
	t.Helper()
	r, err := c.Get(to)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatal(r.Status, err)
	}
	return n
}
