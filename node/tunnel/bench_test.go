package tunnel

import (
	"fmt"
	"testing"
	"time"

	"softib/proto/ib"
)

// BenchmarkTunnel is a message of 4 KiB through both ends on one core, beside what the cipher alone costs: sealing and
// opening as many bytes. "of-cipher" is the part of the cipher's speed that is left.
func BenchmarkTunnel(b *testing.B) {
	for _, mtu := range []int{8952, 1452} {
		b.Run(fmt.Sprintf("mtu=%d", mtu), func(b *testing.B) {
			x, y := pair(b, mtu, nil)
			message, buf := make([]byte, 4096), make([]byte, mtu)
			now := ib.Time(0)
			b.ReportAllocs()
			for b.Loop() {
				now += ib.Microsecond
				// Batches, as a driver makes them: as much as there is room for, then what answers it.
				for range 16 {
					if err := x.Send(now, 1, message); err != nil {
						b.Fatal(err)
					}
				}
				for got := 0; got < 16; {
					carryAll(b, now, x, y, buf)
					for {
						if _, _, ok := y.PollMessage(); !ok {
							break
						}
						got++
					}
					carryAll(b, now, y, x, buf)
				}
			}
			b.SetBytes(16 * 4096)
			b.StopTimer()
			ours := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / (16 * 4096)
			theirs := cipherAlone(b, x.out.key, mtu)
			b.ReportMetric(1/theirs*1000, "cipher-MB/s")
			b.ReportMetric(theirs/ours, "of-cipher")
		})
	}
}

func carryAll(b *testing.B, now ib.Time, from, to *Session, buf []byte) {
	for {
		n, ok := from.PollDatagram(now, buf)
		if !ok {
			return
		}
		if err := to.HandleDatagram(now, buf[:n]); err != nil {
			b.Fatal(err)
		}
	}
}

// cipherAlone is how many nanoseconds the cipher takes to seal and open a byte.
func cipherAlone(b *testing.B, k *key, mtu int) float64 {
	buf := make([]byte, mtu)
	plain := mtu - headerBytes - sealBytes
	nonce := k.iv[:]
	begin, n := time.Now(), 0
	for ; time.Since(begin) < b.Elapsed(); n++ {
		c := k.aead.Seal(buf[headerBytes:headerBytes], nonce, buf[headerBytes:headerBytes+plain], buf[:headerBytes])
		if _, err := k.aead.Open(c[:0], nonce, c, buf[:headerBytes]); err != nil {
			b.Fatal(err)
		}
	}
	return float64(time.Since(begin).Nanoseconds()) / float64(n*plain)
}
