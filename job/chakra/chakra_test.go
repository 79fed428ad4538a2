package chakra

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"softib/job"
	"softib/job/play"
	"softib/proto/ib"
)

// A writer of traces, as et_def.proto has them.
type attr struct {
	name  string
	field int // of AttributeProto's value
	value int64
	text  string
}

func key(b []byte, field, wire int) []byte { return binary.AppendUvarint(b, uint64(field<<3|wire)) }

func delimit(b, message []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(message))), message...)
}

func (a attr) append(b []byte) []byte {
	b = delimit(key(b, 1, wireBytes), []byte(a.name))
	switch a.field {
	case 29:
		return delimit(key(b, 29, wireBytes), []byte(a.text))
	case 3:
		return binary.LittleEndian.AppendUint64(key(b, 3, wire64), math.Float64bits(float64(a.value)))
	case 5:
		return binary.LittleEndian.AppendUint32(key(b, 5, wire32), math.Float32bits(float32(a.value)))
	case 15, 17:
		return binary.AppendUvarint(key(b, a.field, wireVarint), uint64(a.value<<1^a.value>>63))
	case 21:
		return binary.LittleEndian.AppendUint64(key(b, 21, wire64), uint64(a.value))
	}
	return binary.AppendUvarint(key(b, a.field, wireVarint), uint64(a.value))
}

// written is a file of nodes; deps are packed at odd nodes and not at even ones, since both are protobuf.
func written(nodes ...node) []byte {
	file := delimit(nil, delimit(key(nil, 1, wireBytes), []byte("0.0.4")))
	for i, n := range nodes {
		b := binary.AppendUvarint(key(nil, 1, wireVarint), n.id)
		b = delimit(key(b, 2, wireBytes), []byte(n.name))
		b = binary.AppendUvarint(key(b, 3, wireVarint), n.kind)
		var packed []byte
		for _, d := range n.deps {
			if i%2 == 0 {
				b = binary.AppendUvarint(key(b, 5, wireVarint), d)
			} else {
				packed = binary.AppendUvarint(packed, d)
			}
		}
		if packed != nil {
			b = delimit(key(b, 4, wireBytes), packed)
		}
		b = binary.AppendUvarint(key(b, 7, wireVarint), n.micros)
		attrs := []attr{{"is_cpu_op", 27, 0, ""}}
		if n.ops > 0 {
			attrs = append(attrs, attr{"num_ops", 13, int64(n.ops), ""})
		}
		switch n.kind {
		case nodeSend, nodeRecv:
			attrs = append(attrs, attr{"comm_src", 7, n.src, ""}, attr{"comm_dst", 17, n.dst, ""},
				attr{"comm_tag", 5, n.tag, ""}, attr{"comm_size", 3, int64(n.size), ""})
		case nodeColl:
			attrs = append(attrs, attr{"comm_type", 9, n.comm, ""}, attr{"comm_size", 21, int64(n.size), ""})
			if n.group != "" {
				attrs = append(attrs, attr{"pg_name", 29, 0, n.group})
			}
		}
		for _, a := range attrs {
			b = delimit(key(b, 10, wireBytes), a.append(nil))
		}
		file = delimit(file, b)
	}
	return file
}

func files(list ...[]byte) (fs []File) {
	for i, data := range list {
		fs = append(fs, File{Name: fmt.Sprintf("t.%d.et", i), Data: data})
	}
	return fs
}

func played(t *testing.T, s *job.Schedule, m play.Model) ib.Time {
	t.Helper()
	m.Ideal = true
	p := play.New(s, m)
	for !p.Done() && p.NextDeadline() != ib.Never {
		p.HandleTimeout(p.NextDeadline())
	}
	if !p.Done() {
		t.Fatal(p.Stuck())
	}
	end := ib.Time(0)
	for i := range s.Ranks {
		end = max(end, p.End(i))
	}
	return end
}

// TestTrace: two ranks compute, one sends to the other, which computes by operations, and both all-reduce and gather.
func TestTrace(t *testing.T) {
	a := written(node{id: 10, kind: nodeCompute, micros: 5},
		node{id: 11, kind: nodeSend, src: 0, dst: 1, tag: 7, size: 4096, deps: []uint64{10}},
		node{id: 12, kind: nodeColl, comm: allReduce, size: 1 << 20, deps: []uint64{10, 11}, name: "all of it"},
		node{id: 13, kind: nodeColl, comm: allGather, size: 1 << 10, deps: []uint64{12}})
	b := written(node{id: 3, kind: nodeRecv, src: 0, dst: 1, tag: 7, size: 4096},
		node{id: 1, kind: nodeCompute, ops: 2e6, deps: []uint64{3}},
		node{id: 2, kind: nodeMetadata, deps: []uint64{1}},
		node{id: 4, kind: nodeColl, comm: allReduce, size: 1 << 20, deps: []uint64{2}},
		node{id: 5, kind: nodeColl, comm: allGather, size: 1 << 10, deps: []uint64{4}})
	s, err := Schedule(files(a, b), Options{GPU: 1e12, Algorithm: "ring"})
	if err != nil {
		t.Fatal(err)
	}
	// 5 us, a message of 3 us, 2 us of operations; two steps of the ring and one of the gathering, of 3 us each.
	if end := played(t, s, play.Model{Latency: 3 * ib.Microsecond}); end != 19*ib.Microsecond {
		t.Errorf("it ends at %v, want 19 us", end)
	}
	sent := map[uint64]int{}
	for i := range s.Ranks {
		for _, o := range s.Ranks[i].Ops {
			if o.Kind == job.Send {
				sent[o.Size]++
			}
		}
	}
	if sent[4096] != 1 || sent[1<<19] != 4 || sent[1<<10] != 2 || len(sent) != 3 {
		t.Errorf("messages by size: %v", sent)
	}
}

