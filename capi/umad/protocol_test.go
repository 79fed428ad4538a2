package umad

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

var requestGolden = request{
	op: opRegister, token: 0x0102030405060708, port: 1, agent: 2, class: 0x32, classVersion: 1, rmppVersion: 1,
	flags:   1,
	methods: [2]uint64{0x11, 0x22}, oui: 0x001405, host: "h1",
}

func TestRequest(t *testing.T) {
	b := appendRequest(nil, &requestGolden)
	if native.Uint16([]byte{1, 0}) == 1 { // the bytes of a little-endian machine
		want := "55464f5301000300" + "0807060504030201" + "01000000" + "02000000" + "32010100" + "01000000" +
			"1100000000000000" + "2200000000000000" + "05140000" + "00000000" + "6831" + strings.Repeat("00", 126)
		if got := hex.EncodeToString(b); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	r, err := parseRequest(b)
	if err != nil || r != requestGolden {
		t.Errorf("%+v, %v, want %+v", r, err, requestGolden)
	}
	for i := range b {
		if _, err := parseRequest(b[:i]); !errors.Is(err, errNotRequest) {
			t.Errorf("%d bytes of a request: %v", i, err)
		}
	}
	if _, err := parseRequest(append(b, 0)); !errors.Is(err, errNotRequest) {
		t.Errorf("a byte too many: %v", err)
	}

	endless := bytes.Clone(b)
	copy(endless[56:], strings.Repeat("x", hostMax))
	if _, err := parseRequest(endless); !errors.Is(err, errNotRequest) {
		t.Errorf("a name without end: %v", err)
	}
	other := bytes.Clone(b)
	native.PutUint16(other[4:], 9)
	for _, n := range []int{8, 20, len(other)} { // another version's requests may have another length
		if _, err := parseRequest(other[:n]); !errors.Is(err, errVersion) ||
			!strings.Contains(err.Error(), "version 9") {
			t.Errorf("version 9, %d bytes: %v", n, err)
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add(appendRequest(nil, &requestGolden))
	f.Add([]byte{0x55, 0x46, 0x4f, 0x53, 2, 0, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRequest(b)
		if err != nil {
			return
		}
		again, err := parseRequest(appendRequest(nil, &r))
		if err != nil || again != r {
			t.Errorf("%+v, %v, want %+v", again, err, r)
		}
	})
}

var recordGolden = record{
	agent: 3, status: 110, timeoutMS: 200, retries: 2, length: 64 + 4,
	env: mad.Envelope{
		LID: 0x1234, QPN: 1, QKey: ib.QKeyGSI, SL: 5, PathBits: 6, PKeyIndex: 7, HasGRH: true, HopLimit: 8, TClass: 9,
		GIDIndex:  10,
		FlowLabel: 0x12345, GID: ib.MakeGID(ib.DefaultGIDPrefix, 0x1122334455667788),
	},
	data: []byte{1, 2, 3, 4},
}

func TestRecord(t *testing.T) {
	b := appendRecord(nil, &recordGolden)
	if native.Uint16([]byte{1, 0}) == 1 {
		want := "03000000" + "6e000000" + "c8000000" + "02000000" + "44000000" + "00000001" + "80010000" + "1234" +
			"05" + "06" +
			"01" + "0a" + "08" + "09" + "fe80000000000000" + "1122334455667788" + "00012345" + "0700" + "000000000000" +
			"01020304"
		if got := hex.EncodeToString(b); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	r, err := parseRecord(b)
	if err != nil || !reflect.DeepEqual(r, recordGolden) {
		t.Errorf("%+v, %v, want %+v", r, err, recordGolden)
	}
	for i := range recordHead {
		if _, err := parseRecord(b[:i]); !errors.Is(err, errNotRecord) {
			t.Errorf("%d bytes of a record: %v", i, err)
		}
	}
	if _, err := parseRecord(make([]byte, recordHead+mad.Size+1)); !errors.Is(err, errNotRecord) {
		t.Errorf("a record that is too long: %v", err)
	}
	long := recordGolden
	long.data = make([]byte, 5000)
	if n := len(appendRecord(nil, &long)); n != recordHead+mad.Size {
		t.Errorf("a long message makes a record of %d bytes, want %d", n, recordHead+mad.Size)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(appendRecord(nil, &recordGolden))
	f.Add(make([]byte, recordHead))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRecord(b)
		if err != nil {
			return
		}
		again, err := parseRecord(appendRecord(nil, &r))
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("%+v, %v, want %+v", again, err, r)
		}
	})
}

func TestCASizes(t *testing.T) {
	ca := CA{Type: strings.Repeat("long", 20), Ports: []Port{{Num: 1, PKeys: make([]ib.PKey, 5)}, {Num: 2}, {Num: 10},
		{Num: 200}}}
	b := appendCA(nil, &ca)
	if want := caSize + 2*portSize + 16; len(b) != want {
		t.Errorf("%d bytes, want %d: ports that no structure of libibumad holds are left out", len(b), want)
	}
	if name := b[60:100]; name[39] != 0 || string(name[:39]) != ca.Type[:39] {
		t.Errorf("type %q", name)
	}
	if len(appendReply(nil, &reply{})) != replySize {
		t.Error("size of a reply")
	}
}
