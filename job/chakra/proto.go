package chakra

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// errShort is a file that ends within something.
var errShort = errors.New("it ends within a value")

// wire types of protobuf's encoding.
const (
	wireVarint = 0
	wire64     = 1
	wireBytes  = 2
	wire32     = 5
)

// field is one of a message: its number, and a number or bytes.
type field struct {
	number int
	wire   int
	value  uint64
	bytes  []byte
}

// next takes a field from the front of a message.
func next(b []byte) (f field, rest []byte, err error) {
	key, n := binary.Uvarint(b)
	if n <= 0 || key>>3 == 0 || key>>3 > 1<<29-1 {
		return f, nil, errors.New("no field begins here")
	}
	b = b[n:]
	f.number, f.wire = int(key>>3), int(key&7)
	switch f.wire {
	case wireVarint:
		if f.value, n = binary.Uvarint(b); n <= 0 {
			return f, nil, errShort
		}
		return f, b[n:], nil
	case wire64:
		if len(b) < 8 {
			return f, nil, errShort
		}
		f.value = binary.LittleEndian.Uint64(b)
		return f, b[8:], nil
	case wire32:
		if len(b) < 4 {
			return f, nil, errShort
		}
		f.value = uint64(binary.LittleEndian.Uint32(b))
		return f, b[4:], nil
	case wireBytes:
		f.bytes, rest, err = delimited(b)
		return f, rest, err
	}
	return f, nil, fmt.Errorf("wire type %d: want 0, 1, 2 or 5", f.wire)
}

// delimited takes bytes that stand behind their length.
func delimited(b []byte) (bytes, rest []byte, err error) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return nil, nil, errShort
	}
	return b[n : n+int(size)], b[n+int(size):], nil
}

// Types of nodes.
const (
	nodeMetadata = 1
	nodeLoad     = 2
	nodeStore    = 3
	nodeCompute  = 4
	nodeSend     = 5
	nodeRecv     = 6
	nodeColl     = 7
)

var typeNames = [...]string{"INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE",
	"COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE"}

// node is what is read of a Node.
type node struct {
	id       uint64
	name     string
	kind     uint64
	deps     []uint64
	micros   uint64
	ops      float64
	size     uint64
	src, dst int64
	tag      int64
	comm     int64
	group    string
	hasComm  bool
}

func (n *node) String() string {
	kind := fmt.Sprintf("type %d", n.kind)
	if n.kind < uint64(len(typeNames)) {
		kind = typeNames[n.kind]
	}
	return fmt.Sprintf("node %d (%s %.40q)", n.id, kind, n.name)
}

// parseNode reads a Node.
func parseNode(b []byte) (n node, err error) {
	n.src, n.dst = -1, -1
	for len(b) > 0 {
		var f field
		if f, b, err = next(b); err != nil {
			return n, err
		}
		switch f.number {
		case 1:
			n.id = f.value
		case 2:
			n.name = string(f.bytes)
		case 3:
			n.kind = f.value
		case 4, 5:
			if n.deps, err = numbers(n.deps, f); err != nil {
				return n, fmt.Errorf("dependencies: %w", err)
			}
		case 7:
			n.micros = f.value
		case 10:
			if err := n.attribute(f.bytes); err != nil {
				return n, fmt.Errorf("an attribute: %w", err)
			}
		}
	}
	return n, nil
}

// numbers appends a repeated number, which may be packed or not.
func numbers(list []uint64, f field) ([]uint64, error) {
	if f.wire != wireBytes {
		return append(list, f.value), nil
	}
	for b := f.bytes; len(b) > 0; {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errShort
		}
		list, b = append(list, v), b[n:]
	}
	return list, nil
}

// attribute reads an AttributeProto, of which there are as many types of values as protobuf has.
func (n *node) attribute(b []byte) (err error) {
	name, text, value, real := "", "", int64(0), 0.0
	for len(b) > 0 {
		var f field
		if f, b, err = next(b); err != nil {
			return err
		}
		switch f.number {
		case 1:
			name = string(f.bytes)
		case 3:
			real = math.Float64frombits(f.value)
			value = whole(real)
		case 5:
			real = float64(math.Float32frombits(uint32(f.value)))
			value = whole(real)
		case 15, 17: // zigzag
			value = int64(f.value>>1) ^ -int64(f.value&1)
		case 7, 23: // int32, sfixed32
			value = int64(int32(f.value))
		case 9, 11, 13, 19, 21, 25, 27:
			value = int64(f.value)
		case 29:
			text = string(f.bytes)
		}
	}
	if real == 0 {
		real = float64(value)
	}
	switch name {
	case "comm_type":
		n.comm, n.hasComm = value, true
	case "comm_size":
		n.size = uint64(value)
	case "comm_src":
		n.src = value
	case "comm_dst":
		n.dst = value
	case "comm_tag":
		n.tag = value
	case "num_ops":
		n.ops = real
	case "runtime": // what traces had before duration_micros
		n.micros = uint64(max(value, 0))
	case "pg_name":
		if n.group = text; text == "" {
			n.group = fmt.Sprint(value)
		}
	}
	return nil
}

// whole is a real number as an integer, 0 if it is none.
func whole(v float64) int64 {
	if v > -1e18 && v < 1e18 {
		return int64(v)
	}
	return 0
}
