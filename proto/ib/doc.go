// Package ib is the vocabulary of InfiniBand: the numbers that name things
// (LID, GUID, GID, QPN, PSN, P_Key, SL, VL), the enumerations that travel in
// management datagrams (MTU, width, speed, port states), and what all engines
// share: their unit of time and their queue.
//
// It knows no packet layout and no behaviour: wire lays these values out in
// packets, mad in management datagrams, and the engines give them meaning.
// Values are plain integers of distinct types, so that a LID is never passed
// where a QPN belongs.
package ib
