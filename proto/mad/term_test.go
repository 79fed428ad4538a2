package mad

import (
	"math/rand/v2"
	"testing"

	"softib/proto/ib"
)

// TestTermKeys: a key says its term to who knows the secret and the port, and nothing to anybody else.
func TestTermKeys(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		secret, g, term := r.Uint64(), ib.GUID(r.Uint64()), r.Uint32()>>8
		key := TermKey(secret, g, term)
		if got, ok := TermOf(secret, g, key); !ok || got != term || key == 0 {
			t.Fatalf("key %#x of term %d says term %d, %v", key, term, got, ok)
		}
		for what, other := range map[string]uint64{"another secret": TermKey(secret+1, g, term),
			"another port": TermKey(secret, g+1, term), "a later term": key + 1<<40, "one bit": key ^ 1<<r.UintN(64)} {
			if got, ok := TermOf(secret, g, other); ok {
				t.Errorf("a key with %s says term %d", what, got)
			}
		}
	}
	for _, c := range []struct {
		a, b  uint32
		after bool
	}{{1, 0, true}, {0, 1, false}, {5, 5, false}, {0, 1<<24 - 1, true}, {1<<24 - 1, 0, false}, {1 << 23, 1, true},
		{1 << 23, 0, false}, {1<<24 + 3, 3, false}, {1<<24 + 4, 3, true}} {
		if TermAfter(c.a, c.b) != c.after {
			t.Errorf("term %d after %d: %v", c.a, c.b, !c.after)
		}
	}
}