// TestGroups: ranks 0 and 1, and 2 and 3, do their own.
func TestGroups(t *testing.T) {
	var list [][]byte
	for i := range 4 {
		list = append(list, written(node{id: 1, kind: nodeColl, size: 64, group: fmt.Sprint("g", i/2)}))
	}
	s, err := Schedule(files(list...), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.Ranks {
		for _, o := range s.Ranks[i].Ops {
			if o.Kind == job.Send && int(o.Peer)/2 != i/2 {
				t.Errorf("rank %d sends to rank %d", i, o.Peer)
			}
		}
	}
	if _, messages, _ := s.Count(); messages != 4 { // recursive doubling: one step
		t.Errorf("%d messages", messages)
	}
}

func TestRefuses(t *testing.T) {
	calc := func(id uint64, deps ...uint64) node { return node{id: id, kind: nodeCompute, micros: 1, deps: deps} }
	send := node{id: 1, kind: nodeSend, src: 0, dst: 1, size: 8}
	coll := node{id: 1, kind: nodeColl, size: 8}
	for _, c := range []struct {
		files [][]byte
		want  string
	}{
		{nil, "no files"},
		{[][]byte{nil}, "t.0.et is missing or empty"},
		{[][]byte{{0x1f, 0x8b, 0}}, "gunzip it"},
		{[][]byte{written(calc(1))[:20]}, "t.0.et: byte 8"},
		{[][]byte{written(calc(1, 9))}, "waits for node 9, which is not in the file"},
		{[][]byte{written(calc(1), calc(1))}, "has the number of"},
		{[][]byte{written(calc(1, 2), calc(2, 1))}, "wait for each other: node 1 (COMP_NODE \"\"), which waits for"},
		{[][]byte{written(node{id: 1, kind: nodeCompute, ops: 5})}, "gpu=400T"},
		{[][]byte{written(node{id: 1, kind: 99})}, "type 99"},
		{[][]byte{written(send)}, "there are files of ranks 0 to 0"},
		{[][]byte{written(send), written(calc(1))}, "t.0.et: node 1 (COMM_SEND_NODE \"\"): send of 8 bytes"},
		{[][]byte{written(calc(1)), written(node{id: 1, kind: nodeRecv, src: 0, dst: 1, size: 8})}, "nobody sends"},
		{[][]byte{written(calc(1)), written(send)}, "it is rank 0's, in the file of rank 1"},
		{[][]byte{written(coll), written(calc(1))}, "t.1.et has no collective"},
		{[][]byte{written(coll), written(node{id: 1, kind: nodeColl, size: 9})}, "the second has other collectives"},
		{[][]byte{written(coll), written(coll, node{id: 2, kind: nodeColl, size: 8})}, "more collectives"},
		{[][]byte{written(coll, node{id: 2, kind: nodeColl, size: 8}), written(coll)}, "fewer collectives"},
		{[][]byte{written(node{id: 1, kind: nodeColl, comm: 44}), written(node{id: 1, kind: nodeColl, comm: 44})},
			"comm_type 44"},
	} {
		_, err := Schedule(files(c.files...), Options{})
		if !errors.Is(err, ErrTrace) || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "next:") {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	// Every truncation is refused, but for those between nodes.
	whole := written(calc(1), calc(2, 1))
	for i := range whole {
		if s, err := Schedule(files(whole[:i]), Options{}); err == nil && len(s.Ranks[0].Ops) > 1 {
			t.Errorf("%d of %d bytes are taken", i, len(whole))
		}
	}
}

func FuzzSchedule(f *testing.F) {
	f.Add(written(node{id: 1, kind: nodeCompute, micros: 5}, node{id: 2, kind: nodeColl, size: 64, deps: []uint64{1}}),
		written(node{id: 2, kind: nodeColl, size: 64}))
	f.Add(written(node{id: 1, kind: nodeSend, src: 0, dst: 1, size: 8}),
		written(node{id: 1, kind: nodeRecv, size: 8, dst: 1}))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		s, err := Schedule(files(a, b), Options{GPU: 1e12})
		if err == nil && len(s.Ranks) != 2 {
			t.Fatal(len(s.Ranks))
		}
		if err != nil && !errors.Is(err, ErrTrace) && !errors.Is(err, job.ErrSchedule) {
			t.Fatal(err)
		}
	})
}
