package main

import (
	"encoding/json"
	"reflect"
	"testing"

	"softib/operate/manager/tenant"
)

// What one machine asks of another comes there whole: also that somebody was asked before.
func TestWantedTenants(t *testing.T) {
	red := tenant.Tenant{Name: "red", Key: 0x11}
	want := wantedTenants{Change: tenant.Change{Is: &red}, Again: true}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got wantedTenants
	if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s is read as %+v, %v", b, got, err)
	}
}
