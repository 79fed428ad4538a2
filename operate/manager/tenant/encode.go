package tenant

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"softib/proto/ib"
	"softib/proto/mad"
)

// A tenant as JSON is the same in the store, on the control socket and in what commands print with --json:
//
//	{"name":"red","pkey":"0x1001","members":[{"guid":"0x0002c90300000001","membership":"full","index0":true}],
//	 "ipoib":true,"users":[1000],"sl":1,"rate_gbps":100,"mtu_bytes":2048}

type tenantJSON struct {
	Name    string       `json:"name"`
	PKey    string       `json:"pkey"`
	Members []memberJSON `json:"members"`
	IPoIB   bool         `json:"ipoib,omitempty"`
	Users   []uint32     `json:"users,omitempty"`
	SL      *uint8       `json:"sl,omitempty"`
	Rate    float64      `json:"rate_gbps,omitempty"`
	MTU     int          `json:"mtu_bytes,omitempty"`
}

type memberJSON struct {
	GUID       string `json:"guid"`
	Membership string `json:"membership"`
	Index0     bool   `json:"index0,omitempty"`
}

// Memberships by name.
const (
	fullName    = "full"
	limitedName = "limited"
)

// Membership is "full" or "limited".
func (m Member) Membership() string {
	if m.Full {
		return fullName
	}
	return limitedName
}

// ParseMembership reads "full" or "limited", in any case.
func ParseMembership(s string) (full bool, err error) {
	switch strings.ToLower(s) {
	case fullName:
		return true, nil
	case limitedName:
		return false, nil
	}
	return false, invalid("membership", strconv.Quote(s), "full or limited")
}

// ParseKey reads a partition key, hex with 0x or decimal. A membership bit is taken off.
func ParseKey(s string) (ib.PKey, error) {
	v, err := strconv.ParseUint(strings.ToLower(s), 0, 16)
	if err != nil {
		return 0, invalid("pkey", strconv.Quote(s), "0x0001 to 0x7ffe")
	}
	key := ib.PKey(v).Base()
	return key, CheckKey(key)
}

// MarshalJSON writes a tenant.
func (t Tenant) MarshalJSON() ([]byte, error) {
	out := tenantJSON{Name: t.Name, PKey: t.Key.String(), Members: make([]memberJSON, len(t.Members)), IPoIB: t.IPoIB,
		Users: t.Users, Rate: t.Rate.Gbps()}
	for i, m := range t.Members {
		out.Members[i] = memberJSON{m.GUID.String(), m.Membership(), m.Index0}
	}
	if t.HasSL {
		out.SL = (*uint8)(&t.SL)
	}
	if t.MTU.IsValid() {
		out.MTU = t.MTU.Bytes()
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads a tenant and checks it.
func (t *Tenant) UnmarshalJSON(b []byte) error {
	var in tenantJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return fmt.Errorf("tenant: %w", err)
	}
	out := Tenant{Name: in.Name, IPoIB: in.IPoIB, Users: in.Users}
	var err error
	if out.Key, err = ParseKey(in.PKey); err != nil {
		return err
	}
	for _, m := range in.Members {
		g, err := ib.ParseGUID(m.GUID)
		if err != nil {
			return invalid("guid", strconv.Quote(m.GUID), "1 to 16 hex digits")
		}
		full, err := ParseMembership(m.Membership)
		if err != nil {
			return err
		}
		out.Members = append(out.Members, Member{g, full, m.Index0})
	}
	if in.SL != nil {
		out.SL, out.HasSL = ib.SL(*in.SL), true
	}
	if in.Rate != 0 {
		r, ok := mad.RateFromGbps(in.Rate)
		if !ok {
			r = 0xFF // check names it
		}
		out.Rate = r
	}
	if in.MTU != 0 {
		m, ok := ib.MTUFromBytes(in.MTU)
		if !ok {
			return invalid("MTU", fmt.Sprint(in.MTU), "256, 512, 1024, 2048 or 4096 bytes")
		}
		out.MTU = m
	}
	if err := out.check(); err != nil {
		return err
	}
	*t = out
	return nil
}

// changeJSON is an intent in the store.
type changeJSON struct {
	Was      *Tenant         `json:"was,omitempty"`
	Is       *Tenant         `json:"is,omitempty"`
	Template *TemplateChange `json:"template,omitempty"`
}

// MarshalJSON writes a change.
func (c Change) MarshalJSON() ([]byte, error) { return json.Marshal(changeJSON(c)) }

// UnmarshalJSON reads one.
func (c *Change) UnmarshalJSON(b []byte) error {
	var in changeJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*c = Change(in)
	return nil
}
