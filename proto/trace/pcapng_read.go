package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrPcapng is the kind of every error of ReadPcapng.
var ErrPcapng = errors.New("not a pcapng file of this kind")

// Capture is a file read back.
type Capture struct {
	Interfaces []Interface
	Records    []Record
}

// Interface is a port of a capture.
type Interface struct {
	Name     string
	LinkType LinkType
	Speed    uint64 // bits a second, 0 if not given
}

// Record is one packet of a capture.
type Record struct {
	Interface int
	TimeNS    uint64 // since the capture's epoch
	Dir       Dir
	Comments  []string
	Bytes     []byte // without framing; refers to the file
	Length    int    // of the packet, which may be longer than Bytes
}

// ReadPcapng reads a little-endian pcapng file with nanosecond times, as Pcapng
// writes it. Blocks and options that it does not know are skipped.
func ReadPcapng(b []byte) (*Capture, error) {
	c := new(Capture)
	first := true
	for at := 0; at < len(b); first = false {
		kind, body, n, err := readBlock(b[at:])
		switch {
		case err != nil:
		case first && kind != blockSection:
			err = fmt.Errorf("block type %#x, want a section header %#x", kind, uint32(blockSection))
		case kind == blockSection:
			err = c.section(body, first)
		case kind == blockInterface:
			err = c.iface(body)
		case kind == blockPacket:
			err = c.packet(body)
		}
		if err != nil {
			return c, fmt.Errorf("trace: pcapng at byte %d: %w: %w", at, ErrPcapng, err)
		}
		at += n
	}
	if first {
		return c, fmt.Errorf("trace: pcapng at byte 0: %w: empty", ErrPcapng)
	}
	return c, nil
}

// readBlock splits off one block: its type, what is between its two lengths,
// and how many bytes it took.
func readBlock(b []byte) (kind uint32, body []byte, n int, err error) {
	if len(b) < 12 {
		return 0, nil, 0, fmt.Errorf("block has %d bytes, want at least 12", len(b))
	}
	kind = binary.LittleEndian.Uint32(b)
	size := binary.LittleEndian.Uint32(b[4:])
	if size < 12 || size%4 != 0 || uint64(size) > uint64(len(b)) {
		return kind, nil, 0, fmt.Errorf("block length %d, want a multiple of 4 from 12 to %d", size, len(b))
	}
	n = int(size)
	if tail := binary.LittleEndian.Uint32(b[n-4:]); tail != size {
		return kind, nil, 0, fmt.Errorf("block length %d at its end, want %d", tail, size)
	}
	return kind, b[8 : n-4], n, nil
}

func (c *Capture) section(b []byte, first bool) error {
	if !first {
		return errors.New("second section, want one")
	}
	if len(b) < 16 {
		return fmt.Errorf("section header has %d bytes, want at least 16", len(b))
	}
	if m := binary.LittleEndian.Uint32(b); m != byteOrderMagic {
		return fmt.Errorf("byte order magic %#x, want %#x", m, uint32(byteOrderMagic))
	}
	if v := binary.LittleEndian.Uint16(b[4:]); v != 1 {
		return fmt.Errorf("major version %d, want 1", v)
	}
	return eachOption(b[16:], func(uint16, []byte) {})
}

func (c *Capture) iface(b []byte) error {
	if len(b) < 8 {
		return fmt.Errorf("interface has %d bytes, want at least 8", len(b))
	}
	f := Interface{LinkType: LinkType(binary.LittleEndian.Uint16(b))}
	resol := uint8(6) // the format's default
	err := eachOption(b[8:], func(code uint16, v []byte) {
		switch {
		case code == optIfName:
			f.Name = string(v)
		case code == optIfSpeed && len(v) == 8:
			f.Speed = binary.LittleEndian.Uint64(v)
		case code == optIfTsResol && len(v) == 1:
			resol = v[0]
		}
	})
	if err == nil && resol != nanoseconds {
		err = fmt.Errorf("interface time resolution %d, want %d", resol, nanoseconds)
	}
	c.Interfaces = append(c.Interfaces, f)
	return err
}

func (c *Capture) packet(b []byte) error {
	const fixed = epbData - 8
	if len(b) < fixed {
		return fmt.Errorf("packet has %d bytes, want at least %d", len(b), fixed)
	}
	i := binary.LittleEndian.Uint32(b)
	if uint64(i) >= uint64(len(c.Interfaces)) {
		return fmt.Errorf("packet of interface %d, want one of %d", i, len(c.Interfaces))
	}
	ns := uint64(binary.LittleEndian.Uint32(b[4:]))<<32 | uint64(binary.LittleEndian.Uint32(b[8:]))
	kept, n := binary.LittleEndian.Uint32(b[12:]), binary.LittleEndian.Uint32(b[16:])
	padded := (uint64(kept) + 3) &^ 3
	if padded > uint64(len(b)-fixed) {
		return fmt.Errorf("packet keeps %d bytes, want at most %d", kept, len(b)-fixed)
	}
	r := Record{Interface: int(i), TimeNS: ns, Bytes: b[fixed : fixed+kept : fixed+kept], Length: int(n)}
	if c.Interfaces[i].LinkType == LinkTypeERF {
		if err := r.unframe(); err != nil {
			return err
		}
	}
	err := eachOption(b[fixed+padded:], func(code uint16, v []byte) {
		switch {
		case code == optComment:
			r.Comments = append(r.Comments, string(v))
		case code == optPacketFlags && len(v) == 4:
			switch binary.LittleEndian.Uint32(v) & 3 {
			case flagInbound:
				r.Dir = In
			case flagOutbound:
				r.Dir = Out
			}
		}
	})
	c.Records = append(c.Records, r)
	return err
}

// unframe takes the ERF header off.
func (r *Record) unframe() error {
	if len(r.Bytes) < erfSize || r.Length < erfSize {
		return fmt.Errorf("ERF record has %d bytes, want at least %d", min(len(r.Bytes), r.Length), erfSize)
	}
	if t := r.Bytes[8]; t != erfTypeInfiniBand {
		return fmt.Errorf("ERF type %d, want %d", t, erfTypeInfiniBand)
	}
	r.Bytes = r.Bytes[erfSize:]
	r.Length -= erfSize
	return nil
}

// eachOption calls f with every option of a block, up to the end mark or the end.
func eachOption(b []byte, f func(code uint16, v []byte)) error {
	for len(b) > 0 {
		if len(b) < 4 {
			return fmt.Errorf("option has %d bytes, want at least 4", len(b))
		}
		code, n := binary.LittleEndian.Uint16(b), int(binary.LittleEndian.Uint16(b[2:]))
		if code == optEnd {
			return nil
		}
		padded := (n + 3) &^ 3
		if padded > len(b)-4 {
			return fmt.Errorf("option %d has %d bytes, want at most %d", code, n, len(b)-4)
		}
		f(code, b[4:4+n])
		b = b[4+padded:]
	}
	return nil
}
