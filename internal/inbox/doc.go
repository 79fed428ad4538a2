// Package inbox keeps the management datagrams that have come for a session until somebody takes them. Whoever drives a
// port's management service has one for each session.
package inbox
