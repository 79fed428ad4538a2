package history

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// blockPorts is how many ports share a record: a query for one reads what is kept of all of them, and an idle
// one costs a bit.
const blockPorts = 64

// A block is what a chunk of time has of blockPorts ports, whose numbers follow each other. For each metric of which
// any has something:
//
//	metric            1 byte
//	length            uvarint, of what follows
//	ports             8 bytes, a bit for each port that has something
//	series            of each such port: of the raw tier its counts, of others its counts and then its peaks
//
// The end has a CRC-32C of all before. What has nothing is not there: ports that do nothing cost nothing.
type block struct {
	points int
	peaks  bool // whether series of peaks are there too
	// counts and peak are indexed by metric, port and point.
	counts, peak []code
	active       [NumMetric]uint64
}

// reset makes room for blocks with so many points, all zero.
func (b *block) reset(points int, peaks bool) {
	b.points, b.peaks = points, peaks
	b.active = [NumMetric]uint64{}
	b.counts = zeroed(b.counts, int(NumMetric)*blockPorts*points)
	if peaks {
		b.peak = zeroed(b.peak, int(NumMetric)*blockPorts*points)
	}
}

func zeroed(s []code, n int) []code {
	if cap(s) < n {
		return make([]code, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// series are a port's counts and peaks.
func (b *block) series(m Metric, port int) (counts, peaks []code) {
	at := (int(m)*blockPorts + port) * b.points
	counts = b.counts[at : at+b.points]
	if b.peaks {
		peaks = b.peak[at : at+b.points]
	}
	return counts, peaks
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal appends the checksum of what follows from.
func seal(dst []byte, from int) []byte {
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

// unseal checks and drops the checksum.
func unseal(b []byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, damage("record", uint64(len(b)), "bytes are too few for a checksum")
	}
	b, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if have := crc32.Checksum(b, castagnoli); have != sum {
		return nil, damage("record", uint64(have), "is not the checksum it should have")
	}
	return b, nil
}

// appendBlock encodes a block; a block without anything is nothing.
func appendBlock(dst []byte, b *block) []byte {
	start := len(dst)
	var section []byte
	for m := range NumMetric {
		if b.active[m] == 0 {
			continue
		}
		section = binary.LittleEndian.AppendUint64(section[:0], b.active[m])
		for set := b.active[m]; set != 0; set &= set - 1 {
			counts, peaks := b.series(m, bits.TrailingZeros64(set))
			section = appendSeries(section, counts)
			if b.peaks {
				section = appendSeries(section, peaks)
			}
		}
		dst = append(dst, byte(m))
		dst = binary.AppendUvarint(dst, uint64(len(section)))
		dst = append(dst, section...)
	}
	if len(dst) == start {
		return dst
	}
	return seal(dst, start)
}

// section finds a metric in a block's record, without its checksum, and gives its ports and their series. There are
// none if the metric is not there.
func section(rec []byte, want Metric) (ports uint64, series []byte, err error) {
	last := -1
	for len(rec) > 0 {
		m := int(rec[0])
		length, k := binary.Uvarint(rec[1:])
		if m >= int(NumMetric) || m <= last {
			return 0, nil, damage("block", uint64(m), "is no metric that may come here")
		}
		if k <= 0 || length > uint64(len(rec)-1-k) || length < 8 {
			return 0, nil, damage("block", length, "bytes are no length for a metric")
		}
		body := rec[1+k : 1+k+int(length)]
		rec = rec[1+k+int(length):]
		if last = m; m == int(want) {
			return binary.LittleEndian.Uint64(body), body[8:], nil
		}
	}
	return 0, nil, nil
}

// readBlock decodes all of a block's record into b, which has been reset for its points.
func readBlock(rec []byte, b *block) error {
	rec, err := unseal(rec)
	if err != nil {
		return err
	}
	for m := range NumMetric {
		ports, rest, err := section(rec, m)
		if err != nil {
			return err
		}
		b.active[m] = ports
		for set := ports; set != 0; set &= set - 1 {
			counts, peaks := b.series(m, bits.TrailingZeros64(set))
			for _, s := range [][]code{counts, peaks} {
				if s == nil {
					continue
				}
				n, err := readSeries(rest, s)
				if err != nil {
					return err
				}
				rest = rest[n:]
			}
		}
		if len(rest) > 0 {
			return damage("block", uint64(len(rest)), "bytes are left after its series")
		}
	}
	return nil
}

// readPort decodes one port of a metric, and reports whether it has anything. s.counts and s.peaks have room for the
// chunk's points; s.peaks is nil in the raw tier.
func readPort(rec []byte, m Metric, port int, counts, peaks []code) (bool, error) {
	rec, err := unseal(rec)
	if err != nil {
		return false, err
	}
	ports, rest, err := section(rec, m)
	if err != nil || ports>>port&1 == 0 {
		return false, err
	}
	before := bits.OnesCount64(ports & (1<<port - 1))
	if peaks != nil {
		before *= 2
	}
	for range before {
		n, err := skipSeries(rest, len(counts))
		if err != nil {
			return false, err
		}
		rest = rest[n:]
	}
	n, err := readSeries(rest, counts)
	if err == nil && peaks != nil {
		_, err = readSeries(rest[n:], peaks)
	}
	return err == nil, err
}
