package tenant

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

func sampleTenant() Tenant {
	rate, _ := mad.RateFromGbps(100)
	return Tenant{
		Name: "red", Key: 0x1001, IPoIB: true, Users: []uint32{1000, 1002},
		QoS:     QoS{SL: 3, HasSL: true, Rate: rate, MTU: ib.MTU2048},
		Members: []Member{{GUID: 1, Full: true}, {GUID: 0x0002c90300000001, Index0: true}},
	}
}

const sampleJSON = `{"name":"red","pkey":"0x1001",` +
	`"members":[{"guid":"0x0000000000000001","membership":"full"},` +
	`{"guid":"0x0002c90300000001","membership":"limited","index0":true}],` +
	`"ipoib":true,"users":[1000,1002],"sl":3,"rate_gbps":100,"mtu_bytes":2048}`

func TestJSON(t *testing.T) {
	b, err := json.Marshal(sampleTenant())
	if err != nil || string(b) != sampleJSON {
		t.Errorf("got %s, %v\nwant %s", b, err, sampleJSON)
	}
	var got Tenant
	if err := json.Unmarshal([]byte(sampleJSON), &got); err != nil || !got.Equal(sampleTenant()) {
		t.Errorf("got %+v, %v", got, err)
	}
	for i := range len(sampleJSON) {
		if json.Unmarshal([]byte(sampleJSON[:i]), new(Tenant)) == nil {
			t.Errorf("%s is read", sampleJSON[:i])
		}
	}
	// A level of 0 is not the same as none.
	zero := Tenant{Name: "z", Key: 1, QoS: QoS{HasSL: true}}
	b, err = json.Marshal(zero)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &got); err != nil || !got.Equal(zero) {
		t.Errorf("%s becomes %+v, %v", b, got, err)
	}
}

func TestBadJSON(t *testing.T) {
	for _, tc := range []struct{ from, to, field string }{
		{`"red"`, `""`, "name"},
		{`"red"`, `"a b"`, "name"},
		{`"red"`, `"-x"`, "name"},
		{`"red"`, `"Management"`, "name"},
		{`"red"`, `"` + strings.Repeat("x", 65) + `"`, "name"},
		{`"0x1001"`, `"0"`, "pkey"},
		{`"0x1001"`, `"0x7fff"`, "pkey"},
		{`"0x1001"`, `"0xffff"`, "pkey"},
		{`"0x1001"`, `"0x10000"`, "pkey"},
		{`"0x1001"`, `"red"`, "pkey"},
		{`"0x0000000000000001"`, `"0"`, "guid"},
		{`"0x0000000000000001"`, `"0xffffffffffffffff"`, "guid"},
		{`"0x0000000000000001"`, `"0x00000000000000001"`, "guid"},
		{`"0x0000000000000001"`, `"0x0002c90300000001"`, "guid"},
		{`"full"`, `"half"`, "membership"},
		{`"sl":3`, `"sl":16`, "service level"},
		{`"rate_gbps":100`, `"rate_gbps":99`, "rate"},
		{`"mtu_bytes":2048`, `"mtu_bytes":2000`, "MTU"},
	} {
		text := strings.Replace(sampleJSON, tc.from, tc.to, 1)
		err := json.Unmarshal([]byte(text), new(Tenant))
		var inv *InvalidError
		if !errors.Is(err, ErrInvalid) || !errors.As(err, &inv) || inv.Field != tc.field {
			t.Errorf("%s: %v: want the field %s", text, err, tc.field)
		}
	}
}

func TestParseKey(t *testing.T) {
	for text, want := range map[string]ib.PKey{"0x11": 0x11, "0X8011": 0x11, "17": 0x11, "0x7ffe": 0x7ffe} {
		if k, err := ParseKey(text); err != nil || k != want {
			t.Errorf("%s is %v, %v: want %v", text, k, err, want)
		}
	}
	for _, text := range []string{"", "0", "0x8000", "0x7fff", "0xffff", "65536", "-1", "x"} {
		if k, err := ParseKey(text); err == nil {
			t.Errorf("%q is %v", text, k)
		}
	}
}

func FuzzTenant(f *testing.F) {
	f.Add([]byte(sampleJSON))
	f.Add([]byte(`{"name":"a","pkey":"1","members":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var x, y Tenant
		if json.Unmarshal(b, &x) != nil {
			return
		}
		if err := x.check(); err != nil {
			t.Fatalf("%s was read and is wrong: %v", b, err)
		}
		again, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(again, &y); err != nil || !x.Equal(y) {
			t.Fatalf("%s becomes %s becomes %+v, %v", b, again, y, err)
		}
	})
}
