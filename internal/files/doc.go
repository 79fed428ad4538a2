// Package files has what several packages do with small files as a whole.
package files
