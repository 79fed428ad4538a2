package sources

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// LookAt looks at every source file below the root of the module.
func LookAt(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root {
			return filepath.SkipDir
		}
		switch filepath.Ext(path) {
		case ".go", ".c", ".h", ".map", ".sh", ".js", ".css", ".html":
			_, err = os.Stat(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // somebody is editing
		}
		return err
	})
}
