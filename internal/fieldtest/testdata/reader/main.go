// reader prints the entries of folders and the contents of files. It is linked statically: what it sees is what the kernel shows.
package main

import (
	"fmt"
	"os"
)

func main() {
	for _, path := range os.Args[1:] {
		if entries, err := os.ReadDir(path); err == nil {
			for _, e := range entries {
				fmt.Println(e.Name())
			}
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Stdout.Write(b)
	}
}
