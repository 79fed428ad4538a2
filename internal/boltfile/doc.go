// Package boltfile looks at a file of bbolt's before bbolt does, and believes nothing that it reads there.
//
// bbolt believes its pages. Where one is damaged it panics, touches memory that is not there, takes as much as a wrong
// number says, or writes over pages that are in use; and where the newer of its two first pages is damaged, it goes on
// with the older one and says nothing: what was done last never happened then. So whoever keeps something that must not
// be lost asks here first.
//
// It knows bbolt's format, version 2, as it lies on the disk of the machine that wrote it, and nothing of what is kept
// in it.
package boltfile
