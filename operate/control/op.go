package control

import "encoding/json"

// Version is the protocol's: a fabric and a command of other versions do not understand each other.
const Version = 2

// Op is an operation: Q is what is asked, and A what each line of the answer says.
type Op[Q, A any] struct{ Name string }

// None is asked, or said, where there is nothing to say.
type None struct{}

// request is what a client asks.
type request struct {
	Version int             `json:"v"`
	Op      string          `json:"op"`
	Ask     json.RawMessage `json:"ask,omitempty"`
	// Beat asks for an empty line a second for as long as there is nothing else to say.
	Beat bool `json:"beat,omitempty"`
}

// line is one of a fabric's.
type line struct {
	Say   json.RawMessage `json:"say,omitempty"`
	Bytes int64           `json:"bytes,omitempty"` // that follow
	OK    bool            `json:"ok,omitempty"`
	Doing string          `json:"doing,omitempty"` // with a beat: what takes so long
	Refusal
}
