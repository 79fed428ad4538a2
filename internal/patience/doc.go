// Package patience says how long to wait for something that this machine has to do: longer, the more it has to do
// besides. A limit that suits an idle machine is none on one where forty programs wait for two processors; there
// whatever is waited for gets a twentieth of the time.
//
// It is for waits that end in "something is broken", not for protocols: their timeouts are the standard's.
package patience
