package route

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"softib/proto/ib"
)

const lftsOpenSM = `Unicast lids [0-5] of switch Lid 2 guid 0x0250f11b02000020 ('sw2'):
0x0001 003 # Channel Adapter portguid 0x0250f11b01000011: 'h1 HCA-1'
0x0002 000 # Switch portguid 0x0250f11b02000020: 'sw2'
0x0003 255
0x0005 005 # Channel Adapter portguid 0x0250f11b01000021: 'h2 HCA-1'
4 lids dumped
Unicast lids [0-5] of switch Lid 4 guid 0x0250f11b02000010 ('sw1'):
0x0001 001 # Channel Adapter portguid 0x0250f11b01000011: 'h1 HCA-1'
5 lids dumped
`

const lftsDiags = `Unicast lids [0x0-0x5] of switch DR path slid 0; dlid 0; 0,1,1,1,3,3 guid 0x0250f11b02000020 (sw2):
  Lid  Out   Destination
       Port     Info 
0x0000 255 : (path #0 - illegal port)
0x0001 003 : (Channel Adapter portguid 0x0250f11b01000011: 'h1 HCA-1')
0x0002 000 : (Switch portguid 0x0250f11b02000020: 'sw2')
0x0005 005 : (Channel Adapter portguid 0x0250f11b01000021: 'h2 HCA-1')
3 valid lids dumped 
Unicast lids [0x0-0x5] of switch DR path slid 0; dlid 0; 0,1 guid 0x0250f11b02000010 (sw1):
  Lid  Out   Destination
       Port     Info 
0x0001 001 : (Channel Adapter portguid 0x0250f11b01000011: 'h1 HCA-1')
1 valid lids dumped 
`

func TestParseLFTDump(t *testing.T) {
	for _, text := range []string{lftsOpenSM, lftsDiags} {
		d, err := ParseLFTDump("f", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Switches) != 2 || d.Switches[0].GUID != 0x0250f11b02000020 || d.Switches[0].Line != 1 ||
			d.Switches[1].GUID != 0x0250f11b02000010 {
			t.Errorf("%+v", d)
		}
		if want := []ib.PortNum{255, 3, 0, 255, 255, 5}; !slices.Equal(d.Switches[0].Ports, want) {
			t.Errorf("%v: want %v", d.Switches[0].Ports, want)
		}
		if len(d.LIDs) != 3 || d.LIDs[0x0250f11b01000021] != 5 {
			t.Errorf("%v", d.LIDs)
		}
		n := &Network{Top: 6, Switches: []Switch{{GUID: 0x0250f11b02000010}, {GUID: 77}, {GUID: 0x0250f11b02000020}}}
		tab, missing := d.Tables(n)
		if !slices.Equal(missing, []int32{1}) || tab.LFT[0][1] != 1 || tab.LFT[2][5] != 5 || tab.LFT[1][1] != NoPort ||
			len(tab.LFT[2]) != 7 {
			t.Errorf("%v, %v", tab, missing)
		}
	}
}

// A dump that was cut off is refused, unless the cut is between two switches.
func TestLFTDumpTruncated(t *testing.T) {
	for _, text := range []string{lftsOpenSM, lftsDiags} {
		whole := 0
		for i := range text {
			d, err := ParseLFTDump("f", []byte(text[:i]))
			if err == nil {
				whole++
				if len(d.Switches) < 1 || !strings.Contains(text[max(0, i-14):i], "dumped") {
					t.Errorf("cut at %d is taken: %q", i, text[max(0, i-20):i])
				}
			} else if !errors.Is(err, ErrLFTDump) {
				t.Errorf("%v", err)
			}
		}
		if whole > 8 {
			t.Errorf("%d cuts are taken", whole)
		}
	}
}

func TestLFTDumpErrors(t *testing.T) {
	for _, c := range []struct {
		text string
		line int
		word string
	}{
		{"", 0, "end of the file"},
		{"hello\n", 1, "hello"},
		{"Unicast lids [0-5] of switch Lid 2 ('x'):\n", 1, "Unicast lids [0-5] of switch Lid 2 ('x'):"},
		{"Unicast lids [0-5] of switch Lid 2 guid 12 ('x'):\n", 1, "12"},
		{"\n0x0001 003\n", 2, "0x0001 003"},
		{"Unicast lids [] guid 0x1 x\n0xc000 001\n", 2, "0xc000"},
		{"Unicast lids [] guid 0x1 x\n0x1 256\n", 2, "256"},
		{"Unicast lids [] guid 0x1 x\n0x1 1\n0x1 2\n", 3, "0x1 2"},
		{"Unicast lids [] guid 0x1 x\n0x1 1 # portguid 0xz\n", 2, "portguid 0x"},
		{"Unicast lids [] guid 0x1 x\n0x1 1\n2 lids dumped\n", 3, "2 lids dumped"},
		{"Unicast lids [] guid 0x1 x\nUnicast lids [] guid 0x2 x\n", 2, "Unicast lids"},
		{"Unicast lids [] guid 0x1 x\n0 lids dumped\nUnicast lids [] guid 0x1 x\n", 3, "0x1"},
		{"Unicast lids [] guid 0x1 x\nx lids dumped\n", 2, "x lids dumped"},
		{"Unicast lids [0-9] guid 0x1 x\n0x1 1\n8 lids dumped\n", 3, "8 lids dumped"},
		{"1 lids dumped\n", 1, "1 lids dumped"},
		{"Multicast mlids [0xc000-0xc3ff] of switch\n", 1, "Multicast"},
	} {
		_, err := ParseLFTDump("f", []byte(c.text))
		var e *LFTDumpError
		if !errors.As(err, &e) || e.Line != c.line || e.Word != c.word ||
			!strings.Contains(err.Error(), fmt.Sprintf("f:%d", c.line)) {
			t.Errorf("%q: %v: want line %d, word %q", c.text, err, c.line, c.word)
		}
	}
}

// Whatever is taken can be judged.
func FuzzParseLFTDump(f *testing.F) {
	f.Add([]byte(lftsOpenSM))
	f.Add([]byte(lftsDiags))
	f.Add([]byte("Unicast lids [] guid 0x1 x\n0xbfff 254\n1 lids dumped\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := ParseLFTDump("f", text)
		if err != nil {
			if !errors.Is(err, ErrLFTDump) {
				t.Fatal(err)
			}
			return
		}
		n := &Network{Top: 5, Switches: []Switch{{GUID: 0x0250f11b02000020, Ends: 1, Ports: make([]Hop, 6)},
			{GUID: 0x0250f11b02000010, Ports: make([]Hop, 2)}}}
		for s := range n.Switches {
			for p := range n.Switches[s].Ports {
				n.Switches[s].Ports[p].To = NoSwitch
			}
		}
		n.Switches[0].Ports[3], n.Switches[1].Ports[1] = Hop{1, 1}, Hop{0, 3}
		n.Dests = []Dest{{LID: 2, Switch: 0}, {LID: 5, Switch: 0, Port: 5}, {LID: 1, Switch: 1}}
		tab, _ := d.Tables(n)
		if len(tab.LFT) != 2 || Judge(n, tab, JudgeOptions{}).String() == "" {
			t.Fatal("tables are missing")
		}
	})
}
