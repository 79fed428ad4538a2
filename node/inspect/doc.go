// Package inspect has the terms in which a fabric tells those who operate it how it is, and is told what to rehearse:
// the way that packets take, what becomes of a probe, faults of cables, and what attached programs say of themselves.
//
// They are values and nothing else. A driver that fills them (driver/live, operate/manager/remote) and whoever asks
// (operate/manager and what stands on it) both import this package, so that neither needs the other: a fabric that is
// not softib's is managed without softib's driver.
package inspect
