package dropin

import (
	"bytes"
	"debug/elf"
	"io"
	"os"
)

// verbsWords is what every libibverbs begins its complaints with; one that is linked into a program has them in it.
var verbsWords = []byte("libibverbs: ")

// HasOwnVerbs reports whether a program is linked statically and has a libibverbs in itself. Such a one asks no dynamic
// linker for libraries, so that no set can reach it.
func HasOwnVerbs(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	program, err := elf.NewFile(f)
	if err != nil {
		return false
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			return false
		}
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_LOAD && contains(p.Open(), verbsWords) {
			return true
		}
	}
	return false
}

// contains looks for bytes in what a reader has.
func contains(r io.Reader, want []byte) bool {
	buf := make([]byte, 1<<20)
	for kept := 0; ; {
		n, err := r.Read(buf[kept:])
		if bytes.Contains(buf[:kept+n], want) {
			return true
		}
		if err != nil {
			return false
		}
		// The end may be the beginning of it.
		kept = copy(buf, buf[max(0, kept+n-len(want)+1):kept+n])
	}
}
