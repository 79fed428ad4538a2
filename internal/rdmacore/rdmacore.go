package rdmacore

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	installed = "/usr/share/doc/rdma-core/tests"
	python    = "/usr/bin/python3" // whose modules Debian's packages are
)

// Tests unpacks the tests to a folder that it makes in dir, and returns the command line that runs them on a device.
func Tests(dir, device string) ([]string, error) {
	files, err := os.ReadDir(installed)
	if err == nil {
		_, err = os.Stat(python)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; next: make test, which installs python3-pyverbs", err)
	}
	dir = filepath.Join(dir, "tests") // by which name they import each other
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	for _, f := range files {
		if err := unpack(filepath.Join(installed, f.Name()), dir); err != nil {
			return nil, err
		}
	}
	return []string{python, filepath.Join(dir, "run_tests.py"), "--dev", device, "-v"}, nil
}

// unpack copies a file, which may be compressed, to a folder.
func unpack(path, dir string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	var from io.Reader = in
	name, packed := strings.CutSuffix(filepath.Base(path), ".gz")
	if packed {
		if from, err = gzip.NewReader(in); err != nil {
			return err
		}
	}
	b, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), b, 0o644)
}

var (
	begins   = regexp.MustCompile(`(?m)^(test_\w+) \(tests\.(test_\w+)\.`)
	ends     = regexp.MustCompile(`(?m)(?:\.\.\. |^)(ok|skipped|FAIL|ERROR)\b`)
	ofVendor = regexp.MustCompile(`mlx5|efa|irdma`)
)

// Outcome is what became of the tests that are not for the adapters of one vendor, by module and name.
type Outcome struct{ Passed, Skipped, Failed []string }

// Read is what the tests have said.
func Read(out string) (o Outcome) {
	at := begins.FindAllStringSubmatchIndex(out, -1)
	for i, m := range at {
		rest := out[m[0]:]
		if i+1 < len(at) {
			rest = out[m[0]:at[i+1][0]]
		}
		name, module := out[m[2]:m[3]], out[m[4]:m[5]]
		if ofVendor.MatchString(module) {
			continue
		}
		list := &o.Failed // also one that has said nothing, because it ended all
		switch said := ends.FindStringSubmatch(rest); {
		case said != nil && said[1] == "ok":
			list = &o.Passed
		case said != nil && said[1] == "skipped":
			list = &o.Skipped
		}
		*list = append(*list, module+"."+name)
	}
	return o
}
